"""D4PG's losses as pure functions of tensors.

Names as in the papers: `_tm1` is where the action was taken, `_t` is n steps on. Distributions are `[B, K]`, everything
else float32 `[B]`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from reverie.agents.learning import weighted
from reverie.agents.value_distributions import categorical_target, cross_entropy, divergence


class CriticLoss(NamedTuple):
    """The critic's result for one batch."""

    loss: Tensor
    """Scalar, to be minimised."""
    errors: Tensor
    """The divergences from the target, `[B]`, detached: what priorities are made of."""


def critic_loss(
    log_p_tm1: Tensor,
    r_t: Tensor,
    discount_t: Tensor,
    p_t: Tensor,
    importance_weights: Tensor | None,
    *,
    v_min: float,
    v_max: float,
) -> CriticLoss:
    """Mean weighted cross-entropy to the projected target (Barth-Maron et al. 2018, section 3 and appendix A).

    `p_t` are probabilities of the target critic at the target policy's actions. `r_t` is the sum of n discounted
    rewards, `discount_t` the product of n discounts, 0 where the episode terminated. No gradient flows into the target.
    """
    target = categorical_target(r_t, discount_t, p_t, v_min, v_max)
    losses = weighted(cross_entropy(log_p_tm1, target), importance_weights)
    return CriticLoss(torch.mean(losses), divergence(log_p_tm1, target))


def policy_loss(q_tm1: Tensor) -> Tensor:
    """`-mean E[Z(s_tm1, pi(s_tm1))]` (ibid., equation 4)."""
    return -torch.mean(q_tm1)
