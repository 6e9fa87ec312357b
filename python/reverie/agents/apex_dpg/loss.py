"""Ape-X DPG's losses as pure functions of tensors.

Names as in the papers: `_tm1` is where the action was taken, `_t` is n steps on. Actions are `[B, A]`, everything else
float32 `[B]`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from reverie.agents.priorities import priorities_of


class CriticLoss(NamedTuple):
    """The critic's result for one batch."""

    loss: Tensor
    """Scalar, to be minimised."""
    priorities: Tensor
    """`|td_error| + eps`, `[B]`, detached; the table's selector applies alpha."""


def critic_loss(
    q_tm1: Tensor,
    r_t: Tensor,
    discount_t: Tensor,
    q_t: Tensor,
    importance_weights: Tensor,
    *,
    priority_eps: float,
    priority_clip: float = 0.0,
) -> CriticLoss:
    """Half the mean of the weighted squared n-step errors (Horgan et al. 2018, appendix D).

    The target is `r_t + discount_t * q_t` with `q_t = Q'(s_t, pi'(s_t))` of the target networks: `r_t` is the sum of n
    discounted rewards, `discount_t` the product of n discounts, 0 where the episode terminated. No gradient flows into
    it.
    """
    errors = (r_t + discount_t * q_t).detach() - q_tm1
    return CriticLoss(
        0.5 * torch.mean(importance_weights * errors**2), priorities_of(errors, eps=priority_eps, clip=priority_clip)
    )


def policy_loss(a_tm1: Tensor, dq_da: Tensor, clip: float) -> Tensor:
    """A scalar whose gradient with respect to the policy's actions is `-clip(dq/da) / B` (ibid., appendix D).

    `a_tm1` are the policy's own actions, `dq_da` the critic's gradient there, clipped element by element.
    """
    return -torch.mean((a_tm1 * dq_da.detach().clamp(-clip, clip)).sum(dim=1))
