"""Settings of the agent."""

from __future__ import annotations

from dataclasses import dataclass

from reverie.agents import checks, continuous
from reverie.agents.dataset_reader import DatasetSettings
from reverie.agents.environments import EnvSpec
from reverie.agents.rates import AnnealSettings

NUM_CRITICS = 2


@dataclass(frozen=True, kw_only=True)
class IqlConfig(DatasetSettings, AnnealSettings):
    """Names follow the paper where it has one. With a `dataset`, steps of a run are rows that were read of it."""

    policy_hidden: tuple[int, ...]
    """Widths of the hidden layers of the policy network."""
    critic_hidden: tuple[int, ...]
    """Widths of the hidden layers of each critic, and of the value network."""
    policy_learning_rate: float
    """The learning rate of the policy network."""
    critic_learning_rate: float
    """The learning rate of the critics and of the value network."""
    expectile: float
    """tau: the expectile of q-values that the value network learns; 0.5 is their mean, towards 1 their maximum."""
    advantage_scale: float
    """beta: the inverse temperature of the policy's weights `exp(beta (q - v))`; 0 imitates the data."""
    target_rate: float
    """How far the target critics move to the online ones at every update (the paper's alpha)."""
    advantage_clip: float = 100.0
    """The largest weight of a step in the policy's loss."""
    initial_sigma: float = 0.5
    """The deviation of the policy at the start, in units where actions span [-1, 1]. It is then learnt."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.above_zero(self, "policy_learning_rate", "critic_learning_rate", "advantage_clip", "initial_sigma")
        checks.not_negative(self, "advantage_scale")
        checks.within_unit(self, "target_rate")
        checks.widths(self, "policy_hidden", "critic_hidden")
        if not 0 < self.expectile < 1:
            raise ValueError(f"expectile is {self.expectile}, and must lie in (0, 1)")

    def of_initial_weights(self, *, all_networks: bool) -> tuple[str, ...]:
        """Adds `initial_sigma`."""
        return (*super().of_initial_weights(all_networks=all_networks), "initial_sigma")

    def without_effect(self) -> dict[str, str]:
        """Adds `advantage_clip`, which has no effect while `advantage_scale` is 0: all weights of steps are then 1."""
        all_one = self.advantage_scale == 0 and self.advantage_clip >= 1
        idle = {"advantage_clip": "advantage_scale is 0"} if all_one else {}
        return {**super().without_effect(), **idle}


def memory(spec: EnvSpec, config: IqlConfig) -> dict[str, int]:
    """Memory of a run in bytes by part, an upper estimate: the value network counts as a critic more."""
    return continuous.memory(
        spec, config, policy=config.policy_hidden, critic=config.critic_hidden, critics=NUM_CRITICS + 1
    )
