"""Messages between the supervisor of a run and its roles: commands and reports. All of them can be pickled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from reverie.agents.agent import Agent
from reverie.agents.core import CompileNote, CompilePlan, EnvironmentCrash, RunSettings, Weights
from reverie.agents.environments import EnvSpec
from reverie.client import Client
from reverie.pages import Page
from reverie.runners.links.parameter_connections import ParameterAddresses
from reverie.runners.links.replay_storage import ReplayStorage
from reverie.runners.links.weights import WeightsChannel
from reverie.runners.reports.evaluation import Evaluation
from reverie.tls import ClientTLS, ServerTLS

Kind = Literal["shard", "parameter shard", "learner", "bundle", "evaluator", "actor"]


@dataclass(frozen=True)
class RoleName:
    """One part of a run."""

    kind: Kind
    index: int = 0
    alone: bool = False
    """The only one of its kind in any such run: its name has no index."""

    def __str__(self) -> str:
        return self.kind if self.alone else f"{self.kind} {self.index}"


@dataclass(frozen=True)
class ShardEndpoint:
    """The address of a shard, and the credentials that its clients need."""

    address: str
    token: str | None = None
    tls: ClientTLS | None = None

    def client(self, *, patience: float = 10.0, grace: float = 0.05) -> Client:
        """A client that uses the fastest available transport."""
        return Client(self.address, token=self.token, tls=self.tls, patience=patience, grace=grace)


@dataclass(frozen=True)
class ShardSettings:
    """The settings of a shard's server."""

    host: str = "127.0.0.1"
    port: int | None = None
    """The port to use if it is free; otherwise, and for None, any free port."""
    token: str | None = None
    tls: ServerTLS | None = None
    storage: ReplayStorage = field(default_factory=ReplayStorage)
    """The place in which its tables are kept."""
    page: Page | None = None
    """The page of the run, which this server shows; None for other servers."""


@dataclass(frozen=True)
class RoleSetup:
    """Everything that a role needs to start, or to restart."""

    name: RoleName
    agent: Agent
    env: EnvSpec
    config: Any
    run: RunSettings
    num_shards: int
    seed: int
    run_name: str = ""
    """`Topology.name`."""
    generation: int = 0
    """The number of times that this role was restarted."""
    state: dict[str, Any] | None = None
    """The state that it resumes from."""
    endpoints: tuple[ShardEndpoint, ...] = ()
    """The shards, for the roles that use them."""
    serving: ShardSettings | None = None
    """The server of a shard. A bundle, whose server no other role reaches, has only the storage and the page."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """Lost draws of each table, for learners that draw from several shards; see `ReplayStorage`."""
    weights: WeightsChannel | None = None
    """The channel of weights, for learners and roles that act."""
    parameters: ParameterAddresses | None = None
    """Addresses of the parameter shards, for learners that push their gradients to them."""
    epoch: int = 0
    """The number of times that the parameter shards were restarted (always all together)."""
    held: bool = False
    """Whether a learner starts as after `PauseUpdates`; one that is restarted during a pause makes no update."""
    compiling: CompilePlan | None = None
    """The plan of the updates that a learner compiles."""
    reports_shards: bool = False
    """Whether a learner reports its view of the shards, for the run's page."""


# From the supervisor.


@dataclass(frozen=True)
class Stop:
    """Send the last report, and end."""


@dataclass(frozen=True)
class SaveState:
    """Answer with `SavedState`."""

    number: int
    tables: bool = True
    """Whether a bundle also writes its tables, if the run keeps checkpoints."""


@dataclass(frozen=True)
class PauseUpdates:
    """A learner makes no update until `ResumeUpdates`; the answer is `UpdatesPaused`. A bundle does not act either."""

    number: int


@dataclass(frozen=True)
class ResumeUpdates:
    """A learner makes updates again."""


@dataclass(frozen=True)
class ActAgain:
    """An actor that awaits newer weights acts with the same ones. It is not answered."""


@dataclass(frozen=True)
class Evaluate:
    """The evaluator plays with these weights, and answers with `EvaluationDone`."""

    number: int
    weights: Weights
    confirm: bool
    """Play the confirmation episodes also below the target."""


@dataclass(frozen=True)
class FollowParameterShards:
    """A learner connects to the new addresses of the parameter shards, which were restarted."""

    parameters: ParameterAddresses
    epoch: int


@dataclass(frozen=True)
class ShowFigures:
    """A shard or bundle with the page of the run shows these figures. It is not answered."""

    figures: dict[str, Any]


Command = Stop | SaveState | PauseUpdates | ResumeUpdates | ActAgain | Evaluate | FollowParameterShards | ShowFigures


# From a role.


@dataclass(frozen=True)
class RoleReady:
    """The role is ready. A shard reports its address; every role its process and host."""

    pid: int
    host: str
    address: str | None = None
    items: int = 0
    """Items in a shard's tables: above 0 if it started from a checkpoint."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """Lost draws of a server's tables, see `ReplayStorage`."""


@dataclass(frozen=True)
class ActorReport:
    """Report of an actor. Counts cover its whole run; returns, crashes and seconds the time since its last report."""

    env_steps: int
    version: int
    """Version of the weights that it acts with; -1 before the first."""
    state: dict[str, Any]
    returns: tuple[float, ...] = ()
    crashes: tuple[EnvironmentCrash, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    waits: str = ""
    """The reason for its wait; empty if it does not wait."""
    awaits_weights: bool = False
    """Whether it acts no more until there are newer weights."""


@dataclass(frozen=True)
class LearnerReport:
    """Report of a learner."""

    version: int
    metrics: dict[str, float]
    seconds: dict[str, float]
    waits: str = ""
    compiled: tuple[CompileNote, ...] = ()
    """Notes of its compiler since the last report."""
    shards: list[dict[str, Any]] | None = None
    """The shards as the learner sees them; None if they are not shown, or were reported less than a second ago."""
    awaits_batch: bool = False
    """Whether it makes no update until the table can give a batch."""
    unpublished: str = ""
    """Why its newest weights are not published, now and then while that lasts; else empty."""


@dataclass(frozen=True)
class ShardReport:
    """Report of a shard: its tables' figures, why requests wait, and the address of the run's page if it has that."""

    figures: dict[str, float]
    why: str
    page: str = ""


@dataclass(frozen=True)
class BundleReport:
    """Report of a bundle: the reports of its actor, learner and tables."""

    acted: ActorReport
    learnt: LearnerReport
    served: ShardReport


@dataclass(frozen=True)
class SavedState:
    """The answer to `SaveState`: the state of a learner or parameter shard, and the path of a server's tables."""

    number: int
    state: Any = None
    weights: Weights | None = None
    tables: str | None = None
    """Path of the tables of a shard or bundle, if they were written; else `problem` gives the reason."""
    problem: str = ""
    samples: Mapping[str, int] = field(default_factory=dict)
    """Draws that a server's tables have counted."""
    epoch: int = 0
    """The number of earlier restarts of the parameter shards; states of different epochs do not fit together."""

    def with_tables_of(self, other: SavedState) -> SavedState:
        """This state with the tables of another answer of the same role."""
        return replace(self, tables=other.tables, problem=other.problem, samples=other.samples)


@dataclass(frozen=True)
class UpdatesPaused:
    """The answer to `PauseUpdates`: the learner makes no update any more."""

    number: int


@dataclass(frozen=True)
class EvaluationDone:
    """The answer to `Evaluate`."""

    number: int
    screening: Evaluation
    confirmation: Evaluation | None
    seconds: float


@dataclass(frozen=True)
class RoleFailed:
    """An exception ended the role; `transient` if a restart may help."""

    error: str
    """The name of its class."""
    text: str
    traceback: str
    transient: bool


@dataclass(frozen=True)
class RoleEnded:
    """The role's process has ended."""

    reason: str


Report = (
    RoleReady
    | ActorReport
    | LearnerReport
    | ShardReport
    | BundleReport
    | SavedState
    | UpdatesPaused
    | EvaluationDone
    | RoleFailed
    | RoleEnded
)
