"""Ape-X's loss as pure functions of tensors.

Names as in the papers: `_tm1` is where the action was taken, `_t` is n steps on.
`q_*` are `[B, num_actions]`, `a_tm1` int64 `[B]`, everything else float32 `[B]`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from reverie.agents.discrete import huber, td_errors
from reverie.agents.munchausen import soft_target
from reverie.agents.priorities import priorities_of


class ApexLoss(NamedTuple):
    """The result of one batch."""

    loss: Tensor
    """Scalar, to be minimised."""
    priorities: Tensor
    """`min(|td_error|, clip) + eps`, `[B]`, detached; the table's selector applies alpha."""


def double_q_target(r_t: Tensor, discount_t: Tensor, q_t_value: Tensor, q_t_selector: Tensor) -> Tensor:
    """`r_t + discount_t * q_t_value[argmax_a q_t_selector]` (van Hasselt et al. 2016, section "Double DQN").

    `r_t` is the sum of n discounted rewards and `discount_t` the product of n discounts: 0 where the episode
    terminated, not where it was truncated.
    """
    a_t = q_t_selector.argmax(dim=1, keepdim=True)
    return r_t + discount_t * q_t_value.gather(1, a_t).squeeze(1)


def apex_dqn_loss(
    q_tm1: Tensor,
    a_tm1: Tensor,
    r_t: Tensor,
    discount_t: Tensor,
    q_t_value: Tensor,
    q_t_selector: Tensor,
    importance_weights: Tensor,
    *,
    huber_delta: float,
    priority_eps: float,
    priority_clip: float = 0.0,
    temperature: float = 0.0,
) -> ApexLoss:
    """Mean of the weighted Huber losses of the n-step double-Q errors, and the priorities that follow from them.

    Schaul et al. 2016, algorithm 1: weights scale the update, priorities are |td| of the same forward pass. With a
    `temperature` the soft value of `q_t_value` is in place of double Q-learning, and `q_t_selector` is not read.
    """
    if temperature > 0:
        target = soft_target(r_t, discount_t, q_t_value, temperature)
    else:
        target = double_q_target(r_t, discount_t, q_t_value, q_t_selector)
    errors = td_errors(q_tm1, a_tm1, target)
    loss = torch.mean(importance_weights * huber(errors, huber_delta))
    return ApexLoss(loss, priorities_of(errors, eps=priority_eps, clip=priority_clip))
