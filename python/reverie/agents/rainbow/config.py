"""Settings of the agent: each of Rainbow's parts can be switched off alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from reverie.agents import checks, replay
from reverie.agents.discrete import HoldSettings, falling_epsilon, idle_epsilon
from reverie.agents.environments import EnvSpec
from reverie.agents.inputs import front, front_sizes
from reverie.agents.layers import num_parameters
from reverie.agents.munchausen import MunchausenSettings
from reverie.agents.rates import RateSettings
from reverie.agents.spectral_norm import layers_of, require_some
from reverie.agents.targets import TargetSettings

HEADS = ("categorical", "quantile", "scalar")
NUM_COSINES = 64
"""The cosines that embed a fraction (Dabney et al. 2018b, equation 4 of section 3.1)."""


@dataclass(frozen=True, kw_only=True)
class RainbowConfig(replay.MaybePrioritizedSettings, HoldSettings, TargetSettings, RateSettings, MunchausenSettings):
    """Names follow the papers where they have one. `n_step=1` and `prioritized=false` are two of the ablations."""

    hidden: tuple[int, ...]
    """Widths of the hidden layers; the last one is that of each stream of the head."""
    head: str
    """The estimate of returns: their distribution, "categorical" (C51) or "quantile" (IQN), or their mean, "scalar"."""
    v_min: float = 0.0
    """The smallest return of the categorical head; those below count as it."""
    v_max: float = 0.0
    """Its largest return; must be above `v_min` for this head. Neither has an effect on the others."""
    num_atoms: int = 51
    """Values of the categorical head, at equal distances."""
    num_quantiles: int = 8
    """Random fractions of an update of the quantile head, of the prediction and of the target (N and N')."""
    policy_quantiles: int = 32
    """Fractions whose quantiles' mean is the value of an action (K): the middles of as many equal parts of [0, 1]."""
    huber_delta: float = 1.0
    """kappa: the absolute TD error above which the loss of the quantile and of the scalar head is linear."""
    dueling: bool = True
    """Whether the head has a stream for the value and one for the advantages."""
    double: bool = True
    """Whether the online network chooses the action that the target network values."""
    noisy: bool = True
    """Whether the head has noisy layers, which explore. Otherwise actors are epsilon-greedy, and only then the settings
    of epsilon have an effect."""
    noisy_sigma: float = 0.5
    """sigma_0: at the start, every deviation of the noise of a layer is this, divided by the root of its inputs."""
    spectral_norm: bool = False
    """Whether the layers before the head, convolutions and shared ones, have their weights divided by the largest
    singular value (Miyato et al. 2018). Refused where there is none."""
    epsilon_start: float = 1.0
    """The probability of a random action at the first step."""
    epsilon_end: float = 0.05
    """The probability of a random action from step `epsilon_steps` on."""
    epsilon_steps: int = 10_000
    """Environment steps, of all actors together, over which epsilon falls in a line."""
    adam_epsilon: float
    """Added to the denominator of Adam's steps."""
    max_grad_norm: float
    """Gradients with a larger norm are scaled down to it."""
    prioritized: bool = True
    """Whether items are drawn by their losses: the divergence from the target of the categorical head, the loss of the
    quantile head, the absolute TD error of the scalar one. New ones have the largest priority of the table."""
    priority_exponent: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.widths(self, "hidden")
        checks.one_of(self, "head", HEADS)
        checks.at_least_one(self, "epsilon_steps", "num_quantiles", "policy_quantiles")
        checks.above_zero(self, "adam_epsilon", "huber_delta", "max_grad_norm", "noisy_sigma")
        checks.within_unit(self, "epsilon_start", "epsilon_end")
        if self.head == "categorical":
            checks.support(self, "v_min", "v_max", "num_atoms")
        if self.munchausen > 0 and self.head == "categorical":
            raise ValueError(
                f'munchausen is {self.munchausen}, and the head "categorical", whose targets it does not move: set'
                ' head to "quantile" or "scalar"'
            )
        if self.munchausen > 0 and self.double:
            raise ValueError(
                f"munchausen is {self.munchausen} and double true, but its target is of all actions: set double to"
                " false"
            )

    def scheduled(self, env_steps: int, updates: int) -> dict[str, float]:
        """Adds `epsilon` while `noisy` is false."""
        own = {} if self.noisy else {"epsilon": falling_epsilon(env_steps, self)}
        return {**super().scheduled(env_steps, updates), **own}

    def of_initial_weights(self, *, all_networks: bool) -> tuple[str, ...]:
        """Adds `noisy_sigma`."""
        return (*super().of_initial_weights(all_networks=all_networks), "noisy_sigma")

    def without_effect(self) -> dict[str, str]:
        """Adds the settings of the other heads, those of exploration that is not used, and of an epsilon that stays."""
        other = {
            "categorical": ("v_min", "v_max", "num_atoms"),
            "quantile": ("num_quantiles", "policy_quantiles"),
        }
        names = [name for head, several in other.items() if head != self.head for name in several]
        names += ["huber_delta"] if self.head == "categorical" else []
        epsilon = ("epsilon_start", "epsilon_end", "epsilon_steps", "random_hold")
        explores = dict.fromkeys(epsilon, "noisy is true") if self.noisy else {"noisy_sigma": "noisy is false"}
        return {
            **super().without_effect(),
            **idle_epsilon(self),
            **dict.fromkeys(names, f'head is "{self.head}"'),
            **explores,
        }


def outputs(config: RainbowConfig) -> int:
    """Numbers that the head returns for each action."""
    return config.num_atoms if config.head == "categorical" else 1


def num_normalised(spec: EnvSpec, shared: tuple[int, ...]) -> int:
    """Outputs of the layers before the head, each of which has a number for its normalisation.

    Raises ValueError if there is no layer before the head.
    """
    with torch.device("meta"):
        first, _ = front(spec)
    layers = [layer for module in first for layer in layers_of(module)]
    require_some(len(layers) + len(shared))
    return sum(len(layer.weight) for layer in layers) + sum(shared)


def memory(spec: EnvSpec, config: RainbowConfig) -> dict[str, int]:
    """Memory of a run in bytes by part, an upper estimate."""
    features, parameters, units = front_sizes(spec)
    *shared, last = config.hidden
    if config.spectral_norm:
        parameters += num_normalised(spec, tuple(shared))
    width = shared[-1] if shared else features
    actions, rows = spec.num_actions or 0, config.policy_quantiles if config.head == "quantile" else 1
    if config.head == "quantile":
        parameters += num_parameters(NUM_COSINES, width)
        units += rows * (NUM_COSINES + 2 * width)
    streams = [(width, last, n * outputs(config)) for n in ((1, actions) if config.dueling else (actions,))]
    head = sum(num_parameters(*widths) for widths in streams)
    parameters += num_parameters(features, *shared) + (2 * head if config.noisy else head)
    units += sum(shared) + rows * sum(sum(widths) for widths in streams)
    networks = 5 + config.num_actors  # online, target, gradient, two moments; one in each actor
    return replay.memory(spec, config, parameters=parameters * networks, units=units)
