"""V-trace and IMPALA's loss as pure functions of tensors (Espeholt et al. 2018).

Names as in the paper: `mu` acted, `pi` is learnt. Arrays of unrolls are float32 `[B, T]`; those of the steps among them
are `[M]`, logits `[M, num_actions]`, actions int64 `[M]`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from reverie.agents.actor_critic import backward_sums, mean
from reverie.agents.distributions import log_pi_of, log_softmax


class VTrace(NamedTuple):
    """The results of V-trace for unrolls, `[B, T]` each."""

    v_s: Tensor
    """Targets of the values (equation 1)."""
    advantage: Tensor
    """`rho_s (r_s + discount_s v_{s+1} - V(x_s))`: what scales the gradient of `log pi` (section 4.2)."""


def vtrace(
    log_rho: Tensor, r_t: Tensor, discount_t: Tensor, lambda_t: Tensor, v: Tensor, *, rho_bar: float, c_bar: float
) -> VTrace:
    """V-trace targets by the recursion of remark 1, with `log_rho = log pi(a_t | x_t) - log mu(a_t | x_t)`.

    `v` `[B, T + 1]` are the values of all observations, that after the unroll included. `discount_t` is 0 where the
    episode terminated in step t. `lambda_t` scales `c_t` (remark 2) and is 0 where the episode ended in any way: the
    trace stops there, and a truncated episode bootstraps from `v_{t+1}`, the value of its true last observation. So
    does the advantage: after the end follows another episode. With lambda between 0 and 1 it bootstraps from a mixture
    of `v_{s+1}`, with weight lambda, and the value there; lambda 1 is the paper's.
    """
    rho = log_rho.exp()
    rho_t, c_t = rho.clamp(max=rho_bar), lambda_t * rho.clamp(max=c_bar)
    delta_v = rho_t * (r_t + discount_t * v[:, 1:] - v[:, :-1])
    v_s = v[:, :-1] + backward_sums(delta_v, discount_t * c_t)
    v_next = torch.cat([v_s[:, 1:], v[:, -1:]], dim=1)
    v_next = lambda_t * v_next + (1 - lambda_t) * v[:, 1:]
    return VTrace(v_s, rho_t * (r_t + discount_t * v_next - v[:, :-1]))


class ImpalaLoss(NamedTuple):
    """The result of one batch."""

    loss: Tensor
    """Scalar, to be minimised."""
    entropy: Tensor


def impala_loss(
    logits: Tensor,
    values: Tensor,
    actions: Tensor,
    v_s: Tensor,
    advantage: Tensor,
    *,
    value_coefficient: float,
    entropy_coefficient: float,
    sizes: tuple[int, ...] = (),
    weights: Tensor | None = None,
) -> ImpalaLoss:
    """Means over the steps of `-advantage log pi`, of half the squared value errors, and of the entropy (section 4.2).

    No gradient flows into `v_s` and `advantage`. `sizes` are those of the parts of actions `[M, A]`, which are
    independent. With `weights` `[M]`, which sum up to 1, each mean is weighted by them.
    """
    log_pi = log_softmax(logits, sizes)
    policy_loss = -mean(advantage.detach() * log_pi_of(log_pi, actions, sizes), weights)
    value_loss = 0.5 * mean((v_s.detach() - values) ** 2, weights)
    entropy = -mean((log_pi.exp() * log_pi).sum(dim=1), weights)
    loss = policy_loss + value_coefficient * value_loss - entropy_coefficient * entropy
    return ImpalaLoss(loss, entropy.detach())
