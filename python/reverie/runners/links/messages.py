"""What a supervisor tells the roles of a run, and what they tell it. All of it can be pickled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from reverie.agents.agent import Agent
from reverie.agents.core import Crash, RunSettings, Weights
from reverie.agents.environments import EnvSpec
from reverie.checkpointers import CheckpointerBase
from reverie.client import Client
from reverie.runners.links.parameter_connections import ParameterAddresses
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
    """The only one of its kind in any such run: its index is not told."""

    def __str__(self) -> str:
        return self.kind if self.alone else f"{self.kind} {self.index}"


@dataclass(frozen=True)
class Endpoint:
    """Where a shard is, and what it asks of its clients."""

    address: str
    token: str | None = None
    tls: ClientTLS | None = None

    def client(self, *, patience: float = 10.0, grace: float = 0.05) -> Client:
        """A client that takes the shortest way there is."""
        return Client(self.address, token=self.token, tls=self.tls, patience=patience, grace=grace)


@dataclass(frozen=True)
class Serving:
    """How a shard serves."""

    host: str = "127.0.0.1"
    port: int | None = None
    """Where it is free; else, and for None, any."""
    token: str | None = None
    tls: ServerTLS | None = None
    checkpointer: CheckpointerBase | None = None


@dataclass(frozen=True)
class Setup:
    """All that a role needs to begin, or to begin again."""

    name: RoleName
    agent: Agent
    env: EnvSpec
    config: Any
    run: RunSettings
    num_shards: int
    seed: int
    generation: int = 0
    """How often this role was started again."""
    state: dict[str, Any] | None = None
    """What it goes on from."""
    endpoints: tuple[Endpoint, ...] = ()
    """The shards, for those who need them."""
    serving: Serving | None = None
    """For a shard; of a bundle, whose server nobody else reaches, the checkpointer alone."""
    weights: WeightsChannel | None = None
    """For learners and those who act."""
    parameters: ParameterAddresses | None = None
    """For learners that push their gradients to parameter shards."""
    epoch: int = 0
    """How often the parameter shards were started again, which they are together."""


# From the supervisor.


@dataclass(frozen=True)
class Stop:
    """Tell what is to tell, and end."""


@dataclass(frozen=True)
class Save:
    """Answer with `State`."""

    number: int


@dataclass(frozen=True)
class Hold:
    """For learners: make no update until `GoOn`; answer with `Holding`. A bundle does not act either."""

    number: int


@dataclass(frozen=True)
class GoOn:
    """For learners: the end of `Hold`."""


@dataclass(frozen=True)
class Judge:
    """For the evaluator: play with these weights; answer with `Judged`. `confirm` also where the target was missed."""

    number: int
    weights: Weights
    confirm: bool


@dataclass(frozen=True)
class Follow:
    """For learners: the parameter shards were started again, and are there now."""

    parameters: ParameterAddresses
    epoch: int


Command = Stop | Save | Hold | GoOn | Judge | Follow


# From a role.


@dataclass(frozen=True)
class Ready:
    """It is there. A shard says where it listens; each where it runs."""

    pid: int
    host: str
    address: str | None = None
    items: int = 0
    """In a shard's tables: above 0 where it started from a checkpoint."""


@dataclass(frozen=True)
class Acted:
    """An actor: counts are of all its life, the rest since its last report."""

    env_steps: int
    version: int
    """Of the weights that it acts with; -1 before the first."""
    state: dict[str, Any]
    returns: tuple[float, ...] = ()
    crashes: tuple[Crash, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    waits: str = ""
    """What holds it back, where something does."""


@dataclass(frozen=True)
class Learnt:
    """A learner."""

    version: int
    metrics: dict[str, float]
    seconds: dict[str, float]
    waits: str = ""


@dataclass(frozen=True)
class Served:
    """A shard: its table's figures, and its account of who waits for what."""

    figures: dict[str, float]
    why: str


@dataclass(frozen=True)
class Bundled:
    """A bundle: what its actor, its learner and its shard would have told."""

    acted: Acted
    learnt: Learnt
    served: Served


@dataclass(frozen=True)
class State:
    """The answer to `Save`: the state of a learner or of a parameter shard."""

    number: int
    state: Any = None
    weights: Weights | None = None
    tables: str | None = None
    """Of a shard or bundle: the path of its tables, where they were written; else there is a `problem`."""
    problem: str = ""


@dataclass(frozen=True)
class Holding:
    """The answer to `Hold`: the weights, which stay so where no other learner pushes."""

    number: int
    weights: Weights


@dataclass(frozen=True)
class Judged:
    """The answer to `Judge`."""

    number: int
    screening: Evaluation
    confirmation: Evaluation | None
    seconds: float


@dataclass(frozen=True)
class Failed:
    """An exception ended the role; `transient` where one that is started again may fare better."""

    error: str
    """The name of its class."""
    text: str
    traceback: str
    transient: bool


@dataclass(frozen=True)
class Died:
    """The role is gone, by its own process's account or by nobody's."""

    reason: str


Report = Ready | Acted | Learnt | Served | Bundled | State | Holding | Judged | Failed | Died
