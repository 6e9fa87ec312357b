"""PPO's losses as pure functions of tensors.

Names as in the papers. Arrays of unrolls are float32 `[B, T]`; those of minibatches are `[M]`, outputs of the policy
`[M, O]`, and actions as their distribution has them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from reverie.agents.actor_critic import backward_sums, mean
from reverie.agents.distributions import Categorical, Distribution


def advantages(r_t: Tensor, discount_t: Tensor, lambda_t: Tensor, v: Tensor) -> Tensor:
    """Generalised advantage estimates `[B, T]` (Schulman et al. 2016, equation 16), of values `v` `[B, T + 1]`.

    `A_t = delta_t + discount_t lambda_t A_{t+1}`, `delta_t = r_t + discount_t v_{t+1} - v_t`. `discount_t` is 0 where
    the episode terminated in step t. `lambda_t` is 0 where it ended in any way: the sum stops there, and a truncated
    episode bootstraps from `v_{t+1}`, the value of its true last observation.
    """
    delta = r_t + discount_t * v[:, 1:] - v[:, :-1]
    return backward_sums(delta, discount_t * lambda_t)


ONE_CHOICE = Categorical()
"""One of a set of actions, of any size."""


class PpoLoss(NamedTuple):
    """The result of one minibatch."""

    loss: Tensor
    """Scalar, to be minimised."""
    clipped: Tensor
    """Share of the steps whose ratio is outside the clip."""
    kl: Tensor
    """Estimate of `KL(old, new)`: the mean of `ratio - 1 - log ratio`."""
    entropy: Tensor


def ppo_loss(
    outputs: Tensor,
    values: Tensor,
    actions: Tensor,
    old_log_pi: Tensor,
    advantage: Tensor,
    value_target: Tensor,
    *,
    clip: float | Tensor,
    value_coefficient: float,
    entropy_coefficient: float,
    distribution: Distribution = ONE_CHOICE,
    old_values: Tensor | None = None,
    value_clip: float = 0.0,
    weights: Tensor | None = None,
) -> PpoLoss:
    """`-L^CLIP + c1 L^VF - c2 S` (Schulman et al. 2017, equations 7 and 9), with `L^VF` half the mean squared error.

    `distribution` is the family of the policy. With `value_clip` the error is the larger one of the values and of the
    values within `value_clip` of `old_values`, the actor's. With `weights` `[M]`, which sum up to 1, each mean is
    weighted by them.
    """
    log_ratio = distribution.log_pi(outputs, actions) - old_log_pi
    ratio = log_ratio.exp()
    near_one = ratio.clamp(1 - clip, 1 + clip)  # type: ignore[arg-type]  # both numbers, or both tensors
    surrogate = mean(torch.minimum(ratio * advantage, near_one * advantage), weights)
    squared = (value_target - values) ** 2
    if value_clip > 0:
        assert old_values is not None
        near = old_values + (values - old_values).clamp(-value_clip, value_clip)
        squared = torch.maximum(squared, (value_target - near) ** 2)
    value_loss = 0.5 * mean(squared, weights)
    entropy = mean(distribution.entropy(outputs), weights)
    loss = -surrogate + value_coefficient * value_loss - entropy_coefficient * entropy
    with torch.no_grad():
        clipped = mean(((ratio - 1).abs() > clip).float(), weights)
        kl = mean(ratio - 1 - log_ratio, weights)
    return PpoLoss(loss, clipped, kl, entropy.detach())


def standardised(advantage: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean 0 and deviation 1, also weighted ones; of a single step, 0."""
    centred = advantage - mean(advantage, weights)
    return centred / (mean(centred.square(), weights).sqrt() + 1e-8)


def explained_variance(value: Tensor, target: Tensor) -> Tensor:
    """The share of the targets' variance that the values explain: 1 for exact ones, 0 for a constant."""
    left, all_of_it = (target - value).var(correction=0), target.var(correction=0)
    return torch.where(all_of_it > 0, 1 - left / all_of_it, torch.zeros_like(left))
