"""Settings of the agent, its table, and the exploration ladder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from reverie import selectors
from reverie.agents import checks, replay
from reverie.agents.discrete import PRECISIONS, HoldSettings
from reverie.agents.environments import EnvSpec
from reverie.agents.inputs import front_sizes
from reverie.agents.layers import num_parameters
from reverie.agents.munchausen import MunchausenSettings
from reverie.agents.rates import RateSettings
from reverie.tables import Table


@dataclass(frozen=True, kw_only=True)
class ApexDqnConfig(replay.PrioritizedSettings, HoldSettings, RateSettings, MunchausenSettings):
    """Names follow the paper where it has one; the presets name the source of their numbers."""

    hidden: tuple[int, ...]
    """Widths of the hidden layers of the dueling network."""
    optimizer_epsilon: float
    """Added to the denominator of the optimiser's steps; of RMSProp under its root."""
    huber_delta: float
    """The absolute TD error above which the loss is linear."""
    max_grad_norm: float
    """Gradients with a larger norm are scaled down to it."""
    target_rate: float = 0.0
    """tau: how far the target moves to the online network at every update; 0 copies every `target_period`."""
    target_period: int
    """Updates between two copies into the target network."""
    optimizer: str = "adam"
    """"adam", or "rmsprop", the centred one of the paper."""
    precision: str = "float32"
    """Precision of all layers but the last; "bfloat16" halves the time of large networks if the processor has it."""
    first_priority: str = "td_error"
    """Priority of new items: the actor's "td_error", or the "max" of the table (Schaul et al. 2016)."""
    epsilon_base: float = 0.4
    """Epsilon of the first of all N environments; environment i has `base ** (1 + alpha * i / (N - 1))`, the ladder."""
    epsilon_alpha: float = 7.0
    """alpha of the ladder: how much less each next environment explores."""
    single_env_decay_steps: int = 10_000
    """With a single environment, epsilon goes down the ladder over this number of steps."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.at_least_one(self, "target_period", "single_env_decay_steps")
        checks.above_zero(self, "optimizer_epsilon", "huber_delta", "max_grad_norm")
        checks.within_unit(self, "epsilon_base", "target_rate")
        checks.widths(self, "hidden")
        checks.one_of(self, "first_priority", ("td_error", "max"))
        checks.one_of(self, "optimizer", ("adam", "rmsprop"))
        checks.one_of(self, "precision", PRECISIONS)

    def scheduled(self, env_steps: int, updates: int) -> dict[str, float]:
        """Also epsilon of a single environment; several have a rung of the ladder each."""
        return {**super().scheduled(env_steps, updates), **scheduled_epsilon(env_steps, self)}

    def without_effect(self) -> dict[str, str]:
        """Also the schedule of a single environment, if there are several."""
        return {**super().without_effect(), **idle_decay(self)}


def epsilon_ladder(num_envs: int, base: float, alpha: float) -> NDArray[np.float64]:
    """`epsilon_i = base ** (1 + alpha * i / (N - 1))`, `[N]` (Ape-X, section 4.1); N = 1 gives the first rung alone."""
    if num_envs == 1:
        return np.array([base])
    rungs: NDArray[np.float64] = base ** (1 + alpha * np.arange(num_envs) / (num_envs - 1))
    return rungs


class LadderSettings(Protocol):
    """The settings of the ladder."""

    @property
    def epsilon_base(self) -> float:
        """Epsilon of the first rung."""

    @property
    def epsilon_alpha(self) -> float:
        """How far the ladder goes down."""

    @property
    def num_actors(self) -> int:
        """Actors."""

    @property
    def envs_per_actor(self) -> int:
        """Environments of each."""

    @property
    def single_env_decay_steps(self) -> int:
        """Steps in which a single environment goes down the ladder."""


def epsilon_alone(step: int, config: LadderSettings) -> float:
    """Epsilon at a step of a run with a single environment, which goes down the same ladder over time."""
    walked = min(1.0, step / config.single_env_decay_steps)
    epsilon: float = config.epsilon_base ** (1 + config.epsilon_alpha * walked)
    return epsilon


def scheduled_epsilon(env_steps: int, config: LadderSettings) -> dict[str, float]:
    """Epsilon of a single environment, by name; empty for several, which have a rung of the ladder each."""
    alone = config.num_actors * config.envs_per_actor == 1
    return {"epsilon": epsilon_alone(env_steps, config)} if alone else {}


def idle_decay(config: LadderSettings) -> dict[str, str]:
    """The setting that only a single environment uses, with the reason, if there are several."""
    several = config.num_actors * config.envs_per_actor > 1
    return {"single_env_decay_steps": "there are several environments"} if several else {}


def make_tables(spec: EnvSpec, config: ApexDqnConfig, *, seed: int) -> list[Table]:
    """One prioritised table. Actors and learner send |td| + eps; only this selector raises it to alpha."""
    return [replay.make_table(config, selectors.Prioritized(config.priority_exponent, seed=seed))]


def memory(spec: EnvSpec, config: ApexDqnConfig) -> dict[str, int]:
    """Memory of a run in bytes by part, an upper estimate."""
    actions = spec.num_actions or 0
    features, parameters, units = front_sizes(spec)
    streams = [(features, *config.hidden, outputs) for outputs in ((1, actions) if spec.has_images else (actions + 1,))]
    parameters += sum(num_parameters(*widths) for widths in streams)
    units += sum(sum(widths) for widths in streams)
    networks = 5 + config.num_actors  # online, target, gradient, two moments; one in each actor
    return replay.memory(spec, config, parameters=parameters * networks, units=units)
