"""The roles of a run: started, polled for reports, and restarted when they end. The same for every runner.

Roles run on a `RoleBackend`, which starts them and carries messages. Commands that a role has not answered are
sent again to its replacement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from reverie.agents.agent import Agent
from reverie.runners.links.messages import (
    ActorReport,
    BundleReport,
    Command,
    Evaluate,
    EvaluationDone,
    FollowParameterShards,
    Kind,
    PauseUpdates,
    Report,
    ResumeUpdates,
    RoleEnded,
    RoleFailed,
    RoleName,
    RoleReady,
    SavedState,
    SaveState,
    ShardEndpoint,
    ShardSettings,
    Stop,
)
from reverie.runners.links.parameter_connections import ParameterAddresses
from reverie.runners.links.replay_storage import ReplayStorage
from reverie.runners.planning.topology import Topology
from reverie.runners.reports.events import RoleError
from reverie.runners.supervision.absences import Absence
from reverie.runners.supervision.listening_clock import ListeningClock
from reverie.runners.supervision.role_backend import RoleBackend
from reverie.runners.supervision.role_setups import RoleSetups
from reverie.runners.supervision.role_status import RoleStatus

EVALUATOR = RoleName("evaluator", alone=True)
SHORT_LIFE_SECONDS = 60.0
SHORT_LIVES = 5
"""A role that ends this many times in a row, each time within `SHORT_LIFE_SECONDS` of its start or without answering a
pending `Evaluate`, is not restarted: the run ends."""
REGULAR: frozenset[Kind] = frozenset({"shard", "learner", "bundle", "actor"})
"""Roles that report ten times a second while they run."""
SILENT_SECONDS = 30.0
"""A role of `REGULAR` without a report for this time is reported as awaited."""
LATE_EVALUATION = "has not finished an evaluation, and checkpoints no longer wait for it (evaluation_seconds)"


class RoleGroup:
    """All roles of a run.

    `on_report` gets every report except `RoleReady`, `RoleFailed` and `RoleEnded`. `on_restart` gets the role, why it
    ended, what its replacement resumes from, and the number of its restarts. `on_move` gets a shard that listens
    elsewhere now, its addresses before and now, and the roles that are restarted for it.
    """

    def __init__(
        self,
        backend: RoleBackend,
        agent: Agent,
        topology: Topology,
        storages: Sequence[ReplayStorage],
        *,
        state: dict[str, Any] | None,
        on_report: Callable[[RoleName, Report], None],
        on_restart: Callable[[RoleName, str, str, int], None],
        on_move: Callable[[RoleName, str, str, Sequence[RoleName]], None],
    ) -> None:
        self.backend, self.topology = backend, topology
        self.members: dict[RoleName, RoleStatus] = {}
        needs, alone = topology.needs, topology.needs.num_learners == 1
        kind: Kind = "bundle" if needs.bundled else "learner"
        self.learners = [RoleName(kind, i, alone and not needs.bundled) for i in range(needs.num_learners)]
        self.parameters = [RoleName("parameter shard", i) for i in range(needs.num_parameter_shards)]
        self.shards = [RoleName("shard", i) for i in range(0 if needs.bundled else topology.num_shards)]
        self.actors = [RoleName("actor", i) for i in range(0 if needs.bundled else topology.num_actors)]
        self._setups = RoleSetups(agent, topology, state)
        self._storages = list(storages)
        """The storage of each server with which its next process starts."""
        self._on_report, self._on_restart, self._on_move = on_report, on_restart, on_move
        self._endpoints: dict[RoleName, ShardEndpoint] = {}
        self._epoch = 0
        self.clock = ListeningClock()
        """Time in which the supervisor polled the roles."""
        self._saved: dict[RoleName, SavedState] = {}
        """The last state of each parameter shard since they were last restarted."""

    @property
    def all_shards(self) -> list[RoleName]:
        """The roles that the others connect to: replay shards and parameter shards."""
        return [*self.shards, *self.parameters]

    @property
    def learning(self) -> list[RoleName]:
        """The roles whose states together have the parameters: learners and parameter shards."""
        return [*self.learners, *self.parameters]

    def start_shards(self) -> None:
        """Start the shards; the other roles need their addresses."""
        for name in self.all_shards:
            self._add(name)

    def start_others(self, *, trains: bool = True) -> None:
        """Start learners, evaluator and actors, once the shards are ready. Unless the run `trains`, none train."""
        self.actors = self.actors if trains else []
        for name in (*self.learners, EVALUATOR, *self.actors):
            self._add(name, held=not trains and name in self.learners)

    def ask(self, name: RoleName, command: Command) -> None:
        """Send a command; if the role is replaced before it answers, the command is sent again to its replacement."""
        member = self.members[name]
        if isinstance(command, Evaluate):
            member.evaluation_sent_at = self.clock.seconds
        if isinstance(command, ResumeUpdates):
            member.unanswered.pop(PauseUpdates, None)
        else:
            member.unanswered[type(command)] = command
        if member.ready is not None:
            self.backend.send(name, command)

    def send_once(self, names: Sequence[RoleName], command: Command) -> None:
        """Send a command that has no answer to those of the roles that are ready; their replacements do not get it."""
        for name in names:
            if self.members[name].ready is not None and not self.members[name].ended:
                self.backend.send(name, command)

    def reported_at(self, name: RoleName) -> float:
        """The time of a role's last report, in seconds of `clock`; 0 before the first."""
        member = self.members.get(name)
        return 0.0 if member is None else member.reported_at

    def all_ready(self) -> bool:
        """Whether every role that was started is ready."""
        return all(member.ready is not None for member in self.members.values())

    @property
    def is_evaluating(self) -> bool:
        """Whether the evaluator has an evaluation to answer."""
        return Evaluate in self.members[EVALUATOR].unanswered

    @property
    def evaluation_seconds(self) -> float:
        """Seconds for which the evaluator has had an evaluation to answer; 0 if it has none."""
        return self.clock.seconds - self.members[EVALUATOR].evaluation_sent_at if self.is_evaluating else 0.0

    def awaited(self) -> dict[RoleName, Absence]:
        """Roles that were started and are not ready, whose process is stopped, or that do not report."""
        awaited, now = {}, self.clock.seconds
        for name, one in self.members.items():
            if one.ended or one.waiting:
                continue
            if one.ready is None:
                awaited[name] = Absence(now - one.started_at, self.backend.why_not_started(name))
                continue
            stopped = self.backend.why_stopped(name)
            one.stopped_since = (now if one.stopped_since is None else one.stopped_since) if stopped else None
            if one.stopped_since is not None:
                awaited[name] = Absence(now - one.stopped_since, stopped, begun=True)
            elif name.kind in REGULAR and now - one.reported_at >= SILENT_SECONDS:
                awaited[name] = Absence(now - one.reported_at, begun=True)
            elif name == EVALUATOR and self.evaluation_seconds > self.topology.run.evaluation_seconds:
                awaited[name] = Absence(self.evaluation_seconds, LATE_EVALUATION, begun=True)
        return awaited

    def kill(self, name: RoleName) -> None:
        """Kill a role that does not stop, or need not be waited for; it reports nothing more and is not restarted."""
        self.backend.kill(name)
        self.members[name].ended, self.members[name].waiting = True, False

    def all_ended(self, names: Sequence[RoleName]) -> bool:
        """Whether roles that were asked to stop have ended."""
        return all(self.members[name].ended for name in names)

    def listen(self, timeout: float) -> None:
        """Handle the reports of the roles; waits at most `timeout` seconds for the first.

        Raises `RoleError` if a role ended in a way that a restart would not fix.
        """
        self.clock.turn()
        generations = {name: member.setup.generation for name, member in self.members.items()}
        for name, report in self.backend.listen(timeout):
            member = self.members[name]
            if member.setup.generation != generations[name]:
                continue  # a late report of a role that was replaced during this call
            member.reported_at = self.clock.seconds
            match report:
                case RoleReady():
                    self._on_ready(name, member, report)
                case RoleFailed():
                    member.failure = report
                case RoleEnded():
                    self._on_died(name, member, report.reason)
                case _:
                    self._clear_answered(member, report)
                    self._remember(name, member, report)
                    self._on_report(name, report)

    def _clear_answered(self, member: RoleStatus, report: Report) -> None:
        """Forget a command that this report answers, by its number. `PauseUpdates` stays until `ResumeUpdates`."""
        if isinstance(report, SavedState | EvaluationDone):
            kind = SaveState if isinstance(report, SavedState) else Evaluate
            order = member.unanswered.get(kind)
            if isinstance(order, SaveState | Evaluate) and order.number == report.number:
                del member.unanswered[kind]
                member.answered = True

    def _add(self, name: RoleName, *, held: bool = False) -> None:
        setup = self._setups.first(name)
        member = self.members[name] = RoleStatus(setup, state=setup.state)
        if held:
            member.unanswered[PauseUpdates] = PauseUpdates(0)
        if self._setups.resumes(name):
            member.state_of, member.table_of = "its checkpoint", "the table of its checkpoint"
        self._start(member)

    def _start(self, member: RoleStatus) -> None:
        name = member.setup.name
        if name.kind == "shard":
            before = self._endpoints.get(name)
            serving = self.backend.serving(name, self._storages[name.index], before)
            member.setup = replace(member.setup, serving=serving)
        if name.kind == "bundle":
            member.setup = replace(member.setup, serving=ShardSettings(storage=self._storages[name.index]))
        member.ready, member.failure, member.moving, member.answered = None, None, False, False
        member.unanswered.pop(FollowParameterShards, None)
        member.waiting = name.kind in ("actor", "learner", "bundle") and not self._shards_ready()
        if member.waiting:
            return  # started once the shards are ready: before that it could only wait for them
        if name.kind in ("actor", "learner", "bundle"):
            endpoints = tuple(self._endpoints[shard] for shard in self.shards)
            member.setup = replace(
                member.setup,
                endpoints=endpoints,
                weights=self.backend.weights,
                parameters=self._parameter_addresses() if self.parameters and name.kind != "actor" else None,
                held=PauseUpdates in member.unanswered,
                lost=self._lost_in_total() if len(self.shards) > 1 else {},
            )
        member.setup = replace(member.setup, epoch=self._epoch)
        member.started_at = self.clock.seconds
        member.stopped_since = None
        self.backend.start(member.setup)

    def _lost_in_total(self) -> dict[str, int]:
        lost: Counter[str] = Counter()
        for storage in self._storages:
            lost.update(storage.lost)
        return dict(lost)

    def lost(self, server: int) -> dict[str, int]:
        """The lost draws of a server's tables, see `ReplayStorage`."""
        return dict(self._storages[server].lost)

    def _shards_ready(self) -> bool:
        return all(self.members[name].ready is not None for name in self.all_shards)

    def _parameter_addresses(self) -> ParameterAddresses:
        return self.backend.parameter_addresses([self.members[name].setup for name in self.parameters])

    def _restart(self, member: RoleStatus) -> None:
        """Restart a role from its last known state."""
        name, generation = member.setup.name, member.setup.generation + 1
        member.setup = replace(
            member.setup, generation=generation, seed=self._setups.seed(name, generation), state=member.state
        )
        self._start(member)

    def _on_ready(self, name: RoleName, member: RoleStatus, ready: RoleReady) -> None:
        member.ready = ready
        if name.kind in ("shard", "bundle"):
            self._on_server_ready(name, member, ready)
        if name.kind == "shard":
            before, now = self._endpoints.get(name), self.backend.endpoint(name, ready)
            self._endpoints[name] = now
            if before is not None and before.address != now.address:
                self._on_move(name, before.address, now.address, self._follow(name))
        if name.kind == "parameter shard" and self._epoch > 0 and self._shards_ready():
            for learner in [one for one in self.learners if one in self.members]:
                one = self.members[learner]
                if one.ready is None and not (one.waiting or one.ended):
                    self._restart_now(learner)
                elif not one.waiting:
                    self.ask(learner, FollowParameterShards(self._parameter_addresses(), self._epoch))
        if name in self.all_shards and self._shards_ready():
            for other in [one for one in self.members.values() if one.waiting]:
                self._start(other)
        if member.setup.held and PauseUpdates not in member.unanswered:
            self.backend.send(name, ResumeUpdates())  # the hold ended while it started
        for command in member.unanswered.values():
            self.backend.send(name, command)

    def _on_server_ready(self, name: RoleName, member: RoleStatus, ready: RoleReady) -> None:
        """Records that the server's journal has its tables from now on, and that its lost draws are known."""
        before = self._storages[name.index]
        journaled = before.journal is not None
        self._storages[name.index] = replace(before, continues=journaled, samples={}, lost=ready.lost)
        if journaled and name.kind == "shard":
            member.state_of = "its journal"
        if journaled and name.kind == "bundle":
            member.table_of = "the table of its journal"

    def _follow(self, shard: RoleName) -> list[RoleName]:
        """Restart the actors and learners that use a shard which has moved; returns their names."""
        followers = []
        for name, member in self.members.items():
            if member.ended or member.waiting or name.kind not in ("actor", "learner"):
                continue
            if name.kind == "actor" and name.index % len(self.shards) != shard.index:
                continue
            followers.append(name)
            if name.kind == "actor":
                self._restart_now(name)
            elif member.ready is None:
                self._restart_now(name)  # it was started with the old address
            else:
                member.moving = True
                # Not in `unanswered`: if it ends now, its replacement uses the new address.
                self.backend.send(name, SaveState(-1))
        return followers

    def _restart_now(self, name: RoleName) -> None:
        """Restart a role at once, with the current addresses."""
        self.backend.kill(name)
        self._restart(self.members[name])

    def _remember(self, name: RoleName, member: RoleStatus, report: Report) -> None:
        match report:
            case SavedState() if name.kind == "shard":
                if report.tables and self._storages[name.index].journal is None:
                    member.state_of = "its checkpoint"
            case SavedState() if name.kind == "parameter shard":
                self._saved[name] = report
                if [one.number for one in self._saved.values()] == [report.number] * len(self.parameters):
                    for one, saved in self._saved.items():
                        self.members[one].state = saved.state
                        self.members[one].state_of = f"version {saved.state['version']:,}"
            case SavedState(_, state) if name.kind == "learner":
                member.state, member.state_of = state, f"update {state['version']:,}"
                if member.moving:
                    self._restart_now(name)
            case SavedState(_, state):
                member.state = {**(member.state or {"actor": None}), "learner": state}
                if name.kind == "bundle" and report.tables and self._storages[name.index].journal is None:
                    member.table_of = "the table of its checkpoint"
            case ActorReport(env_steps, _, state):
                member.state, member.state_of = state, f"step {env_steps:,} of this actor, with a new seed"
            case BundleReport(ActorReport(env_steps, _, state)):
                member.state = {**(member.state or {"learner": None}), "actor": state}
                member.state_of = f"step {env_steps:,} of this actor, with a new seed"

    def _on_died(self, name: RoleName, member: RoleStatus, reason: str) -> None:
        failure = member.failure
        if Stop in member.unanswered:
            member.ended = True
            return
        if failure is not None:
            reason = f"{failure.error}: {failure.text}"
            if not failure.transient:
                raise RoleError(str(name), failure.error, failure.text, failure.traceback)
        short = self.clock.seconds - member.started_at < SHORT_LIFE_SECONDS
        owes = Evaluate in member.unanswered and not member.answered
        member.consecutive_failures = member.consecutive_failures + 1 if short or owes else 0
        if member.consecutive_failures >= SHORT_LIVES:
            how = f"within {SHORT_LIFE_SECONDS:g} s of its start" if short else "without a finished evaluation"
            text = f"it ended {SHORT_LIVES} times {how}, the last time: {reason}"
            raise RoleError(
                str(name), "" if failure is None else failure.error, text, failure.traceback if failure else ""
            )
        if name.kind == "parameter shard":
            self._restart_parameter_shards(name, reason)
            return
        self._restart(member)
        self._on_restart(name, reason, member.resumes_from, member.setup.generation)

    def _restart_parameter_shards(self, gone: RoleName, reason: str) -> None:
        """Restart all parameter shards from their last common state: ranges of different times make no network."""
        self._epoch += 1
        self._saved = {}
        for name in self.parameters:
            member = self.members[name]
            if member.ended:
                continue
            if name != gone:
                self.backend.kill(name)
            self._restart(member)
            why = reason if name == gone else f"{gone} ended, and all parameter shards restart together"
            self._on_restart(name, why, member.state_of, member.setup.generation)
