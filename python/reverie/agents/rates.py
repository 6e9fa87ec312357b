"""Learning rates that change during a run, as settings: files keep them, and every run with them has the same rates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reverie.agents import checks
from reverie.agents.optimizers import Optimizer
from reverie.agents.settings import Settings

SHAPES = ("linear", "cosine")


@dataclass(frozen=True, kw_only=True)
class AnnealSettings(Settings):
    """Settings of agents whose learning rates may change during a run: all of them by the same share."""

    anneal_updates: int = 0
    """Updates, from the first one on, over which learning rates fall; 0 keeps them as they are."""
    anneal_to: float = 0.05
    """The share of a learning rate that is left at the end of `anneal_updates`, and from then on."""
    anneal_shape: str = "linear"
    """How learning rates fall: "linear", in a line that would reach 0 at the end of `anneal_updates` and stops at
    `anneal_to`, or "cosine", along half a cosine wave from 1 to `anneal_to`."""
    warmup_updates: int = 0
    """Updates at the start whose learning rates are also multiplied by a factor that rises in a line to 1; 0: none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.not_negative(self, "anneal_updates", "warmup_updates")
        checks.within_unit(self, "anneal_to")
        checks.one_of(self, "anneal_shape", SHAPES)

    def without_effect(self) -> dict[str, str]:
        """Adds the settings `anneal_...` that have no effect while `anneal_updates` is 0 or `anneal_to` is 1."""
        idle = {}
        if self.anneal_updates == 0:
            idle = dict.fromkeys(("anneal_to", "anneal_shape"), "anneal_updates is 0")
        elif self.anneal_to == 1:
            idle = dict.fromkeys(("anneal_updates", "anneal_shape"), "anneal_to is 1")
        return {**super().without_effect(), **idle}

    def annealed(self, update: int) -> float:
        """The share of the rates that is left at an update, 1 at the first one."""
        if self.anneal_updates == 0:
            return 1.0
        walked = update / self.anneal_updates
        if self.anneal_shape == "cosine":
            return self.anneal_to + (1.0 - self.anneal_to) * (1.0 + math.cos(math.pi * min(1.0, walked))) / 2
        return max(self.anneal_to, 1.0 - walked)

    def rate_share(self, update: int) -> float:
        """The factor of the rates at an update: the share that annealing leaves, times the factor of a warm-up."""
        warmed = 1.0 if update >= self.warmup_updates else (update + 1) / self.warmup_updates
        return warmed * self.annealed(update)


@dataclass(frozen=True, kw_only=True)
class RateSettings(AnnealSettings):
    """Settings of agents with one learning rate."""

    learning_rate: float
    """The step size of the optimiser, before `anneal_updates` and `warmup_updates` change it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.above_zero(self, "learning_rate")

    def rate(self, update: int) -> float:
        """The learning rate of an update."""
        return self.learning_rate * self.rate_share(update)


def set_rates(optimizers: Iterable[Optimizer], settings: AnnealSettings, update: int) -> None:
    """Make the next steps of these optimisers at the rates of an update: shares of the rates that they began with.

    If the settings change no rate, the rates of a learner that changes its own stay.
    """
    if settings.anneal_updates == settings.warmup_updates == 0:
        return
    share = settings.rate_share(update)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group.setdefault("initial_lr", group["lr"]) * share


def rates_by_setting(
    optimizers: Mapping[str, Optimizer], settings: Mapping[str, str], *, initial: bool = False
) -> dict[str, float]:
    """The learning rate of each optimiser's last step, by the name of its setting; `initial`: before `set_rates`.

    `settings` has the names of settings by those of optimisers. Without one there, it is `learning_rate` of an only
    optimiser, and `NAME_learning_rate` of the optimiser NAME of several.
    """
    rates = {}
    for name, optimizer in optimizers.items():
        setting = settings.get(name, "learning_rate" if len(optimizers) == 1 else f"{name}_learning_rate")
        group = optimizer.param_groups[0]
        rates[setting] = float(group.get("initial_lr", group["lr"]) if initial else group["lr"])
    return rates
