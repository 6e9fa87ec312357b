"""Settings of the agent."""

from __future__ import annotations

from dataclasses import dataclass

from reverie.agents import checks, continuous
from reverie.agents.environments import EnvSpec


@dataclass(frozen=True, kw_only=True)
class DdpgConfig(continuous.NoisySettings):
    """Names follow the paper's section 7 where it has one."""

    target_rate: float
    """tau: how far the targets move to the online networks at every update."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.within_unit(self, "target_rate")


def memory(spec: EnvSpec, config: DdpgConfig) -> dict[str, int]:
    """Memory of a run in bytes by part, an upper estimate."""
    return continuous.memory(spec, config, policy=config.policy_hidden, critic=config.critic_hidden, critics=1)
