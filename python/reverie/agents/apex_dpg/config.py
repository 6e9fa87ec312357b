"""Settings of the agent, and its table."""

from __future__ import annotations

import math
from dataclasses import dataclass

from reverie import selectors
from reverie.agents import checks, continuous, replay
from reverie.agents.environments import EnvSpec
from reverie.agents.noise import NoiseSettings
from reverie.agents.rates import AnnealSettings
from reverie.agents.targets import TargetSettings
from reverie.tables import Table


@dataclass(frozen=True, kw_only=True)
class ApexDpgConfig(replay.PrioritizedSettings, TargetSettings, AnnealSettings, NoiseSettings):
    """Names follow the paper's appendix where it has one."""

    policy_hidden: tuple[int, ...]
    """Widths of the hidden layers of the policy network."""
    critic_hidden: tuple[int, ...]
    """Widths of the hidden layers of the critic."""
    policy_learning_rate: float
    """The learning rate of the policy network."""
    critic_learning_rate: float
    """The learning rate of the critic."""
    action_gradient_clip: float
    """The gradient of q with respect to the action is clipped to this much either way, element by element."""
    eviction_exponent: float
    """Below 0: items leave with probabilities in proportion to `priority ** eviction_exponent`."""
    noise_sigma: float
    """Standard deviation of the exploration noise, in units where actions span [-1, 1]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.above_zero(self, "policy_learning_rate", "critic_learning_rate", "action_gradient_clip")
        checks.not_negative(self, "noise_sigma")
        checks.widths(self, "policy_hidden", "critic_hidden")
        if not (math.isfinite(self.eviction_exponent) and self.eviction_exponent <= 0):
            raise ValueError(f"eviction_exponent is {self.eviction_exponent}, and must not be above 0")

    def without_effect(self) -> dict[str, str]:
        """Adds the settings `noise_theta...`, which have no effect while `noise_sigma` is 0.

        Removes `priority_eps` and `priority_clip` if `eviction_exponent` is below 0: priorities then decide which
        items are evicted.
        """
        noise = ("noise_theta", "noise_theta_steps") if self.noise_sigma == 0 else ()
        found = {**super().without_effect(), **dict.fromkeys(noise, "noise_sigma is 0")}
        evicts = ("priority_eps", "priority_clip") if self.eviction_exponent < 0 else ()
        return {name: reason for name, reason in found.items() if name not in evicts}


def make_tables(spec: EnvSpec, config: ApexDpgConfig, *, seed: int) -> list[Table]:
    """One table: items with large TD errors are drawn more often, and those with small ones are evicted first."""
    sampler = selectors.Prioritized(config.priority_exponent, seed=seed)
    remover = selectors.Prioritized(config.eviction_exponent, seed=seed + 1)
    return [replay.make_table(config, sampler, remover)]


def memory(spec: EnvSpec, config: ApexDpgConfig) -> dict[str, int]:
    """Memory of a run in bytes by part, an upper estimate."""
    # Actors hold a critic too: a second one for each is more than enough.
    return continuous.memory(
        spec, config, policy=config.policy_hidden, critic=config.critic_hidden, critics=1 + config.num_actors
    )
