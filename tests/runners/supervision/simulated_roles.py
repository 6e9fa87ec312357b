"""A backend whose roles are simulated by the test, in one thread and with a fake clock."""

import os

import numpy as np

from reverie.agents.core import RunSettings, Weights
from reverie.runners import Evaluation
from reverie.runners.links.messages import (
    ActAgain,
    ActorReport,
    Evaluate,
    EvaluationDone,
    FollowParameterShards,
    LearnerReport,
    PauseUpdates,
    ResumeUpdates,
    RoleEnded,
    RoleReady,
    SavedState,
    SaveState,
    ShardEndpoint,
    ShardReport,
    ShardSettings,
    Stop,
    UpdatesPaused,
)
from reverie.runners.supervision import role_group

RUN = RunSettings(
    target_return=100.0,
    max_env_steps=200,
    evaluate_every=50,
    checkpoint_every=60,
    screening_episodes=1,
    confirmation_episodes=1,
    evaluation_seconds=20.0,
)
FIGURES = dict.fromkeys(("inserts", "samples", "size", "bytes", "priorities_updated", "updates_stale"), 1.0)


class SimulatedRoles:
    """A backend: in each turn every actor steps once and every learner that is not held updates once.

    `judge` gives the returns (screening, confirming) of weights of a version; None leaves the evaluator silent. Each
    process of a learner makes other updates: their parameters differ where their versions are the same.
    """

    def __init__(self, folder, judge):
        self.folder, self.judge = folder, judge
        self.roles, self.ended, self.held, self.coming = {}, set(), set(), []
        self.evaluating, self.killed = False, []
        self.steps, self.versions, self.parameters, self.epochs = {}, {}, {}, {}
        self.judged, self.saves, self.now = [], 0, 0.0
        self.awaiting, self.acts_again = set(), []
        """Roles that wait for others, by index and kind, and actors that were asked not to, with the time."""
        self.ready = True
        self.address = "a:1"
        self.hanging = set()
        """Roles, by index and kind, that are started from now on and never get ready."""
        self.drift = 0.0
        """The distance of a restarted learner from the parameters of its state, as that of a user's agent may have."""
        self.script = lambda backend: None
        """Called at the start of each turn."""
        self.ignores = lambda name, command: False
        """Whether a role does not answer a command."""
        self.ignored = []
        """The commands that were not answered: `(time, name, command)`."""
        self.num_parameters = 1

    @property
    def weights(self):
        return self

    def source(self):
        return self

    @property
    def version(self):
        return max(self.versions.values(), default=0)

    def latest(self, newer_than):
        flat = next(iter(self.parameters.values()), 0.0)
        return Weights(self.version, np.full(self.num_parameters, flat, np.float32))

    def serving(self, name, storage, before):
        return ShardSettings()

    def endpoint(self, name, ready):
        return ShardEndpoint(ready.address)

    def parameter_addresses(self, shards):
        return [shard.generation for shard in shards]

    def why_not_started(self, name):
        return ""

    def why_stopped(self, name):
        return ""

    def kill(self, name):
        self.killed.append(str(name))
        self.ended.add(name)

    def die(self, name):
        self.ended.add(name)
        self.coming.append((name, RoleEnded("killed by SIGKILL")))

    def start(self, setup):
        name = setup.name
        self.roles[name], self.epochs[name] = setup, setup.epoch
        self.ended.discard(name)
        if str(name) in self.hanging:
            self.ended.add(name)
            return
        (self.held.add if setup.held else self.held.discard)(name)
        if name.kind == "actor":
            self.steps[name] = (setup.state or {"env_steps": 0})["env_steps"]
        if name.kind == "learner":
            state = setup.state or {}
            self.versions[name], self.parameters[name] = state.get("version", 0), state.get("parameters", 0.0)
            if setup.generation:
                self.parameters[name] += self.drift
        self.coming.append((name, RoleReady(os.getpid(), "here", self.address)))

    def send(self, name, command):
        if self.ignores(name, command):
            self.ignored.append((self.now, name, command))
            return
        match command:
            case PauseUpdates(number):
                self.held.add(name)
                self.coming.append((name, UpdatesPaused(number)))
            case ResumeUpdates():
                self.held.discard(name)
            case SaveState(number):
                self.coming.append((name, self.state_of(name, number)))
            case Evaluate(number, weights, confirm):
                self.judged.append((weights.version, confirm))
                returns = self.judge(weights.version)
                self.evaluating = returns is None
                if returns is not None:
                    screening, confirming = (Evaluation((1,), (one,)) for one in returns)
                    reached = screening.mean_return >= RUN.target_return or confirm
                    self.coming.append((name, EvaluationDone(number, screening, confirming if reached else None, 0.0)))
            case FollowParameterShards(_, epoch):
                self.epochs[name] = epoch
            case ActAgain():
                self.acts_again.append((self.now, str(name)))
            case Stop() if name == role_group.EVALUATOR and self.evaluating:
                pass
            case Stop():
                self.ended.add(name)
                self.coming.append((name, RoleEnded("it ended")))

    def state_of(self, name, number):
        if name.kind == "shard":
            self.saves += 1
            tables = self.folder / "replay-1" / str(self.saves)
            tables.mkdir(parents=True, exist_ok=True)
            return SavedState(number, tables=str(tables), samples={"replay": 50})
        if name.kind == "learner":
            state = {"version": self.versions[name], "parameters": self.parameters[name], "draws": self.draws}
            return SavedState(number, state, self.latest(-1), epoch=self.epochs[name])
        return SavedState(number, {"version": self.version}, epoch=self.epochs[name])

    def listen(self, timeout):
        self.now += 1.0
        self.script(self)
        reported, self.coming = self.coming, []
        for name in [one for one in self.roles if one not in self.ended]:
            if name.kind == "shard":
                reported.append((name, ShardReport(FIGURES, "")))
            awaits = str(name) in self.awaiting
            if name.kind == "actor":
                self.steps[name] += not awaits
                state = {"env_steps": self.steps[name]}
                reported.append((name, ActorReport(self.steps[name], self.version, state, awaits_weights=awaits)))
            if name.kind == "learner" and name not in self.held:
                self.versions[name] += not awaits
                self.parameters[name] += 0.0 if awaits else 1.0 + self.roles[name].generation / 1024
                reported.append((name, LearnerReport(self.versions[name], {}, {}, awaits_batch=awaits)))
        return reported


def of_kind(events, kind):
    return [event for event in events if isinstance(event, kind)]
