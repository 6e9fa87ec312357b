"""Settings of the agent, and the exploration schedule."""

from __future__ import annotations

from dataclasses import dataclass

from reverie.agents import checks, replay
from reverie.agents.discrete import PRECISIONS, HoldSettings, falling_epsilon, idle_epsilon
from reverie.agents.environments import EnvSpec
from reverie.agents.inputs import front_sizes
from reverie.agents.layers import num_parameters
from reverie.agents.munchausen import MunchausenSettings
from reverie.agents.rates import RateSettings


@dataclass(frozen=True, kw_only=True)
class DqnConfig(replay.HindsightSettings, HoldSettings, RateSettings, MunchausenSettings):
    """Names follow the paper's table of hyperparameters where it has one."""

    hidden: tuple[int, ...]
    """Widths of the hidden layers."""
    adam_epsilon: float
    """Added to the denominator of Adam's steps."""
    huber_delta: float
    """The absolute TD error above which the loss is linear; 1 clips the error term to [-1, 1], as the paper does."""
    max_grad_norm: float
    """Gradients with a larger norm are scaled down to it."""
    target_period: int
    """Updates between two copies into the target network."""
    epsilon_start: float
    """The probability of a random action at the first step."""
    epsilon_end: float
    """The probability of a random action from step `epsilon_steps` on."""
    epsilon_steps: int
    """Environment steps, of all actors together, over which epsilon falls in a line."""
    layer_norm: bool = False
    """Whether the hidden layers after the convolutions are normalised."""
    precision: str = "float32"
    """Precision of all layers but the last; "bfloat16" halves the time of large networks if the processor has it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.at_least_one(self, "target_period", "epsilon_steps")
        checks.above_zero(self, "adam_epsilon", "huber_delta", "max_grad_norm")
        checks.within_unit(self, "epsilon_start", "epsilon_end")
        checks.widths(self, "hidden")
        checks.one_of(self, "precision", PRECISIONS)

    def without_effect(self) -> dict[str, str]:
        """Adds `epsilon_steps` if epsilon stays the same, and `random_hold` if epsilon is always 0."""
        return {**idle_epsilon(self), **super().without_effect()}

    def scheduled(self, env_steps: int, updates: int) -> dict[str, float]:
        """Adds `epsilon`."""
        return {**super().scheduled(env_steps, updates), "epsilon": falling_epsilon(env_steps, self)}


def sizes(spec: EnvSpec, config: DqnConfig) -> tuple[int, int]:
    """The number of parameters, and the sum of the widths of all layers that one observation passes through."""
    features, parameters, units = front_sizes(spec)
    widths = (features, *config.hidden, spec.num_actions or 0)
    norms = 2 * sum(config.hidden) if config.layer_norm else 0
    return parameters + num_parameters(*widths) + norms, units + sum(widths)


def memory(spec: EnvSpec, config: DqnConfig) -> dict[str, int]:
    """Memory of a run in bytes by part, an upper estimate."""
    networks = 5 + config.num_actors  # online, target, gradient, two moments; one in each actor
    parameters, units = sizes(spec, config)
    return replay.memory(spec, config, parameters=parameters * networks, units=units)
