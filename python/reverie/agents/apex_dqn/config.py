"""What a person can set, the table that follows from it, and the exploration ladder."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from reverie import rate_limiters, selectors
from reverie.agents.core import TableNeeds
from reverie.agents.environments import EnvSpec
from reverie.tables import Table

TABLE = "replay"


@dataclass(frozen=True)
class ApexDqnConfig:
    """Names follow the paper where it has one; the presets say where their numbers come from."""

    num_actors: int
    envs_per_actor: int
    hidden: tuple[int, ...]
    """Widths of the hidden layers of the dueling network."""
    n_step: int
    discount: float
    batch_size: int
    samples_per_insert: float
    """How often an item is drawn on average: the table's limiter holds this ratio."""
    learning_starts: int
    """Items in the table before the first update."""
    capacity: int
    priority_exponent: float
    """alpha: applied by the table's selector, and nowhere else."""
    importance_exponent: float
    """beta, constant."""
    importance_normalise: str
    """Importance weights are divided by the largest of the "batch" or of the "table"."""
    learning_rate: float
    adam_epsilon: float
    huber_delta: float
    max_grad_norm: float
    target_period: int
    """Updates between two copies into the target network."""
    weights_period: int
    """Steps of an actor's vector of environments between two looks for newer weights."""
    epsilon_base: float = 0.4
    epsilon_alpha: float = 7.0
    single_env_decay_steps: int = 10_000
    """With one environment in all there is no ladder to spread: epsilon walks down it within so many steps."""
    priority_eps: float = 1e-6

    def __post_init__(self) -> None:
        for name in (
            "num_actors",
            "envs_per_actor",
            "n_step",
            "batch_size",
            "learning_starts",
            "capacity",
            "target_period",
            "weights_period",
            "single_env_decay_steps",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, and must be at least 1")
        for name in ("samples_per_insert", "learning_rate", "adam_epsilon", "huber_delta", "max_grad_norm"):
            if not (getattr(self, name) > 0 and math.isfinite(getattr(self, name))):
                raise ValueError(f"{name} is {getattr(self, name)}, and must be above 0")
        for name in ("discount", "priority_exponent", "importance_exponent", "epsilon_base"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}, and must lie in [0, 1]")
        if not self.hidden or min(self.hidden) < 1:
            raise ValueError(f"hidden is {self.hidden}, and must be widths of at least one layer")
        if self.importance_normalise not in ("batch", "table"):
            raise ValueError(f'importance_normalise is {self.importance_normalise!r}, and must be "batch" or "table"')
        if self.learning_starts > self.capacity:
            raise ValueError(
                f"learning_starts is {self.learning_starts}, above the capacity of {self.capacity}: learning would"
                " never start"
            )

    @property
    def inserts_per_act(self) -> int:
        """The most items of one step of an actor: where an episode ends, all n-step tails come out at once."""
        return self.envs_per_actor * self.n_step

    @property
    def error_buffer(self) -> float:
        """How far samples may run from the ratio, either way: the least with which a single thread never stalls.

        Neither side may go on only where `max_diff - min_diff < batch_size + samples_per_insert * inserts`; the limiter
        asks for `max(1, samples_per_insert)` besides.
        """
        return max(self.batch_size + self.samples_per_insert * self.inserts_per_act, 2.0)


def epsilon_ladder(num_envs: int, base: float, alpha: float) -> NDArray[np.float64]:
    """`epsilon_i = base ** (1 + alpha * i / (N - 1))`, `[N]` (Ape-X, section 4.1); N = 1 gives the first rung alone."""
    if num_envs == 1:
        return np.array([base])
    rungs: NDArray[np.float64] = base ** (1 + alpha * np.arange(num_envs) / (num_envs - 1))
    return rungs


def epsilon_alone(step: int, config: ApexDqnConfig) -> float:
    """Epsilon at an environment step of a run with one environment: down the same ladder over time."""
    walked = min(1.0, step / config.single_env_decay_steps)
    epsilon: float = config.epsilon_base ** (1 + config.epsilon_alpha * walked)
    return epsilon


def needs(config: ApexDqnConfig) -> TableNeeds:
    """What the runner must know of the table."""
    return TableNeeds(TABLE, config.batch_size, config.inserts_per_act)


def make_tables(spec: EnvSpec, config: ApexDqnConfig, *, seed: int) -> list[Table]:
    """One prioritised table. Actors and learner send |td| + eps; only this selector raises it to alpha."""
    return [
        Table(
            TABLE,
            sampler=selectors.Prioritized(config.priority_exponent, seed=seed),
            remover=selectors.Fifo(),
            max_size=config.capacity,
            rate_limiter=rate_limiters.SampleToInsertRatio(
                config.samples_per_insert, config.learning_starts, error_buffer=config.error_buffer
            ),
        )
    ]


def memory(spec: EnvSpec, config: ApexDqnConfig) -> dict[str, int]:
    """Bytes by what needs them, an upper estimate: obs and next_obs counted apart, nothing compressed."""
    observation = math.prod(spec.obs_shape) * np.dtype(spec.obs_dtype).itemsize
    scalars = 8 + 4 + 4 + 8  # action, reward, discount, weights_version
    bookkeeping = 160  # key, priority, references, tree nodes
    widths = [math.prod(spec.obs_shape), *config.hidden, (spec.num_actions or 0) + 1]
    parameters = sum(a * b + b for a, b in pairwise(widths))
    networks = 5 + config.num_actors  # online, target, gradient, two moments; one in each actor
    return {
        f"replay of {config.capacity:,} items": config.capacity * (2 * observation + scalars + bookkeeping),
        "networks and optimiser": 4 * parameters * networks,
        "batches": 4 * config.batch_size * (2 * observation + scalars + 4 * sum(widths)),
    }
