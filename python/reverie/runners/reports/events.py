"""The events of a run, its result, and its errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from reverie._picklable import Picklable
from reverie.agents.agent import Agent
from reverie.agents.core import CompileNote, EnvironmentCrash, Weights
from reverie.agents.policies import TrainedPolicy, read
from reverie.agents.policy_records import TrainingRun
from reverie.runners.planning.topology import Topology
from reverie.runners.reports.evaluation import Evaluation


@dataclass(frozen=True)
class CurvePoint:
    """One greedy evaluation on the learning curve."""

    env_steps: int
    seconds: float
    mean_return: float
    success_rate: float | None = None
    """The share of episodes that succeeded; None where the environment does not report it."""


@dataclass(frozen=True)
class Started:
    """The run is planned and begins."""

    topology: Topology
    env_steps: int = 0
    """Above 0 if it resumes from a checkpoint."""
    curve: tuple[CurvePoint, ...] = ()
    """The curve of that checkpoint."""


@dataclass(frozen=True)
class Progress:
    """The state of the run, reported about ten times a second."""

    env_steps: int
    updates: int
    seconds: float
    training_return: float | None
    """Mean return of the last 20 training episodes, exploration included; None before the first. Not a result."""
    learner: Mapping[str, float]
    """The learner's own metrics."""
    samples_per_insert: float
    """Draws of the tables divided by inserts, so far."""
    policy_lag: float | None = None
    """Updates by which the actors' weights are behind the learner's, mean over the actors; None in one process."""
    waits_for: str = ""
    """Roles that have not started or do not report, for how long, and why; empty in one process."""
    activities: Mapping[str, float] = field(default_factory=dict)
    """Seconds by activity so far, summed over the processes."""
    schedules: Mapping[str, float] = field(default_factory=dict)
    """Numbers that change during the run by its counts, such as epsilon; learning rates are in `learner`."""


@dataclass(frozen=True)
class BestPolicy:
    """The evaluation of a run with the highest mean return so far, of equal ones the latest, and its policy.

    The score is selected, as the best of several noisy ones, and so is above what the policy would reach on average.
    """

    env_steps: int
    mean_return: float
    """The mean return on the screening seeds."""
    path: Path
    """The file with the weights that were evaluated, for `reverie.load_policy`."""


@dataclass(frozen=True)
class Evaluated:
    """A greedy evaluation ended; `confirmation` is set if it reached the target."""

    point: CurvePoint
    confirmation: Evaluation | None
    best: BestPolicy | None = None
    """Set if no evaluation before was better, and the run has a folder: the policy is in its file by now."""


@dataclass(frozen=True)
class Result:
    """The result of a run. `weights` are the last ones; `evaluation` is theirs, on the confirmation seeds.

    It can be pickled if the agent can, whose functions are pickled by name.
    """

    topology: Topology
    env_steps: int
    seconds: float
    confirmed: bool
    """Whether the last weights reached the target twice: on the screening seeds and on the confirmation seeds."""
    evaluation: Evaluation
    curve: tuple[CurvePoint, ...]
    replay: Mapping[str, float]
    """The tables' own figures: inserts, samples, size, bytes, priorities_updated, updates_stale."""
    learner: Mapping[str, float]
    activities: Mapping[str, float]
    """Seconds by activity; the rest of `seconds` is the loop itself."""
    weights: Weights
    agent: Agent
    reference: str = ""
    """The text by which `train` was given the agent, such as `module:agent`; empty for an `Agent`."""
    best: BestPolicy | None = None
    """The best evaluation, whose policy is in a file; None without a folder, or if no policy could be written."""

    @cached_property
    def policy(self) -> TrainedPolicy:
        """The policy with the last weights, as `reverie.load_policy` loads that of a run: `result.policy.save(path)`.

        It belongs to one thread; its sampled actions are those of the seed 0.
        """
        weights = Weights(self.weights.version, self.weights.flat.copy())
        return policy_of(self.topology, self.agent, self.reference, weights, self.env_steps)

    @cached_property
    def best_policy(self) -> TrainedPolicy | None:
        """The policy of the best evaluation, loaded from its file; None if there is no `best`. Raises `PolicyError`."""

        return None if self.best is None else read(self.best.path, self.reference or self.agent, 0)

    @property
    def has_learnt(self) -> bool:
        """Whether the run made an update; also true of an agent whose learner does not count its updates."""
        return self.learner.get("updates") != 0

    def __repr__(self) -> str:
        """The result in one line; topology, weights and figures are fields."""
        run, spec, judged = self.topology.run, self.topology.env, self.evaluation
        target = "" if run.target_return is None else f", confirmed={self.confirmed} (target {run.target_return:g})"
        return (
            f"<Result of {self.agent.name} on {spec.env_id}: {self.env_steps:,} steps, mean return"
            f" {judged.mean_return:.1f} of {len(judged.returns)} episodes{target}>"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("policy", "best_policy")}


def policy_of(topology: Topology, agent: Agent, reference: str, weights: Weights, env_steps: int) -> TrainedPolicy:
    """The policy of a run with these weights, after `env_steps`; its sampled actions are those of the seed 0."""
    policy = agent.make_policy(topology.env, topology.config)
    policy.load(weights)
    return TrainedPolicy(
        agent=agent,
        reference=reference or agent.name,
        spec=topology.env,
        config=topology.config,
        run=TrainingRun(topology.seed, env_steps, weights.version, topology.run.target_return),
        policy=policy,
        path=None,
        rng=np.random.default_rng(0),
    )


@dataclass(frozen=True)
class Saved:
    """A checkpoint was written."""

    env_steps: int
    path: Path
    not_removed: str = ""
    """Why older ones, or tables that no checkpoint needs, were not removed; empty if they were."""
    abandoned: tuple[str, ...] = ()
    """Names of checkpoints that were removed since they were of the run as it went on before, from the older one that
    this run resumed. Only the first checkpoint of such a run has any."""


@dataclass(frozen=True)
class NotSaved:
    """A checkpoint could not be written; older ones are unchanged."""

    env_steps: int
    path: Path
    reason: str
    is_last: bool = False
    """Whether the run ends with this attempt; else it continues, and tries again at the next one."""


@dataclass(frozen=True)
class PolicyNotSaved:
    """The policy of the best evaluation could not be written; the one before it is unchanged."""

    env_steps: int
    path: Path
    reason: str


@dataclass(frozen=True)
class LogNotWritten:
    """A log of the run could not be written, and lacks what it was given; reported once, and the run continues."""

    env_steps: int
    name: str
    """The log's path, or the name of a service."""
    reason: str


@dataclass(frozen=True)
class WeightsNotPublished:
    """There is no room for the learner's weights; repeated while that lasts. Training continues.

    Actors and evaluations use the weights that were published last.
    """

    env_steps: int
    role: str
    reason: str


@dataclass(frozen=True)
class RoleRestarted:
    """A role of a distributed run ended and was restarted."""

    env_steps: int
    role: str
    """Such as "actor 3"."""
    reason: str
    """The reason for its end."""
    resumed_from: str
    """The state that its replacement resumes from, as text."""
    restarts: int
    """The number of restarts of this role in this run."""


@dataclass(frozen=True)
class ShardMoved:
    """A restarted shard listens elsewhere: its port was taken meanwhile, or it is on another node."""

    env_steps: int
    role: str
    before: str
    """The shard's old address."""
    now: str
    followed_by: tuple[str, ...]
    """Roles restarted for it with the new address: actors that write there, and learners with their last state."""


@dataclass(frozen=True)
class RoleAwaited:
    """A role of a distributed run has not started, or does not report; repeated while that lasts.

    In a run in one process: its evaluation takes longer than `evaluation_seconds`; reported once.
    """

    env_steps: int
    role: str
    seconds: float
    """Seconds since it was requested, or since its last report."""
    reason: str
    """The thing that it lacks, or that holds it up, if known; empty if it is only slow."""
    begun: bool = False
    """It had started, and does not report now, e.g. because its process is stopped."""


@dataclass(frozen=True)
class TrainingWaits:
    """A distributed run makes no step and no update, though all of its roles report; repeated while that lasts."""

    env_steps: int
    seconds: float
    """Seconds since the last step or update."""
    reason: str
    """The conditions that the roles wait for."""
    most: float
    """Seconds after which the run ends."""


@dataclass(frozen=True)
class UpdatesCompiled:
    """The learner's updates are compiled, or, if `note` has a reason, are not, and learning goes on without."""

    env_steps: int
    note: CompileNote


@dataclass(frozen=True)
class EnvironmentRestarted:
    """An environment raised; the actor's environments were made again, and the step that failed was not written.

    In an evaluation all episodes are played again.
    """

    env_steps: int
    crash: EnvironmentCrash


@dataclass(frozen=True)
class PageOpened:
    """The page of the run can be read at `url`, until another one is reported or the run ends."""

    env_steps: int
    url: str


@dataclass(frozen=True)
class Finished:
    """The run ended."""

    result: Result


Event = (
    Started
    | Progress
    | Evaluated
    | Saved
    | NotSaved
    | PolicyNotSaved
    | LogNotWritten
    | WeightsNotPublished
    | RoleRestarted
    | ShardMoved
    | RoleAwaited
    | TrainingWaits
    | UpdatesCompiled
    | EnvironmentRestarted
    | PageOpened
    | Finished
)


class StalledError(Picklable, RuntimeError):
    """The table allows neither a batch nor an insert. `.why` is the table's own explanation."""

    def __init__(self, table: str, why: Any) -> None:
        self.why = why
        super().__init__(f"table {table!r} blocks both the learner's samples and the actors' inserts: {why}")


class StoppedError(Picklable, RuntimeError):
    """`should_stop` ended the run.

    `.env_steps`, `.checkpoint` (None if the run keeps none, could not write it, or had no new step), and if that is
    None, `.earlier`: the newest checkpoint before (None if there is none). `.weights` are the last ones, None if a run
    in processes had no new step.
    """

    def __init__(
        self, env_steps: int, checkpoint: Path | None, earlier: Path | None = None, weights: Weights | None = None
    ) -> None:
        self.env_steps, self.checkpoint, self.weights = env_steps, checkpoint, weights
        self._made_by: tuple[Topology, Agent, str] | None = None
        self.earlier = earlier if checkpoint is None else None
        saved = "nothing was saved" if checkpoint is None else f"saved as {checkpoint}"
        saved += "" if self.earlier is None else f"; the newest checkpoint is {self.earlier}"
        super().__init__(f"stopped after {env_steps:,} environment steps; {saved}")

    @cached_property
    def policy(self) -> TrainedPolicy | None:
        """The policy with the last weights, as that of a `Result`, also of a run that saves nothing; None without."""
        if self.weights is None or self._made_by is None:
            return None
        weights = Weights(self.weights.version, self.weights.flat.copy())
        return policy_of(*self._made_by, weights, self.env_steps)

    def complete(self, topology: Topology, agent: Agent, reference: str) -> None:
        """Name the run, whose `policy` is at hand then."""
        self._made_by = topology, agent, reference
        if self.checkpoint is None and self.weights is not None and self.env_steps > 0:
            self.add_note("the last weights are in its `policy`")


class RoleMissingError(Picklable, TimeoutError):
    """A role of a distributed run could not be placed in time. `.role`, `.reason` (what it lacks), `.checkpoint`"""

    def __init__(self, role: str, seconds: float, reason: str, checkpoint: Path | None) -> None:
        self.role, self.reason, self.checkpoint = role, reason, checkpoint
        then = "start again" if checkpoint is None else f"continue from {checkpoint} (--resume)"
        super().__init__(
            f"{role} did not start within {seconds:.0f} s: it {reason}; add what the cluster lacks and {then}, or"
            " ask for less (--device cpu, fewer actors)"
        )


class RoleError(Picklable, RuntimeError):
    """A role of a distributed run ended in a way that a restart would not fix.

    `.role` (such as "actor 3"), `.error` (the name of the exception's class; empty if there was none), `.traceback`
    (of the role's own process; empty if there was none). A note repeats the traceback, so that Python prints it.
    """

    def __init__(self, role: str, error: str, text: str, traceback: str) -> None:
        self.role, self.error, self.traceback = role, error, traceback
        super().__init__(f"{role}: {error + ': ' if error else ''}{text}")
        if traceback:
            self.add_note(f"in the process of {role}:\n{traceback.rstrip()}")
