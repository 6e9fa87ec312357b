"""Interface between agents and runners: records, and the protocols of an agent's parts."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from reverie.agents import checks
from reverie.agents.env_settings import DEFAULTS, EnvSettings
from reverie.agents.log_settings import LogSettings

if TYPE_CHECKING:
    from torch import Tensor, nn

    from reverie.agents.named_parameters import Named


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
    def module(self) -> nn.Module:
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
        """As `forward`, from this state; also returns the next state after the greedy action."""


@dataclass(frozen=True)
class Crash:
    """An environment that raised; the same seed and actions reproduce it."""

    env_id: str
    seed: int
    """The seed of the actor's last full reset (environment i has seed + i), or of the episode of an evaluation."""
    step: int
    """Steps of every environment since that reset."""
    error: str


@dataclass(frozen=True)
class CompilePlan:
    """From which updates on a learner makes them by compiled graphs."""

    begin: int
    """After so many updates it begins to compile."""
    use_from: int | None
    """From this update on all are compiled ones, and wait for the compiler if it has not ended; None: as soon as it
    has, which is at another update in each run."""
    required: bool
    """Whether a learner that cannot compile its updates raises an error. Otherwise it goes on without."""


@dataclass(frozen=True)
class CompileNote:
    """What a learner's compiler has done."""

    update: int
    seconds: float
    found: bool
    """Whether an earlier run had compiled the same updates."""
    reason: str = ""
    """Why there are no compiled updates; empty if there are."""


class EnvironmentCrashedError(RuntimeError):
    """An environment raised: in an actor repeatedly without an episode's end in between, in an evaluation once.

    `.crash` (the last), `.crashes` (their number)
    """

    def __init__(self, crash: Crash, crashes: int) -> None:
        self.crash, self.crashes = crash, crashes
        times = (
            "raised" if crashes == 1 else f"raised {crashes} times without an episode's end in between, the last time"
        )
        super().__init__(f"{crash.env_id} {times} at step {crash.step} from seed {crash.seed}: {crash.error}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.crash, self.crashes)


class Actor(Protocol):
    """Steps its environments and writes their steps through the public client."""

    def act(self) -> int:
        """Take one step in every environment; returns the number of steps of episodes (resets do not count).

        If an environment raises, the environments are made again. Raises `EnvironmentCrashedError` if that repeats.
        """

    def settle(self, timeout: float | None = None) -> None:
        """Wait until the table has accepted all but a bounded rest of the written items, which limits an actor.

        Raises `DeadlineExceededError` with the table's reason; nothing is lost then, and the next call waits again.
        """

    def drain_crashes(self) -> list[Crash]:
        """Environments that raised since the last call."""

    def drain_returns(self) -> list[float]:
        """Undiscounted returns of the episodes that ended since the last call, exploration included."""

    def state_dict(self) -> dict[str, Any]:
        """Counters and random state, without running episodes."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict`, with new episodes. Only for an actor that has not acted yet."""

    def close(self) -> None:
        """Close the environments and the writer."""


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

        `acting` `[P]` is for the actors' network and its targets. `networks` has all networks of another learner of
        this agent by name, as its `state_dict` has them; None if only `acting` is known, and other networks keep their
        initial weights. Raises ValueError, which names network and parameter, for other names and shapes.
        """


class CompilingLearner(Learner, Protocol):
    """A learner that can make its updates by compiled graphs."""

    def compile_updates(self, plan: CompilePlan) -> None:
        """Compile its updates as planned, from now on. Called at most once, before `learn` and `load_state_dict`."""

    def ready(self) -> bool:
        """Whether `learn` need not wait for a compiler. Raises what `learn` raises if compiling failed."""

    def drain_compile_notes(self) -> list[CompileNote]:
        """What was compiled, or why nothing was, since the last call."""

    def stop_compiling(self) -> None:
        """End the compilers that still run."""


class AheadLearner(Learner, Protocol):
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
class RunSettings:
    """The settings of a preset that belong to the run and not to the algorithm."""

    target_return: float | None
    """The mean return at which a greedy evaluation reaches the target; None has no target, and trains to the end."""
    max_env_steps: int
    """Training ends here, whether the target was reached or not."""
    evaluate_every: int
    """Environment steps between two greedy evaluations."""
    threads: int = 1
    """Torch threads of the learner; actors use one."""
    screening_episodes: int = 10
    """Greedy episodes for every point of the learning curve."""
    confirmation_episodes: int = 20
    """Greedy episodes on other seeds, played when the target is reached and at the end: the reported result."""
    checkpoint_every: int = 10_000
    """Environment steps between two checkpoints, if the run keeps any."""
    evaluation_seconds: float = 300.0
    """With several processes: an evaluation that takes longer is reported, and checkpoints no longer wait for it."""
    device: str = "cpu"
    """The device of learner and policies: "cpu", "cuda", or one of several GPUs as "cuda:1"."""
    compile: str = "auto"
    """Whether the learner's updates on the CPU are compiled: "off", "on" (from the second update on, and an error if
    they cannot be), or "auto": while it learns, and without it if that fails. See `reverie.runners.planning`."""
    prefetch: int | None = None
    """Batches that a thread of the engine draws ahead while the learner learns; 0 draws each on demand. None is 2 if
    learner, actors and replay are separate processes and draws delete nothing from the table, else 0: in one process
    learning and acting take turns, so that the same seed gives the same run."""
    gpus_per_actor: float = 0.0
    """The share of a GPU that each actor and the evaluator request for their policies, on Ray with device "cuda", where
    the learner has a GPU of its own. 0: their policies compute on the CPU."""
    replay_disk: str | None = None
    """A folder to which the replay's chunks move when they do not fit in `replay_memory`, see `reverie.Server(disk=)`;
    None keeps all in memory. Each server of the run has a folder of its own in it."""
    replay_memory: int | None = None
    """Bytes of memory for the chunks of all servers of the run together; only with `replay_disk`, and then None is what
    `reverie.Server` takes."""
    replay_disk_bytes: int | None = None
    """Bytes of the files of all servers in `replay_disk` together; None is what the disk has."""
    replay_journal: str | None = None
    """Where the run's servers keep a journal, see `reverie.Journal`, so that a killed run continues with the replay it
    had. "run": with the tables in the folder of its checkpoints; else a folder, in which each run has its own. None,
    and "off" for a resumed run, have no journal: a killed run continues with the tables of its newest checkpoint."""
    replay_journal_sync: str | None = None
    """When the journal waits for the disk: "os", "interval" or "always"; only with `replay_journal`, and then None is
    "interval"."""

    def __post_init__(self) -> None:
        checks.at_least_one(self, "max_env_steps", "evaluate_every", "threads", "checkpoint_every")
        checks.at_least_one(self, "screening_episodes", "confirmation_episodes")
        checks.above_zero(self, "evaluation_seconds")
        if self.prefetch is not None:
            checks.not_negative(self, "prefetch")
        checks.one_of(self, "compile", ("off", "auto", "on"))
        for name in ("replay_memory", "replay_disk_bytes"):
            if getattr(self, name) is not None:
                checks.at_least_one(self, name)
                if self.replay_disk is None:
                    raise ValueError(f"{name} is {getattr(self, name)} and there is no replay_disk: give it a folder")
        if self.replay_journal == "":
            raise ValueError('replay_journal is empty, and must be "run" or a folder')
        if self.replay_journal_sync is not None:
            checks.one_of(self, "replay_journal_sync", ("os", "interval", "always"))
            if self.replay_journal in (None, "off"):
                raise ValueError(
                    f"replay_journal_sync is {self.replay_journal_sync} and there is no replay_journal: give one"
                )
        if self.target_return is not None and math.isnan(self.target_return):
            raise ValueError("target_return is nan, and must be a number: no return reaches it")
        if not re.fullmatch(r"cpu|cuda(:\d+)?", self.device):
            raise ValueError(f'device is {self.device!r}, and must be "cpu", "cuda" or "cuda:N"')
        if not 0 <= self.gpus_per_actor <= 1:
            raise ValueError(f"gpus_per_actor is {self.gpus_per_actor}, and must be a share from 0 to 1")
        if self.gpus_per_actor and self.device == "cpu":
            raise ValueError(f'gpus_per_actor is {self.gpus_per_actor} and device "cpu": ask for device "cuda" too')

    def server_disk(self, seed: int, index: int, num_servers: int) -> dict[str, Any]:
        """The arguments `disk`, `memory_bytes` and `disk_bytes` of the run's server `index`."""
        if self.replay_disk is None:
            return {}
        share = {"memory_bytes": self.replay_memory, "disk_bytes": self.replay_disk_bytes}
        shares = {name: None if size is None else max(1, size // num_servers) for name, size in share.items()}
        # Seeds of a sweep may run at the same time.
        return {"disk": os.path.join(self.replay_disk, f"seed-{seed}-server-{index}"), **shares}

    def reached_by(self, mean_return: float) -> bool:
        """Whether this mean return reaches the target. Without a target none does."""
        return self.target_return is not None and mean_return >= self.target_return


@dataclass(frozen=True)
class Preset:
    """The contents of a preset file: the agent's configuration and the run's settings."""

    config: Any
    run: RunSettings
    path: Path
    log: LogSettings = field(default_factory=LogSettings)
    environment: EnvSettings = DEFAULTS
    note: str = ""
    """For the user: the environment whose settings these are, if it is another one."""


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
    draws_ahead: bool = False
    """Its learners are `AheadLearner`s: a draw deletes nothing from the table, and may be made before it is needed."""
    num_parameter_shards: int = 0
    """Ranges of the parameters that learners push gradients to. 0: the one learner has the parameters itself; otherwise
    the agent has `parameters`."""

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

    def merge(self, other: Stopwatch) -> None:
        """Add the times of another stopwatch."""
        for activity, seconds in other.seconds.items():
            self.add(activity, seconds)


def seed_of(seed: int, *path: int) -> int:
    """A 63-bit seed for one part of a run; it differs between parts, and between runs of different integer seeds."""
    entropy = [abs(seed), *path, *([1] if seed < 0 else [])]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))
