"""Settings of CQL for continuous actions: SAC's, and those of the conservative term."""

from __future__ import annotations

from dataclasses import dataclass

from reverie.agents import checks, continuous
from reverie.agents.dataset_reader import DatasetSettings
from reverie.agents.environments import EnvSpec
from reverie.agents.sac.config import SacConfig


@dataclass(frozen=True, kw_only=True)
class CqlSacConfig(SacConfig, DatasetSettings):
    """SAC's settings have the same meaning; those of exploration have an effect without a `dataset` only."""

    conservative_weight: float
    """alpha: the weight of the conservative term; 0 gives SAC."""
    sampled_actions: int = 10
    """N: the actions of each row that are drawn from each of three distributions for the conservative term."""
    conservative_threshold: float | None = None
    """tau: if set, alpha is `conservative_weight` times a factor, 1 at first, which rises where the term is above tau
    and falls where it is below."""
    conservative_learning_rate: float = 3e-4
    """The learning rate of that factor."""
    imitation_updates: int = 0
    """Updates at the start in which the policy learns the actions of the data, whatever their values are."""
    entropy_in_target: bool = True
    """Whether targets have the entropy's bonus, as SAC's; the authors' code leaves it out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.not_negative(self, "conservative_weight", "imitation_updates")
        checks.at_least_one(self, "sampled_actions")
        checks.above_zero(self, "conservative_learning_rate")
        if self.conservative_threshold is not None and self.conservative_weight == 0:
            raise ValueError(
                f"conservative_threshold is {self.conservative_threshold} and conservative_weight 0, of which it moves"
                " a multiple: set a weight above 0, such as 1, or leave the threshold out"
            )
        if self.dataset and self.her:
            raise ValueError(
                f"her is {self.her!r}, and a dataset is read with its own goals: leave out one of the two settings"
            )

    def scheduled(self, env_steps: int, updates: int) -> dict[str, float]:
        """Removes `noise_theta` while `dataset` is set: the actor reads rows of the data set and does not explore."""
        found = super().scheduled(env_steps, updates)
        return {name: value for name, value in found.items() if not (self.dataset and name == "noise_theta")}

    def of_initial_weights(self, *, all_networks: bool) -> tuple[str, ...]:
        """Adds `initial_temperature`, unless the temperature is fixed: then it is that of the settings."""
        learnt = all_networks and self.temperature_learning_rate > 0
        return (*super().of_initial_weights(all_networks=all_networks), *(("initial_temperature",) if learnt else ()))

    def without_effect(self) -> dict[str, str]:
        """Adds two settings that have no effect.

        These are `conservative_learning_rate` while `conservative_threshold` is not set, and `sampled_actions` while
        `conservative_weight` is 0.
        """
        factor = {"conservative_learning_rate": "conservative_threshold is not set"}
        term = {"sampled_actions": "conservative_weight is 0"}
        return {
            **super().without_effect(),
            **(factor if self.conservative_threshold is None else {}),
            **({} if self.conservative_weight else term),
        }


def memory(spec: EnvSpec, config: CqlSacConfig) -> dict[str, int]:
    """Memory of a run in bytes by part, an upper estimate."""
    return continuous.memory(
        spec,
        config,
        policy=config.policy_hidden,
        critic=config.critic_hidden,
        critics=config.num_critics,
        sampled=3 * config.sampled_actions if config.conservative_weight else 0,
    )
