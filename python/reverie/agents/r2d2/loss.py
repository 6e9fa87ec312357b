"""R2D2's loss as pure functions.

Names as in the papers: `_tm1` is where the action was taken, `_t` is after it. `q_*` are `[B, L + 1, num_actions]`,
`v` `[B, L + 1]`, everything else `[B, L]`. `mask` is true at the steps of a sequence, which come first, and false at
the padding of a sequence that its episode ended.

The functions of an `Array` take the tensors of a learner, or the NumPy arrays of an actor.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from reverie.agents.priorities import Array, library_of, priorities_of


class R2d2Loss(NamedTuple):
    """The result of one batch."""

    loss: Tensor
    """Scalar, to be minimised."""
    priorities: Tensor
    """One for each sequence, `[B]`, detached; the table's selector applies alpha."""


def rescale(x: Array, epsilon: float) -> Array:
    """`h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x` (Pohlen et al. 2018, section 3.2)."""
    xp = library_of(x)
    rescaled: Array = xp.sign(x) * (xp.sqrt(abs(x) + 1) - 1) + epsilon * x
    return rescaled


def unrescale(x: Array, epsilon: float) -> Array:
    """`h^-1(x)`: `sign(x) (((sqrt(1 + 4 epsilon (|x| + 1 + epsilon)) - 1) / (2 epsilon))^2 - 1)`.

    Computed as `2 y / (sqrt(1 + 4 epsilon y) + 1)` with `y = |x| + 1 + epsilon`, which cancels no digits.
    """
    xp = library_of(x)
    y = abs(x) + 1 + epsilon
    root = 2 * y / (xp.sqrt(1 + 4 * epsilon * y) + 1)
    value: Array = xp.sign(x) * (xp.square(root) - 1)
    return value


def n_step_returns(r_t: Array, discount_t: Array, v: Array, mask: Any, n_step: int) -> Array:
    """`r_t + discount_t r_{t+1} + ... + discounts v_{t+n}` `[B, L]`, of fewer steps at the end of a sequence.

    Each sequence with m steps bootstraps at the latest from `v[m]`: the value after its last step. A discount is 0
    where the episode terminated. Padding gives numbers without meaning.
    """
    xp, here, last = library_of(v), v[:, :-1], v[:, -1:]
    # At padding a return of any number of steps is the value there, so that the last real step bootstraps from it.
    returns: Array = xp.where(mask, r_t + discount_t * v[:, 1:], here)
    for _ in range(n_step - 1):
        after = xp.concatenate([returns[:, 1:], last], 1)
        returns = xp.where(mask, r_t + discount_t * after, here)
    return returns


def td_errors(
    q_taken: Array, r_t: Array, discount_t: Array, v: Array, mask: Any, *, n_step: int, rescale_epsilon: float
) -> Array:
    """`h(n-step return) - q(s, a)`, 0 at padding (section 2.3, equation 1); `v` are values before `h`."""
    returns = n_step_returns(r_t, discount_t, v, mask, n_step)
    errors: Array = library_of(v).where(mask, rescale(returns, rescale_epsilon) - q_taken, 0.0)
    return errors


def sequence_priorities(errors: Array, mask: Any, *, eta: float, eps: float, clip: float) -> Array:
    """`eta max_t |td_t| + (1 - eta) mean_t |td_t|` of the steps of each sequence, clipped, plus `eps` (section 2.3)."""
    xp = library_of(errors)
    absolute = xp.where(mask, abs(errors), 0.0)
    mixed: Array = eta * xp.amax(absolute, 1) + (1 - eta) * (absolute.sum(1) / mask.sum(1))
    return priorities_of(mixed, eps=eps, clip=clip)


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
    priorities = sequence_priorities(errors.detach(), mask, eta=priority_eta, eps=priority_eps, clip=priority_clip)
    return R2d2Loss(loss, priorities)
