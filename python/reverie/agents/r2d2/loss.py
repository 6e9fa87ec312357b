"""R2D2's loss as pure functions of tensors.

Names as in the papers: `_tm1` is where the action was taken, `_t` is after it. `q_*` are `[B, L + 1, num_actions]`,
`v` `[B, L + 1]`, everything else `[B, L]`. `mask` is true at the steps of a sequence, which come first, and false at
the padding of a sequence that its episode ended.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from reverie.agents.learning import priorities_of


class R2d2Loss(NamedTuple):
    """The result of one batch."""

    loss: Tensor
    """Scalar, to be minimised."""
    priorities: Tensor
    """One for each sequence, `[B]`, detached; the table's selector applies alpha."""


def rescale(x: Tensor, epsilon: float) -> Tensor:
    """`h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x` (Pohlen et al. 2018, section 3.2)."""
    return torch.sign(x) * (torch.sqrt(x.abs() + 1) - 1) + epsilon * x


def unrescale(x: Tensor, epsilon: float) -> Tensor:
    """`h^-1(x)`: `sign(x) (((sqrt(1 + 4 epsilon (|x| + 1 + epsilon)) - 1) / (2 epsilon))^2 - 1)`.

    Computed as `2 y / (sqrt(1 + 4 epsilon y) + 1)` with `y = |x| + 1 + epsilon`, which cancels no digits.
    """
    y = x.abs() + 1 + epsilon
    root = 2 * y / (torch.sqrt(1 + 4 * epsilon * y) + 1)
    return torch.sign(x) * (root.square() - 1)


def n_step_returns(r_t: Tensor, discount_t: Tensor, v: Tensor, mask: Tensor, n_step: int) -> Tensor:
    """`r_t + discount_t r_{t+1} + ... + discounts v_{t+n}` `[B, L]`, of fewer steps at the end of a sequence.

    Each sequence with m steps bootstraps at the latest from `v[m]`: the value after its last step. A discount is 0
    where the episode terminated. Padding gives numbers without meaning.
    """
    length, end = r_t.shape[1], mask.sum(dim=1, keepdim=True)
    steps = torch.arange(length + n_step, device=r_t.device)
    v = v.gather(1, torch.minimum(steps[None], end).expand(len(r_t), -1))
    rest = (len(r_t), n_step - 1)
    r_t = torch.cat([torch.where(mask, r_t, 0.0), r_t.new_zeros(rest)], dim=1)
    discount_t = torch.cat([torch.where(mask, discount_t, 1.0), r_t.new_ones(rest)], dim=1)
    returns = v[:, n_step:]
    for k in reversed(range(n_step)):
        returns = r_t[:, k : k + length] + discount_t[:, k : k + length] * returns
    return returns


def td_errors(
    q_taken: Tensor, r_t: Tensor, discount_t: Tensor, v: Tensor, mask: Tensor, *, n_step: int, rescale_epsilon: float
) -> Tensor:
    """`h(n-step return) - q(s, a)`, 0 at padding (section 2.3, equation 1); `v` are values before `h`."""
    returns = n_step_returns(r_t, discount_t, v, mask, n_step)
    return torch.where(mask, rescale(returns, rescale_epsilon) - q_taken, 0.0)


def sequence_priorities(errors: Tensor, mask: Tensor, *, eta: float, eps: float, clip: float) -> Tensor:
    """`eta max_t |td_t| + (1 - eta) mean_t |td_t|` of the steps of each sequence, clipped, plus `eps` (section 2.3)."""
    absolute = torch.where(mask, errors.detach().abs(), 0.0)
    mean = absolute.sum(dim=1) / mask.sum(dim=1)
    return priorities_of(eta * absolute.amax(dim=1) + (1 - eta) * mean, eps=eps, clip=clip)


def r2d2_loss(
    q_tm1: Tensor,
    a_tm1: Tensor,
    r_t: Tensor,
    discount_t: Tensor,
    q_value: Tensor,
    mask: Tensor,
    importance_weights: Tensor,
    *,
    n_step: int,
    rescale_epsilon: float,
    priority_eta: float,
    priority_eps: float,
    priority_clip: float = 0.0,
) -> R2d2Loss:
    """Half the squared n-step double-Q errors, weighted by sequence, summed and divided by B L; and new priorities.

    `q_tm1` are of the online network and select the actions whose `q_value`, of the target network, bootstraps.
    """
    best = q_tm1.detach().argmax(dim=2, keepdim=True)
    v = unrescale(q_value.gather(2, best).squeeze(2), rescale_epsilon)
    q_taken = q_tm1[:, :-1].gather(2, a_tm1.unsqueeze(2)).squeeze(2)
    errors = td_errors(q_taken, r_t, discount_t, v, mask, n_step=n_step, rescale_epsilon=rescale_epsilon)
    loss = torch.mean(importance_weights[:, None] * 0.5 * errors.square())
    priorities = sequence_priorities(errors, mask, eta=priority_eta, eps=priority_eps, clip=priority_clip)
    return R2d2Loss(loss, priorities)
