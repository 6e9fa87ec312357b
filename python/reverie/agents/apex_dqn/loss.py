"""Ape-X's loss as pure functions of tensors.

Names as in the papers: `_tm1` is where the action was taken, `_t` is n steps on.
`q_*` are `[B, num_actions]`, `a_tm1` int64 `[B]`, everything else float32 `[B]`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class ApexLoss(NamedTuple):
    """What one batch gives."""

    loss: Tensor
    """Scalar, to be minimised."""
    priorities: Tensor
    """`|td_error| + eps`, `[B]`, detached; alpha is the selector's business."""


def double_q_target(r_t: Tensor, discount_t: Tensor, q_t_value: Tensor, q_t_selector: Tensor) -> Tensor:
    """`r_t + discount_t * q_t_value[argmax_a q_t_selector]` (van Hasselt et al. 2016, section "Double DQN").

    `r_t` is the sum of n discounted rewards and `discount_t` the product of n discounts: 0 where the episode
    terminated, not where it was truncated.
    """
    a_t = q_t_selector.argmax(dim=1, keepdim=True)
    return r_t + discount_t * q_t_value.gather(1, a_t).squeeze(1)


def td_errors(q_tm1: Tensor, a_tm1: Tensor, target_tm1: Tensor) -> Tensor:
    """`target - q(s_tm1, a_tm1)`, `[B]`; no gradient flows into the target."""
    return target_tm1.detach() - q_tm1.gather(1, a_tm1.unsqueeze(1)).squeeze(1)


def huber(x: Tensor, delta: float) -> Tensor:
    """`0.5 x^2` within `delta`, `delta (|x| - 0.5 delta)` beyond: the gradient is `x` clipped to `[-delta, delta]`."""
    return torch.nn.functional.huber_loss(x, torch.zeros_like(x), reduction="none", delta=delta)


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
) -> ApexLoss:
    """Mean of the weighted Huber losses of the n-step double-Q errors, and the priorities that follow from them.

    Schaul et al. 2016, algorithm 1: weights scale the update, priorities are |td| of the same forward pass.
    """
    target = double_q_target(r_t, discount_t, q_t_value, q_t_selector)
    errors = td_errors(q_tm1, a_tm1, target)
    loss = torch.mean(importance_weights * huber(errors, huber_delta))
    return ApexLoss(loss, errors.detach().abs() + priority_eps)
