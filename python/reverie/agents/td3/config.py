"""Settings of the agent."""

from __future__ import annotations

from dataclasses import dataclass

from reverie.agents import checks, continuous
from reverie.agents.environments import EnvSpec


@dataclass(frozen=True, kw_only=True)
class Td3Config(continuous.EnsembleSettings, continuous.NoisySettings):
    """Names follow the paper's algorithm 1 where it has one."""

    target_rate: float
    """tau: how far the targets move to the online networks at every update of the policy."""
    policy_period: int
    """d: updates of the critics for each of the policy and the targets."""
    smoothing_sigma: float
    """Deviation of the noise on the target policy's actions, in units where actions span [-1, 1]."""
    smoothing_clip: float
    """The bound to which that noise is clipped, either way."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.within_unit(self, "target_rate")
        checks.at_least_one(self, "policy_period")
        checks.not_negative(self, "smoothing_sigma", "smoothing_clip")

    def without_effect(self) -> dict[str, str]:
        """Adds `smoothing_clip` while `smoothing_sigma` is 0, or `smoothing_sigma` while `smoothing_clip` is 0."""
        idle = {}
        if self.smoothing_sigma == 0:
            idle = {"smoothing_clip": "smoothing_sigma is 0"}
        elif self.smoothing_clip == 0:
            idle = {"smoothing_sigma": "smoothing_clip is 0"}
        return {**super().without_effect(), **idle}


def memory(spec: EnvSpec, config: Td3Config) -> dict[str, int]:
    """Memory of a run in bytes by part, an upper estimate."""
    return continuous.memory(
        spec, config, policy=config.policy_hidden, critic=config.critic_hidden, critics=config.num_critics
    )
