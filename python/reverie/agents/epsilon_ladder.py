"""Exploration by a ladder: each environment has an epsilon of its own, and a single one goes down it over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reverie.agents import checks
from reverie.agents.discrete import HoldSettings


@dataclass(frozen=True, kw_only=True)
class LadderSettings(HoldSettings):
    """Settings of agents whose environments have a rung of the ladder each (Horgan et al. 2018, section 4.1)."""

    epsilon_base: float = 0.4
    """Epsilon of the first of all N environments; environment i has `base ** (1 + alpha * i / (N - 1))`, the ladder."""
    epsilon_alpha: float = 7.0
    """alpha of the ladder: how much less each next environment explores."""
    single_env_decay_steps: int = 10_000
    """With a single environment, epsilon goes down the ladder over this number of steps."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.at_least_one(self, "single_env_decay_steps")
        checks.within_unit(self, "epsilon_base")

    def scheduled(self, env_steps: int, updates: int) -> dict[str, float]:
        """Adds `epsilon` if there is a single environment; of several, each has a rung of the ladder."""
        own = {} if self.has_several_envs else {"epsilon": self.epsilon_alone(env_steps)}
        return {**super().scheduled(env_steps, updates), **own}

    def without_effect(self) -> dict[str, str]:
        """Adds settings of exploration that have no effect.

        These are the settings that `epsilon_base` or `epsilon_alpha` leaves without effect, and
        `single_env_decay_steps` while there are several environments.
        """
        idle = {}
        if self.epsilon_base == 0:
            idle = dict.fromkeys(("epsilon_alpha", "single_env_decay_steps", "random_hold"), "epsilon_base is 0")
        elif self.epsilon_base == 1:
            idle = dict.fromkeys(("epsilon_alpha", "single_env_decay_steps"), "epsilon_base is 1")
        elif self.epsilon_alpha == 0:
            idle = {"single_env_decay_steps": "epsilon_alpha is 0"}
        if self.has_several_envs:
            idle["single_env_decay_steps"] = "there are several environments"
        return {**super().without_effect(), **idle}

    def rungs_of(self, actor: int) -> NDArray[np.float64]:
        """The epsilons of an actor's environments, `[envs_per_actor]`."""
        first = actor * self.envs_per_actor
        ladder = epsilon_ladder(self.num_actors * self.envs_per_actor, self.epsilon_base, self.epsilon_alpha)
        return ladder[first : first + self.envs_per_actor]

    def epsilon_alone(self, step: int) -> float:
        """Epsilon at a step of a run with a single environment, which goes down the same ladder over time."""
        walked = min(1.0, step / self.single_env_decay_steps)
        epsilon: float = self.epsilon_base ** (1 + self.epsilon_alpha * walked)
        return epsilon

    @property
    def last_epsilon(self) -> float:
        """Epsilon at the end of the ladder."""
        return self.epsilon_alone(self.single_env_decay_steps)

    @property
    def has_several_envs(self) -> bool:
        """Whether there are rungs; a single environment goes down the ladder over time."""
        return self.num_actors * self.envs_per_actor > 1


def epsilon_ladder(num_envs: int, base: float, alpha: float) -> NDArray[np.float64]:
    """`epsilon_i = base ** (1 + alpha * i / (N - 1))`, `[N]` (Ape-X, section 4.1); N = 1 gives the first rung alone."""
    if num_envs == 1:
        return np.array([base])
    rungs: NDArray[np.float64] = base ** (1 + alpha * np.arange(num_envs) / (num_envs - 1))
    return rungs
