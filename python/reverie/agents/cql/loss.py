"""CQL's loss as pure functions of tensors (Kumar et al. 2020).

Names as in the papers: `_tm1` is where the action was taken, `_t` is n steps on.
`q_*` are `[B, num_actions]`, `a_tm1` int64 `[B]`, everything else float32 `[B]`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from reverie.agents.dqn.loss import dqn_loss


class CqlLoss(NamedTuple):
    """The result of one batch, scalars."""

    loss: Tensor
    """The loss to be minimised."""
    gap: Tensor
    """The conservative term without its weight."""


def conservative_gap(q_tm1: Tensor, a_tm1: Tensor) -> Tensor:
    """`mean(log sum_a exp q(s_tm1, a) - q(s_tm1, a_tm1))`: the term of CQL(H) (section 3.2, equation 4), never below 0.

    Its gradient lowers the values of actions by their softmax and raises those of the data, so that an action that the
    data does not have is not worth more than they are.
    """
    taken = q_tm1.gather(1, a_tm1.unsqueeze(1)).squeeze(1)
    return torch.mean(q_tm1.logsumexp(dim=1) - taken)


def cql_loss(
    q_tm1: Tensor,
    a_tm1: Tensor,
    r_t: Tensor,
    discount_t: Tensor,
    q_t: Tensor,
    *,
    conservative_weight: float,
    huber_delta: float,
    temperature: float = 0.0,
) -> CqlLoss:
    """`alpha * conservative_gap`, and half the mean squared TD error of Q-learning (equation 4).

    TD errors beyond `huber_delta` count in a line, as DQN's, and a `temperature` is that of its soft value. No gradient
    flows into `q_t`.
    """
    gap = conservative_gap(q_tm1, a_tm1)
    td = dqn_loss(q_tm1, a_tm1, r_t, discount_t, q_t, huber_delta=huber_delta, temperature=temperature)
    return CqlLoss(conservative_weight * gap + td, gap.detach())
