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


class Noise:
    """`x <- (1 - theta) x + sigma sqrt(1 - (1 - theta)^2) eps`: a process of deviation `sigma` (Uhlenbeck 1930).

    With `theta = 1` it is independent Gaussian noise. A reset environment starts at a draw of the stationary law.
    """

    def __init__(self, shape: tuple[int, int], sigma: float, theta: float) -> None:
        self._x = np.zeros(shape, np.float32)
        self._fresh = True
        self._sigma, self._keep = np.float32(sigma), np.float32(1.0 - theta)
        self._kick = np.float32(sigma * (1.0 - (1.0 - theta) ** 2) ** 0.5)

    def draw(self, rng: np.random.Generator, resets: NDArray[np.bool_]) -> NDArray[np.float32]:
        """The next noise `[N, A]`, float32; `resets` `[N]` marks environments that begin a new episode."""
        eps = rng.standard_normal(self._x.shape, np.float32)
        going_on = self._keep * self._x + self._kick * eps
        begins = np.ones_like(resets) if self._fresh else resets
        self._fresh = False
        self._x = np.where(begins[:, None], self._sigma * eps, going_on)
        return self._x


@dataclass(frozen=True, kw_only=True)
class CorrelatedSettings(MaybePrioritizedSettings):
    """How noise of one step resembles that of the last one."""

    noise_theta: float = 1.0
    """The rate per step at which noise and uniform actions forget; 1 draws those of each step independently."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.forgets(self, "noise_theta")


class Exploration:
    """Standard normal noise and uniform actions of an actor, both with the settings' correlation in time.

    Each number alone has the same law with any `theta` (Eberhard et al. 2023, *Pink Noise Is All You Need*, section 3):
    a stochastic policy draws its actions from its own distribution in any case.
    """

    def __init__(self, shape: tuple[int, int], theta: float) -> None:
        self._shape, self._independent = shape, theta == 1.0
        self._noise = Noise(shape, 1.0, theta)

    def normal(self, rng: np.random.Generator, begins: NDArray[np.bool_]) -> NDArray[np.float32]:
        """The next noise `[N, A]`; `begins` `[N]` marks environments that begin a new episode."""
        return self._noise.draw(rng, begins)

    def uniform(self, rng: np.random.Generator, begins: NDArray[np.bool_]) -> NDArray[np.float32]:
        """The next actions `[N, A]`, uniform in `[-1, 1]`."""
        if self._independent:
            return rng.uniform(-1.0, 1.0, self._shape).astype(np.float32)
        normal: Any = torch.from_numpy(self._noise.draw(rng, begins))
        actions: NDArray[np.float32] = torch.erf(normal / math.sqrt(2)).numpy()
        return actions
