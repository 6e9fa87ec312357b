"""Settings of the agent."""

from __future__ import annotations

from dataclasses import dataclass

from reverie.agents import checks, continuous
from reverie.agents.environments import EnvSpec
from reverie.agents.noise import CorrelatedSettings
from reverie.agents.rates import AnnealSettings

POLICY_CRITICS = ("min", "mean")


@dataclass(frozen=True, kw_only=True)
class SacConfig(continuous.EnsembleSettings, CorrelatedSettings, AnnealSettings):
    """Names follow the second paper where it has one."""

    policy_hidden: tuple[int, ...]
    """Widths of the hidden layers of the policy network."""
    critic_hidden: tuple[int, ...]
    """Widths of the hidden layers of each critic."""
    policy_learning_rate: float
    """The learning rate of the policy network."""
    critic_learning_rate: float
    """The learning rate of the critics."""
    temperature_learning_rate: float
    """The learning rate of the temperature; 0 keeps it where it starts."""
    initial_temperature: float
    """alpha at the start."""
    entropy_per_action: float
    """The target entropy, divided by the number of components of an action; -1 in the paper."""
    target_rate: float
    """tau: how far the target critics move to the online ones at every update."""
    random_steps: int
    """Environment steps, of all actors together, with uniform actions at the start."""
    policy_period: int = 1
    """Updates of the critics for each of the policy and the temperature."""
    policy_critics: str = "min"
    """The value that the policy maximises: the "min" of the critics, or their "mean" (REDQ, DroQ)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.above_zero(self, "policy_learning_rate", "critic_learning_rate", "initial_temperature")
        checks.not_negative(self, "temperature_learning_rate", "random_steps")
        checks.within_unit(self, "target_rate")
        checks.at_least_one(self, "policy_period")
        checks.one_of(self, "policy_critics", POLICY_CRITICS)
        checks.widths(self, "policy_hidden", "critic_hidden")

    def of_initial_weights(self, *, all_networks: bool) -> tuple[str, ...]:
        """Adds `initial_temperature`, unless the temperature is fixed: then it is that of the settings."""
        learnt = all_networks and self.temperature_learning_rate > 0
        return (*super().of_initial_weights(all_networks=all_networks), *(("initial_temperature",) if learnt else ()))

    def without_effect(self) -> dict[str, str]:
        """Adds two settings that have no effect.

        These are `entropy_per_action` while `temperature_learning_rate` is 0 (the temperature is fixed), and
        `policy_critics` while `num_critics` is 1.
        """
        entropy = {} if self.temperature_learning_rate else {"entropy_per_action": "temperature_learning_rate is 0"}
        critics = {"policy_critics": "num_critics is 1"} if self.num_critics == 1 else {}
        return {**super().without_effect(), **entropy, **critics}


def memory(spec: EnvSpec, config: SacConfig) -> dict[str, int]:
    """Memory of a run in bytes by part, an upper estimate."""
    return continuous.memory(
        spec, config, policy=config.policy_hidden, critic=config.critic_hidden, critics=config.num_critics
    )
