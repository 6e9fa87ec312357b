"""Interface between agents and runners: records, and the protocols of an agent's parts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypedDict

import numpy as np
from numpy.typing import NDArray

from reverie._late_types import late
from reverie._picklable import Picklable
from reverie.agents.env_settings import DEFAULTS, EnvSettings
from reverie.agents.log_settings import LogSettings
from reverie.agents.run_settings import RunSettings as RunSettings

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from reverie.agents.named_parameters import Named
else:
    Tensor = late("torch", "Tensor")
    Module = late("torch.nn", "Module")
    Named = late("reverie.agents.named_parameters", "Named")


class Weights(NamedTuple):
    """The parameters of a network at one version; `flat` is float32 `[P]` and owned by the receiver."""

    version: int
    flat: NDArray[np.float32]


class WeightSource(Protocol):
    """A source from which actors pull weights by version."""

    def latest(self, newer_than: int) -> Weights | None:
        """The newest weights, or None if there are none newer than version `newer_than`. Does not block."""


class ActingSettings(Protocol):
    """The settings that an actor needs from its agent."""

    @property
    def num_actors(self) -> int:
        """The number of actors of the run."""

    @property
    def envs_per_actor(self) -> int:
        """The number of environments of each actor."""


class Policy(Protocol):
    """Computes actions: greedy ones for the evaluator, both kinds for `reverie.load_policy`."""

    @property
    def module(self) -> Module:
        """The network that computes with the loaded weights; its parameters, in their order, are the weights."""

    def load(self, weights: Weights) -> None:
        """Load weights. Raises ValueError for an array of another length."""

    def __call__(self, observations: NDArray[Any]) -> NDArray[Any]:
        """Greedy actions for observations `[N, ...]`, as environments take them: int64 `[N]` or float32 `[N, A]`."""

    def sample(self, observations: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
        """Actions with the exploration of an actor at the end of training, in the form of the greedy ones."""

    def forward(self, observations: Tensor) -> Tensor:
        """The greedy choice as PyTorch operations, for export, in float32.

        For discrete actions scores `[N, num_actions]`, of which the greatest is the action; for continuous ones the
        actions `[N, A]`, as environments take them.
        """


class RecurrentPolicy(Policy, Protocol):
    """A policy with a state in each episode, float32 `[N, S]`. Methods without one compute the first step of episodes.

    Its attribute `recurrent` is True; other policies need none.
    """

    recurrent: bool

    def initial_state(self, count: int) -> NDArray[np.float32]:
        """The state `[count, S]` at the beginning of episodes."""

    def step(
        self, observations: NDArray[Any], state: NDArray[np.float32], rng: np.random.Generator | None = None
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Actions for observations `[N, ...]`, greedy ones or with `rng` as `sample` draws them, and the next state."""

    def forward_with(self, observations: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """The output of `forward` from this state, and the next state after the greedy action."""


@dataclass(frozen=True)
class EnvironmentCrash:
    """An environment that raised; the same seed and actions reproduce it."""

    env_id: str
    seed: int
    """The seed of the actor's last full reset (environment i has seed + i), or of the episode of an evaluation."""
    step: int
    """Steps of every environment since that reset."""
    error: str


@dataclass(frozen=True)
class CompilePlan:
    """The updates that a learner makes by compiled graphs.

    If an update of the agent is several gradient steps, gradient steps count: an update is compiled once the updates
    before it have made that number.
    """

    begin: int
    """The number of updates after which it begins to compile."""
    use_from: int | None
    """All updates from this one on are compiled ones, and wait for the compiler if it has not ended. None: as soon as
    it has, which is at another update in each run."""
    required: bool
    """Whether a learner that cannot compile its updates raises an error. Otherwise it goes on without."""


@dataclass(frozen=True)
class CompileNote:
    """A note about the work of a learner's compiler."""

    update: int
    seconds: float
    found: bool
    """Whether an earlier run had compiled the same updates."""
    reason: str = ""
    """Why there are no compiled updates; empty if there are."""


class EnvironmentCrashedError(Picklable, RuntimeError):
    """An environment raised: in an actor repeatedly without an episode's end in between, in an evaluation once.

    `.crash` (the last), `.crashes` (their number), `.max_env_restarts` (the setting, if it ended the run)
    """

    def __init__(self, crash: EnvironmentCrash, crashes: int, *, max_env_restarts: int | None = None) -> None:
        self.crash, self.crashes, self.max_env_restarts = crash, crashes, max_env_restarts
        super().__init__(self._text())

    def _text(self) -> str:
        crash, crashes = self.crash, self.crashes
        between = "" if self.max_env_restarts is not None else " without an episode's end in between"
        times = "raised" if crashes == 1 else f"raised {crashes} times{between}, the last time"
        bound = "" if self.max_env_restarts is None else f" (max_env_restarts is {self.max_env_restarts})"
        return f"{crash.env_id} {times} at step {crash.step} from seed {crash.seed}: {crash.error}{bound}"


class Actor(Protocol):
    """Steps its environments and writes their steps through the public client."""

    def act(self) -> int:
        """Take one step in every environment; returns the number of steps of episodes (resets do not count).

        If an environment raises, the environments are made again. Raises `EnvironmentCrashedError` if that repeats, or
        more often than `EnvSettings.max_env_restarts`, and at once if a reward or an observation is not finite; and
        `UnsupportedEnvironmentError` if the first reset or step does not follow Gymnasium's interface.
        """

    def settle(self, timeout: float | None = None) -> None:
        """Wait until the table has accepted all but a bounded rest of the written items, which limits an actor.

        Raises `DeadlineExceededError` with the table's reason; nothing is lost then, and the next call waits again.
        """

    def drain_crashes(self) -> list[EnvironmentCrash]:
        """Environments that raised since the last call."""

    def drain_returns(self) -> list[float]:
        """Undiscounted returns of the episodes that ended since the last call, exploration included."""

    def state_dict(self) -> dict[str, Any]:
        """Counters and random state, without running episodes."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict`, with new episodes. Only for an actor that has not acted yet."""

    def close(self) -> None:
        """Close the environments and the writer."""


class OnPolicyActor(Actor, Protocol):
    """An actor that makes one unroll with each version of the weights; its runner asks before each `act`."""

    def awaits_weights(self) -> bool:
        """Whether it is not to act until there are newer weights, which its last unroll is for. Does not block."""

    def act_again(self) -> None:
        """Let it make another unroll with the same weights: some of the batch that it waits for were lost."""


class Learner(WeightSource, Protocol):
    """Draws batches, improves the weights, and writes new priorities back."""

    version: int
    """The number of updates so far, which is the version of the weights."""

    def learn(self) -> None:
        """Make one update from one batch, drawn with `timeout=0`: the table must be able to give one."""

    def metrics(self) -> dict[str, float]:
        """Counters and figures, by name."""

    def state_dict(self) -> dict[str, Any]:
        """A copy of everything that the next update depends on, except the tables and the settings.

        Its `networks` has each network as a dict of arrays by the names of its parameters.
        """

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict`. Settings stay those that the learner was made with: a resumed run may change them.

        Raises `reverie.agents.named_parameters.ParameterError` for parameters with other names and shapes.
        """

    def warm_start(self, acting: NDArray[np.float32], networks: Mapping[str, Named] | None) -> None:
        """Begin with these weights; optimisers, counters and random state stay new. Only before the first update.

        `acting` `[P]` is for the actors' network and its targets. `networks` has all networks of another learner
        by name, as its `state_dict` has them, and maybe more, if it is of another agent; None if only `acting` is
        known, and other networks keep their initial weights, with the running statistics of `acting`. Raises
        ValueError, which names network and parameter, for other names and shapes.
        """


class CompilingLearner(Learner, Protocol):
    """A learner that can make its updates by compiled graphs."""

    def compile_updates(self, plan: CompilePlan) -> None:
        """Compile its updates as planned, from now on. Called at most once, before `learn` and `load_state_dict`."""

    def ready(self) -> bool:
        """Whether `learn` need not wait for a compiler. Raises what `learn` raises if compiling failed."""

    def drain_compile_notes(self) -> list[CompileNote]:
        """Notes about updates that were compiled, or could not be, since the last call."""

    def stop_compiling(self) -> None:
        """End the compilers that still run."""


class PrefetchingLearner(Learner, Protocol):
    """A learner that can draw batches ahead while it learns."""

    def draw_ahead(self, ahead: int) -> None:
        """Draw up to `ahead` batches ahead from now on.

        `state_dict` contains those that were not learnt from, as draws whose items are read again.
        """

    def fetch(self) -> bool:
        """Whether a batch is ready to learn from. Does not block."""

    def stop_drawing(self) -> None:
        """Stop drawing until `fetch` or `learn`. Batches that are drawn already are kept for them."""


@dataclass(frozen=True)
class Preset:
    """The contents of a preset file: the agent's configuration and the run's settings."""

    config: Any
    run: RunSettings
    path: Path
    log: LogSettings = field(default_factory=LogSettings)
    environment: EnvSettings = DEFAULTS
    note: str = ""
    """A note for the user: the environment whose settings these are, if it is another one."""


@dataclass(frozen=True)
class TableNeeds:
    """The properties of an agent's tables that the runner needs."""

    name: str
    batch_size: int
    """Items that one `learn` draws."""
    inserts_per_act: int
    """The most items that one `act` inserts."""
    num_learners: int = 1
    """The number of learners. If one process has them all, one `learn` is the turn of one of them."""
    bundled: bool = False
    """Actor i writes into a table of its own, `name-i`, and only learner i draws from it."""
    publish_every_update: bool = False
    """Publish the weights of every update, for agents that learn from a queue, whose unrolls should be made by the
    newest weights. Otherwise weights are published at intervals."""
    on_policy: bool = False
    """Its actors are `OnPolicyActor`s: a batch has unrolls of the newest weights only, one of each environment."""
    draws_ahead: bool = False
    """Its learners are `PrefetchingLearner`s: a draw deletes nothing from the table, and may be made early."""
    num_parameter_shards: int = 0
    """Ranges of the parameters that learners push gradients to. 0: the one learner has the parameters itself; otherwise
    the agent has `parameters`."""
    observations: int = 2
    """Observations of one item, for the memory of batches: two of a transition, more of a sequence."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of all tables."""
        return tuple(self.table_of(i) for i in range(self.num_learners)) if self.bundled else (self.name,)

    def table_of(self, actor: int) -> str:
        """Name of the table that an actor writes into."""
        return f"{self.name}-{actor}" if self.bundled else self.name


class ParameterShard(Protocol):
    """A range of the parameters, which answers learners' questions. Not thread-safe."""

    version: int
    """The number of updates so far."""

    def answer(self, question: Any) -> Any:
        """Process a learner's question. The agent defines questions and answers; both can be pickled."""

    def state_dict(self) -> dict[str, Any]:
        """A copy of everything that the next answer depends on."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict`."""


class Stopwatch:
    """Seconds spent by activity. Not thread-safe: each thread has its own, and `merge` adds them up."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, activity: str) -> Iterator[None]:
        """Time the block of `with watch(activity)`."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.add(activity, time.perf_counter() - began)

    def add(self, activity: str, seconds: float) -> None:
        """Count `seconds` for `activity`."""
        self.seconds[activity] = self.seconds.get(activity, 0.0) + seconds


class ActorArguments(TypedDict):
    """The keyword arguments in which the actors of a run differ."""

    index: int
    """The actor's number, from 0 to `num_actors` - 1."""
    seed: int
    watch: Stopwatch
    """Counts the seconds of its activities."""


def seed_of(seed: int, *path: int) -> int:
    """A 63-bit seed for one part of a run; it differs between parts, and between runs of different integer seeds."""
    entropy = [abs(seed), *path, *([1] if seed < 0 else [])]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))
