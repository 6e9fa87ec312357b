"""DQN's loss as pure functions of tensors.

Names as in the papers: `_tm1` is where the action was taken, `_t` is n steps on.
`q_*` are `[B, num_actions]`, `a_tm1` int64 `[B]`, everything else float32 `[B]`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from reverie.agents.discrete import huber, td_errors
from reverie.agents.munchausen import soft_target


def q_learning_target(r_t: Tensor, discount_t: Tensor, q_t: Tensor) -> Tensor:
    """`r_t + discount_t * max_a q_t`, of the target network's values (Mnih et al. 2015, algorithm 1).

    `discount_t` is 0 where the episode terminated, not where it was truncated.
    """
    return r_t + discount_t * q_t.amax(dim=1)


def dqn_loss(
    q_tm1: Tensor,
    a_tm1: Tensor,
    r_t: Tensor,
    discount_t: Tensor,
    q_t: Tensor,
    *,
    huber_delta: float,
    temperature: float = 0.0,
) -> Tensor:
    """Mean Huber loss of the TD errors, a scalar; no gradient flows into `q_t`.

    With a `temperature` the soft value of `q_t` is in place of its maximum.
    """
    if temperature > 0:
        target = soft_target(r_t, discount_t, q_t, temperature)
    else:
        target = q_learning_target(r_t, discount_t, q_t)
    return torch.mean(huber(td_errors(q_tm1, a_tm1, target), huber_delta))
