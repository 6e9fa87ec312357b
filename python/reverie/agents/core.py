"""What every agent shares with the runners: a few records, and the protocols of an agent's parts."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from reverie.agents import checks


class Weights(NamedTuple):
    """The parameters of a network at one version; `flat` is float32 `[P]` and belongs to whoever receives it."""

    version: int
    flat: NDArray[np.float32]


class WeightSource(Protocol):
    """Where actors pull weights from, by version."""

    def latest(self, newer_than: int) -> Weights | None:
        """The newest weights, or None when there are none newer than version `newer_than`. Does not block."""


class ActingSettings(Protocol):
    """What an actor asks of its agent's settings."""

    @property
    def num_actors(self) -> int:
        """Actors of the run."""

    @property
    def envs_per_actor(self) -> int:
        """Environments of each."""


class Policy(Protocol):
    """Greedy actions, for the evaluator."""

    def load(self, weights: Weights) -> None:
        """Take over weights; an array of another length is a ValueError."""

    def __call__(self, observations: NDArray[Any]) -> NDArray[Any]:
        """Actions for observations `[N, ...]`, as environments take them: int64 `[N]` or float32 `[N, A]`."""


@dataclass(frozen=True)
class Crash:
    """An environment that raised; with the seed and the actions, the same happens again."""

    env_id: str
    seed: int
    """Of the first reset of the actor's environments: environment i has seed + i. In an evaluation of the episode."""
    step: int
    """Steps of every environment since then."""
    error: str


class EnvironmentCrashedError(RuntimeError):
    """An environment raised: of an actor again and again, and no episode ended in between; of an evaluation once.

    `.crash` (the last), `.crashes`
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
    """Steps its environments and writes what happened through the public client."""

    def act(self) -> int:
        """One step of every environment; how many of them were steps of an episode (a reset is none).

        An environment that raises is made anew; one that does so again and again is an `EnvironmentCrashedError`.
        """

    def settle(self, timeout: float | None = None) -> None:
        """Wait until the table has taken what was written, but for a bounded rest: what holds an actor back.

        Raises `DeadlineExceededError` with the table's reason; nothing is lost then, and the next call waits on.
        """

    def drain_crashes(self) -> list[Crash]:
        """Environments that raised since the last call, and were made anew."""

    def drain_returns(self) -> list[float]:
        """Undiscounted returns of the episodes that ended since the last call, exploration included."""

    def state_dict(self) -> dict[str, Any]:
        """Counters and random state; the episodes that run are not in it."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave, with new episodes. For an actor that has not acted yet."""

    def close(self) -> None:
        """Close the environments and the writer."""


class Learner(WeightSource, Protocol):
    """Draws batches, improves the weights, and writes new priorities back."""

    version: int
    """Updates so far; the version of the weights."""

    def learn(self) -> None:
        """One update from one batch. The table must be able to give one: it is drawn with `timeout=0`."""

    def metrics(self) -> dict[str, float]:
        """Its counters and figures, by name."""

    def state_dict(self) -> dict[str, Any]:
        """A copy of everything that the next update depends on, the tables apart."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave."""


class AheadLearner(Learner, Protocol):
    """A learner that can have batches drawn while it learns from those before."""

    def draw_ahead(self, ahead: int) -> None:
        """From now on up to `ahead` batches are drawn before they are asked for.

        Those that were not learnt from are in `state_dict`, as draws whose items are read again.
        """

    def fetch(self) -> bool:
        """Whether a batch is there to learn from. Does not wait for one."""

    def stop_drawing(self) -> None:
        """Draw nothing until `fetch` or `learn`. What was drawn is kept for them."""


@dataclass(frozen=True)
class RunSettings:
    """The half of a preset that is the run's and not the algorithm's."""

    target_return: float
    """A greedy evaluation counts as reached at this mean return."""
    max_env_steps: int
    """Training ends here, reached or not."""
    evaluate_every: int
    """Environment steps between two greedy evaluations."""
    threads: int = 1
    """Torch threads of the learner; actors use one."""
    screening_episodes: int = 10
    """Greedy episodes for every point of the learning curve."""
    confirmation_episodes: int = 20
    """Greedy episodes on other seeds, once the target is reached and at the end: what is reported."""
    checkpoint_every: int = 10_000
    """Environment steps between two checkpoints, where the run keeps any."""
    evaluation_seconds: float = 300.0
    """With roles apart: an evaluation that takes longer is reported, and holds up no checkpoint any longer."""
    device: str = "cpu"
    """Where learner and policies compute: "cpu", "cuda", or one of several as "cuda:1"."""
    prefetch: int | None = None
    """Batches that a thread of the engine draws while the learner learns from those before; 0: each is drawn when it is
    asked for. Left out it is 2 where learner, actors and replay are apart and draws take nothing out of the table, else
    0: in one process learning and acting take turns, so that the same seed gives the same run."""
    gpus_per_actor: float = 0.0
    """On Ray with device "cuda", where the learner has a GPU of its own: the share of one that each actor and the
    evaluator ask for, whose policies compute there then. 0: their policies compute on the CPU."""

    def __post_init__(self) -> None:
        checks.at_least_one(self, "max_env_steps", "evaluate_every", "threads", "checkpoint_every")
        checks.at_least_one(self, "screening_episodes", "confirmation_episodes")
        checks.above_zero(self, "evaluation_seconds")
        if self.prefetch is not None:
            checks.not_negative(self, "prefetch")
        if math.isnan(self.target_return):
            raise ValueError("target_return is nan, and must be a number: no return reaches it")
        if not re.fullmatch(r"cpu|cuda(:\d+)?", self.device):
            raise ValueError(f'device is {self.device!r}, and must be "cpu", "cuda" or "cuda:N"')
        if not 0 <= self.gpus_per_actor <= 1:
            raise ValueError(f"gpus_per_actor is {self.gpus_per_actor}, and must be a share from 0 to 1")
        if self.gpus_per_actor and self.device == "cpu":
            raise ValueError(f'gpus_per_actor is {self.gpus_per_actor} and device "cpu": ask for device "cuda" too')


@dataclass(frozen=True)
class Preset:
    """A preset file, read: the agent's configuration and the run's settings."""

    config: Any
    run: RunSettings
    path: Path


@dataclass(frozen=True)
class TableNeeds:
    """What the runner must know of the table, or the tables, that an agent learns from."""

    name: str
    batch_size: int
    """Items that one `learn` draws."""
    inserts_per_act: int
    """The most items that one `act` inserts."""
    num_learners: int = 1
    """Learners that draw. Where one process has them all, one `learn` is the turn of one of them."""
    bundled: bool = False
    """Actor i writes into a table of its own, `name-i`, and learner i draws from that one alone."""
    publish_every_update: bool = False
    """Whoever acts must be able to have the weights of every update: what is learnt from comes out of a queue, and is
    to be made by weights as new as can be. Else weights are published by time."""
    draws_ahead: bool = False
    """Its learners are `AheadLearner`s: a draw takes nothing out of the table, and may be made before it is needed."""
    num_parameter_shards: int = 0
    """Ranges of the parameters that learners push gradients to. 0: the one learner has the parameters itself; else the
    agent has `parameters`."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of all tables."""
        return tuple(self.table_of(i) for i in range(self.num_learners)) if self.bundled else (self.name,)

    def table_of(self, actor: int) -> str:
        """Name of the table that an actor writes into."""
        return f"{self.name}-{actor}" if self.bundled else self.name


class ParameterShard(Protocol):
    """A range of the parameters, which learners ask. Not for several threads at once."""

    version: int
    """Updates so far."""

    def answer(self, question: Any) -> Any:
        """Do what a learner asks. Question and answer can be pickled, and are the agent's own."""

    def state_dict(self) -> dict[str, Any]:
        """A copy of everything that the next answer depends on."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave."""


class Stopwatch:
    """Seconds spent by activity. Not for several threads: each has its own, `merge` adds them up."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, activity: str) -> Iterator[None]:
        """Time what runs under `with watch(activity)`."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.add(activity, time.perf_counter() - began)

    def add(self, activity: str, seconds: float) -> None:
        """Count `seconds` for `activity`."""
        self.seconds[activity] = self.seconds.get(activity, 0.0) + seconds

    def merge(self, other: Stopwatch) -> None:
        """Add what another stopwatch measured."""
        for activity, seconds in other.seconds.items():
            self.add(activity, seconds)


def seed_of(seed: int, *path: int) -> int:
    """A 63-bit seed for one part of a run: parts of one run, and runs of different seeds (any integer), differ."""
    entropy = [abs(seed), *path, *([1] if seed < 0 else [])]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))
