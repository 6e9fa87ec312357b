"""Target networks that follow the online ones by copies, or a little at every update."""

from __future__ import annotations

from dataclasses import dataclass

from reverie.agents import checks
from reverie.agents.settings import Settings


@dataclass(frozen=True, kw_only=True)
class TargetSettings(Settings):
    """Settings of agents whose targets can follow in both ways."""

    target_period: int
    """Updates between two copies of the online networks into their targets."""
    target_rate: float = 0.0
    """tau: how far the targets move to the online networks at every update; 0 copies every `target_period`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.at_least_one(self, "target_period")
        checks.within_unit(self, "target_rate")

    def without_effect(self) -> dict[str, str]:
        """Adds `target_period`, which has no effect while `target_rate` is above 0."""
        idle = {"target_period": "target_rate is above 0"} if self.target_rate > 0 else {}
        return {**super().without_effect(), **idle}
