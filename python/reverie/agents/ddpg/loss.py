"""DDPG's losses as pure functions of tensors.

Names as in the paper: `_tm1` is where the action was taken, `_t` is n steps on. All are float32 `[B]`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from reverie.agents.learning import weighted


def critic_target(r_t: Tensor, discount_t: Tensor, q_t: Tensor) -> Tensor:
    """`r_t + discount_t * q_t`, with `q_t = Q'(s_t, mu'(s_t))` of the target networks (Lillicrap et al. 2016, alg. 1).

    `discount_t` is 0 where the episode terminated, not where it was truncated.
    """
    return r_t + discount_t * q_t


def critic_loss(q_tm1: Tensor, target_tm1: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean squared TD error, a scalar; no gradient flows into the target. `weights` `[B]` are importance weights."""
    return torch.mean(weighted((target_tm1.detach() - q_tm1) ** 2, weights))


def policy_loss(q_tm1: Tensor) -> Tensor:
    """`-mean Q(s_tm1, mu(s_tm1))`: its gradient is the deterministic policy gradient (ibid., equation 6)."""
    return -torch.mean(q_tm1)
