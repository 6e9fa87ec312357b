"""What a run tells while it goes on, and what it gives at its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reverie.agents.core import Crash, Weights
from reverie.runners.planning.topology import Topology
from reverie.runners.reports.evaluation import Evaluation


@dataclass(frozen=True)
class CurvePoint:
    """One greedy evaluation on the learning curve."""

    env_steps: int
    seconds: float
    mean_return: float


@dataclass(frozen=True)
class Started:
    """The run is laid out and begins."""

    topology: Topology
    env_steps: int = 0
    """Above 0 where it goes on from a checkpoint."""
    curve: tuple[CurvePoint, ...] = ()
    """What that checkpoint had of it."""


@dataclass(frozen=True)
class Progress:
    """A few times a second."""

    env_steps: int
    updates: int
    seconds: float
    training_return: float | None
    """Mean of the last 20 training episodes, exploration included; None before the first ended. Not a result."""
    learner: Mapping[str, float]
    """The learner's own metrics."""
    samples_per_insert: float
    """Of the table so far: draws by inserts."""
    policy_lag: float | None = None
    """Updates between the learner's weights and those that act, mean over the actors; None in one process."""
    waits_for: str = ""
    """Roles that are not there or tell nothing, for how long, and why; empty in one process."""


@dataclass(frozen=True)
class Evaluated:
    """A greedy evaluation ended; `confirmation` is there where the first one reached the target."""

    point: CurvePoint
    confirmation: Evaluation | None


@dataclass(frozen=True)
class Result:
    """What a run gives. The weights are the last ones, and `evaluation` is of them, on the confirmation seeds."""

    topology: Topology
    env_steps: int
    seconds: float
    confirmed: bool
    """Whether the last weights reached the target twice: on the screening seeds and on the confirmation seeds."""
    evaluation: Evaluation
    curve: tuple[CurvePoint, ...]
    replay: Mapping[str, float]
    """The table's own figures: inserts, samples, size, bytes, priorities_updated, updates_stale."""
    learner: Mapping[str, float]
    activities: Mapping[str, float]
    """Seconds by activity; what is left of `seconds` is the loop itself."""
    weights: Weights


@dataclass(frozen=True)
class Saved:
    """A checkpoint was written."""

    env_steps: int
    path: Path


@dataclass(frozen=True)
class NotSaved:
    """A checkpoint could not be written; those before it are as they were, and training goes on."""

    env_steps: int
    path: Path
    reason: str


@dataclass(frozen=True)
class RoleRestarted:
    """A part of a distributed run had ended and was started again."""

    env_steps: int
    role: str
    """Such as "actor 3"."""
    reason: str
    """What ended it."""
    went_on_from: str
    """What the new one goes on from."""
    restarts: int
    """Of this role, in this run."""


@dataclass(frozen=True)
class ShardMoved:
    """A shard that was started again listens elsewhere: its port was taken meanwhile, or it is on another node."""

    env_steps: int
    role: str
    before: str
    """The address that it had."""
    now: str
    followed_by: tuple[str, ...]
    """Who begins again for it, at the new address: actors that write there, and learners with their last state."""


@dataclass(frozen=True)
class RoleAwaited:
    """A part of a distributed run is not there, or tells nothing; told again while that lasts."""

    env_steps: int
    role: str
    seconds: float
    """Since it was asked for, or told anything last."""
    reason: str
    """What it lacks, or what holds it, where that is known; empty where it only takes long."""
    begun: bool = False
    """It was there, and tells nothing now, as one whose process is stopped."""


@dataclass(frozen=True)
class EnvironmentRestarted:
    """An environment raised; the actor's environments were made anew, and the step that failed was not written.

    In an evaluation its episodes are played anew.
    """

    env_steps: int
    crash: Crash


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
    | RoleRestarted
    | ShardMoved
    | RoleAwaited
    | EnvironmentRestarted
    | Finished
)


class StalledError(RuntimeError):
    """The table lets nobody go on: neither a batch nor an insert. `.why` is the table's own account."""

    def __init__(self, table: str, why: Any) -> None:
        self.why = why
        super().__init__(f"table {table!r} lets neither the learner draw nor an actor insert: {why}")


class StoppedError(RuntimeError):
    """`should_stop` ended it. `.env_steps`, `.checkpoint` (None where the run keeps none, or could not write it)."""

    def __init__(self, env_steps: int, checkpoint: Path | None) -> None:
        self.env_steps, self.checkpoint = env_steps, checkpoint
        saved = "nothing was saved" if checkpoint is None else f"saved as {checkpoint}"
        super().__init__(f"stopped after {env_steps:,} environment steps; {saved}")


class RoleMissingError(TimeoutError):
    """A part of a distributed run could not be placed for too long. `.role`, `.reason` (what it lacks)"""

    def __init__(self, role: str, seconds: float, reason: str, checkpoint: Path | None) -> None:
        self.role, self.reason, self.checkpoint = role, reason, checkpoint
        go_on = "begin again" if checkpoint is None else f"go on from {checkpoint} (--resume)"
        super().__init__(
            f"{role} was waited for for {seconds:.0f} s: it {reason}; give the cluster what it lacks and {go_on}, or"
            " ask for less (--device cpu, fewer actors)"
        )


class RoleError(RuntimeError):
    """A part of a distributed run ended in a way that starting it again would not mend.

    `.role` (such as "actor 3"), `.error` (the name of the exception's class; empty where there was none), `.traceback`
    (of the role's own process).
    """

    def __init__(self, role: str, error: str, text: str, traceback: str) -> None:
        self.role, self.error, self.traceback = role, error, traceback
        super().__init__(f"{role}: {error + ': ' if error else ''}{text}")
