"""Settings of CQL: DQN's, and the weight of the conservative term."""

from __future__ import annotations

from dataclasses import dataclass

from reverie.agents import checks
from reverie.agents.dataset_reader import DatasetSettings
from reverie.agents.dqn.config import DqnConfig, memory

__all__ = ["CqlConfig", "memory"]


@dataclass(frozen=True, kw_only=True)
class CqlConfig(DqnConfig, DatasetSettings):
    """DQN's settings have the same meaning; those of exploration have an effect without a `dataset` only."""

    conservative_weight: float
    """alpha: the weight of the conservative term; 0 gives DQN."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.not_negative(self, "conservative_weight")
        if self.dataset and self.her:
            raise ValueError(
                f"her is {self.her!r}, and a dataset is read with its own goals: leave out one of the two settings"
            )

    def scheduled(self, env_steps: int, updates: int) -> dict[str, float]:
        """Removes `epsilon` while `dataset` is set: the actor reads rows of the data set and does not explore."""
        found = super().scheduled(env_steps, updates)
        return {name: value for name, value in found.items() if not (self.dataset and name == "epsilon")}
