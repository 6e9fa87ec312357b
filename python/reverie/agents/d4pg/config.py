"""Settings of the agent."""

from __future__ import annotations

from dataclasses import dataclass

from reverie.agents import checks, continuous
from reverie.agents.environments import EnvSpec
from reverie.agents.targets import TargetSettings


@dataclass(frozen=True, kw_only=True)
class D4pgConfig(continuous.NoisySettings, TargetSettings):
    """Names follow the paper where it has one."""

    v_min: float
    """The smallest return of the critic; those below count as it."""
    v_max: float
    """The largest return of the critic."""
    num_atoms: int = 51
    """Values of the critic's distribution, at equal distances."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.support(self, "v_min", "v_max", "num_atoms")


def memory(spec: EnvSpec, config: D4pgConfig) -> dict[str, int]:
    """Memory of a run in bytes by part, an upper estimate."""
    return continuous.memory(
        spec,
        config,
        policy=config.policy_hidden,
        critic=config.critic_hidden,
        critics=1,
        outputs=config.num_atoms,
    )
