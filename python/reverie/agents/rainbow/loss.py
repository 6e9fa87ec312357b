"""Rainbow's losses as pure functions of tensors, one for each head.

Names as in the papers: `_tm1` is where the action was taken, `_t` is n steps on. `q_t_selector` `[B, A]` chooses the
action whose distribution is the target: values of the online network (double) or of the target network. `a_tm1` is
int64 `[B]`, everything else float32; rewards, discounts and weights are `[B]`. The discount is 0 where the episode
terminated, not where it was truncated.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from reverie.agents.apex_dqn.loss import double_q_target
from reverie.agents.discrete import huber, td_errors
from reverie.agents.learning import weighted
from reverie.agents.munchausen import soft_target
from reverie.agents.value_distributions import categorical_target, cross_entropy, divergence, quantile_losses


class HeadLoss(NamedTuple):
    """The result of one batch."""

    loss: Tensor
    """Scalar, to be minimised."""
    errors: Tensor
    """The losses or errors that become priorities, not below 0, `[B]`, detached."""


def of_actions(distributions: Tensor, actions: Tensor) -> Tensor:
    """The distributions `[B, K]` of actions `[B]`, out of those of all `[B, A, K]`."""
    index = actions.reshape(-1, 1, 1).expand(-1, 1, distributions.shape[2])
    return distributions.gather(1, index).squeeze(1)


def categorical_loss(
    log_p_tm1: Tensor,
    a_tm1: Tensor,
    r_t: Tensor,
    discount_t: Tensor,
    p_t: Tensor,
    q_t_selector: Tensor,
    importance_weights: Tensor | None,
    *,
    v_min: float,
    v_max: float,
) -> HeadLoss:
    """Mean weighted cross-entropy to the projected target (Hessel et al. 2018, equation 3), of `[B, A, K]`.

    The errors are the divergences from the target.
    """
    log_p = of_actions(log_p_tm1, a_tm1)
    target = categorical_target(r_t, discount_t, of_actions(p_t, q_t_selector.argmax(dim=1)), v_min, v_max)
    return HeadLoss(torch.mean(weighted(cross_entropy(log_p, target), importance_weights)), divergence(log_p, target))


def quantile_loss(
    z_tm1: Tensor,
    fractions_tm1: Tensor,
    a_tm1: Tensor,
    r_t: Tensor,
    discount_t: Tensor,
    z_t: Tensor,
    q_t_selector: Tensor,
    importance_weights: Tensor | None,
    *,
    huber_delta: float,
    temperature: float = 0.0,
) -> HeadLoss:
    """Mean weighted quantile Huber loss (Dabney et al. 2018b, equation 3) of quantiles `[B, A, N]` and `[B, A, M]`.

    `fractions_tm1` `[B, N]` are those of `z_tm1`. The errors are the losses of the items. With a `temperature`
    the target is of all actions: `sum_a pi(a) (z_t(a) - tau log pi(a))`, `pi = softmax(q_t_selector / tau)` (M-IQN,
    Vieillard et al. 2020).
    """
    if temperature > 0:
        log_pi = torch.log_softmax(q_t_selector / temperature, dim=1).unsqueeze(2)
        quantiles = torch.sum(log_pi.exp() * (z_t - temperature * log_pi), dim=1)
    else:
        quantiles = of_actions(z_t, q_t_selector.argmax(dim=1))
    target = r_t.unsqueeze(1) + discount_t.unsqueeze(1) * quantiles
    losses = quantile_losses(of_actions(z_tm1, a_tm1), fractions_tm1, target, huber_delta)
    return HeadLoss(torch.mean(weighted(losses, importance_weights)), losses.detach())


def scalar_loss(
    q_tm1: Tensor,
    a_tm1: Tensor,
    r_t: Tensor,
    discount_t: Tensor,
    q_t: Tensor,
    q_t_selector: Tensor,
    importance_weights: Tensor | None,
    *,
    huber_delta: float,
    temperature: float = 0.0,
) -> HeadLoss:
    """Mean weighted Huber loss of the TD errors of q-values `[B, A]`, as Ape-X DQN's."""
    if temperature > 0:
        target = soft_target(r_t, discount_t, q_t, temperature)
    else:
        target = double_q_target(r_t, discount_t, q_t, q_t_selector)
    errors = td_errors(q_tm1, a_tm1, target)
    return HeadLoss(torch.mean(weighted(huber(errors, huber_delta), importance_weights)), errors.detach().abs())
