"""Munchausen RL: the log-probability of the action is part of its reward (Vieillard et al. 2020).

The policy is `pi = softmax(q / tau)` of the target network's values. With `alpha` of the settings, targets are

    r_t + alpha [tau log pi(a_tm1 | s_tm1)]_l0^0 + discount_t sum_a pi(a | s_t) (q(s_t, a) - tau log pi(a | s_t))

(section 3). The difference between the best action's value and another's grows to `1 / (1 - alpha)` times itself, by
`alpha |l0|` at most: errors of the estimates hide it less. In the sum of the rewards of several steps only the first
action has its term.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from reverie.agents import checks
from reverie.agents.settings import Settings


@dataclass(frozen=True, kw_only=True)
class MunchausenSettings(Settings):
    """How much of the log-probability of actions is added to rewards.

    The paper's numbers are for rewards within 1: where they are ten times as large, so should be tau and l0.
    """

    munchausen: float = 0.0
    """alpha: the share of `tau log pi` of an action that is added to its reward (0.9 in the paper). Above 0 the value
    of the next observation is the soft one, of all actions."""
    munchausen_temperature: float = 0.03
    """tau: of the policy `softmax(q / tau)`. In the unit of the rewards that are learnt from (deviations, if they are
    normalised): the paper's 0.03 is for games, whose rewards are within 1."""
    munchausen_clip: float = -1.0
    """l0: the least `tau log pi` of an action, in the same unit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.within_unit(self, "munchausen")
        checks.above_zero(self, "munchausen_temperature")
        if not (self.munchausen_clip < 0 and math.isfinite(self.munchausen_clip)):
            raise ValueError(f"munchausen_clip is {self.munchausen_clip}, and must be below 0")

    def without_effect(self) -> dict[str, str]:
        """Adds `munchausen_temperature` and `munchausen_clip`, which have no effect while `munchausen` is 0."""
        names = () if self.munchausen > 0 else ("munchausen_temperature", "munchausen_clip")
        return {**super().without_effect(), **dict.fromkeys(names, "munchausen is 0")}

    @property
    def soft_temperature(self) -> float:
        """tau of the value of the next observation; 0 where it is not soft."""
        return self.munchausen_temperature if self.munchausen > 0 else 0.0

    def learnt_rewards(self, r_t: Tensor, a_tm1: Tensor, values: Callable[[], Tensor]) -> Tensor:
        """The rewards `[B]` of actions `[B]`, with their term; `values` computes `[B, A]` of the target network."""
        return r_t + self.policy_terms(values(), a_tm1) if self.munchausen > 0 else r_t

    def policy_terms(self, q_tm1: Tensor, a_tm1: Tensor) -> Tensor:
        """`alpha [tau log pi(a_tm1)]_l0^0` `[B]` of values `[B, A]`; no gradient flows into them."""
        tau = self.munchausen_temperature
        log_pi = torch.log_softmax(q_tm1.detach() / tau, dim=1).gather(1, a_tm1.unsqueeze(1)).squeeze(1)
        return self.munchausen * (tau * log_pi).clamp(min=self.munchausen_clip)


def soft_value(q: Tensor, temperature: float) -> Tensor:
    """`sum_a pi(a) (q(a) - tau log pi(a)) = tau log sum_a exp(q(a) / tau)`, `[B]` of `[B, A]`."""
    return temperature * torch.logsumexp(q / temperature, dim=1)


def soft_target(r_t: Tensor, discount_t: Tensor, q_t: Tensor, temperature: float) -> Tensor:
    """`r_t + discount_t * soft_value(q_t)`, `[B]`, of the target network's values `[B, A]`."""
    return r_t + discount_t * soft_value(q_t, temperature)
