"""Noise of actors: independent from step to step, or correlated in time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from reverie.agents import checks
from reverie.agents.replay import MaybePrioritizedSettings
from reverie.agents.settings import Settings


class ActionNoise:
    """`x <- (1 - theta) x + sigma sqrt(1 - (1 - theta)^2) eps`: a process of deviation `sigma` (Uhlenbeck 1930).

    With `theta = 1` it is independent Gaussian noise. A reset environment starts at a draw of the stationary law, and
    that law does not depend on `theta`, which may change between draws.
    """

    def __init__(self, shape: tuple[int, int], sigma: float) -> None:
        self._x = np.zeros(shape, np.float32)
        self._fresh = True
        self._sigma = sigma

    def draw(self, rng: np.random.Generator, resets: NDArray[np.bool_], theta: float) -> NDArray[np.float32]:
        """The next noise `[N, A]`, float32; `resets` `[N]` marks environments that begin a new episode."""
        eps = rng.standard_normal(self._x.shape, np.float32)
        kick = np.float32(self._sigma * (1.0 - (1.0 - theta) ** 2) ** 0.5)
        going_on = np.float32(1.0 - theta) * self._x + kick * eps
        begins = np.ones_like(resets) if self._fresh else resets
        self._fresh = False
        self._x = np.where(begins[:, None], np.float32(self._sigma) * eps, going_on)
        return self._x


@dataclass(frozen=True, kw_only=True)
class NoiseSettings(Settings):
    """How the random numbers of an actor's step resemble those of the last one.

    For given outputs of the network, a draw follows the policy's distribution with any of these. Observations depend on
    the random numbers of earlier steps, so over the visited states actions do not follow it exactly; the losses of PPO
    and IMPALA assume that they do.
    """

    noise_theta: float = 1.0
    """The rate per step at which the random numbers of actions forget: below 1 they are correlated from step to step,
    and actions keep their direction for a while; with 1 they are independent."""
    noise_theta_steps: int = 0
    """Environment steps, of all actors together, after which the random numbers of actions are independent; 0:
    `noise_theta` holds for the whole run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.forgets(self, "noise_theta")
        checks.not_negative(self, "noise_theta_steps")

    def without_effect(self) -> dict[str, str]:
        """Adds `noise_theta_steps`, which has no effect while `noise_theta` is 1."""
        idle = {"noise_theta_steps": "noise_theta is 1"} if self.noise_theta == 1 else {}
        return {**super().without_effect(), **idle}

    def scheduled(self, env_steps: int, updates: int) -> dict[str, float]:
        """Adds `noise_theta` if `noise_theta_steps` ends the correlation."""
        own = {"noise_theta": self.theta_at(env_steps)} if self.noise_theta < 1 and self.noise_theta_steps else {}
        return {**super().scheduled(env_steps, updates), **own}

    def theta_at(self, env_steps: int) -> float:
        """`noise_theta`, or 1 after `noise_theta_steps` environment steps of the run."""
        return self.noise_theta if env_steps < self.noise_theta_steps or self.noise_theta_steps == 0 else 1.0


@dataclass(frozen=True, kw_only=True)
class CorrelatedSettings(MaybePrioritizedSettings, NoiseSettings):
    """Settings of agents with a replay table, whose exploration noise may be correlated in time."""


class NoiseExploration:
    """Standard normal noise and uniform actions of an actor, both correlated in time.

    Each number alone has the same law with any `theta` (Eberhard et al. 2023, *Pink Noise Is All You Need*, section 3):
    a stochastic policy draws its actions from its own distribution in any case.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self._shape, self._noise = shape, ActionNoise(shape, 1.0)

    def normal(self, rng: np.random.Generator, begins: NDArray[np.bool_], theta: float) -> NDArray[np.float32]:
        """The next noise `[N, A]`; `begins` `[N]` marks environments that begin a new episode."""
        return self._noise.draw(rng, begins, theta)

    def uniform(self, rng: np.random.Generator, begins: NDArray[np.bool_], theta: float) -> NDArray[np.float32]:
        """The next actions `[N, A]`, uniform in `[-1, 1]`."""
        if theta == 1.0:
            return rng.uniform(-1.0, 1.0, self._shape).astype(np.float32)
        normal: Any = torch.from_numpy(self._noise.draw(rng, begins, theta))
        actions: NDArray[np.float32] = torch.erf(normal / math.sqrt(2)).numpy()
        return actions
