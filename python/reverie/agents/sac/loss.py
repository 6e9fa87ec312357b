"""SAC's losses as pure functions of tensors.

Names as in the papers: `_tm1` is where the action was taken, `_t` is n steps on. `q_*` of k critics are `[k, B]`,
actions and what makes them `[B, A]` in units where they span `[-1, 1]`, everything else float32 `[B]`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from reverie.agents.learning import weighted


def squashed_gaussian(mean: Tensor, log_sigma: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """`a = tanh(u)`, `u = mean + sigma * noise`, and `log pi(a)` `[B]` (Haarnoja et al. 2018a, appendix C).

    `log pi(a) = log N(u) - sum log(1 - tanh(u)^2)`, with `log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u))`, which
    stays exact where tanh is 1 in floating point.
    """
    u = mean + log_sigma.exp() * noise
    gaussian = -0.5 * noise**2 - log_sigma - 0.5 * math.log(2 * math.pi)
    squashing = 2.0 * (math.log(2.0) - u - torch.nn.functional.softplus(-2.0 * u))
    return torch.tanh(u), (gaussian - squashing).sum(dim=1)


def soft_target(r_t: Tensor, discount_t: Tensor, q_t: Tensor, log_pi_t: Tensor, temperature: Tensor | float) -> Tensor:
    """`r_t + discount_t * (min_k q_t[k] - alpha log pi_t)` (Haarnoja et al. 2018b, equations 3 and 6).

    `discount_t` is 0 where the episode terminated, not where it was truncated.
    """
    return r_t + discount_t * (q_t.amin(dim=0) - temperature * log_pi_t)


def critics_loss(q_tm1: Tensor, target_tm1: Tensor, weights: Tensor | None = None) -> Tensor:
    """Half the sum of the critics' mean squared errors (ibid., equation 5); no gradient flows into the target.

    `weights` `[B]` are importance weights.
    """
    return 0.5 * torch.mean(weighted((target_tm1.detach() - q_tm1) ** 2, weights), dim=1).sum()


def policy_loss(
    q_tm1: Tensor, log_pi_tm1: Tensor, temperature: Tensor | float, *, mean_of_critics: bool = False
) -> Tensor:
    """`mean(alpha log pi - min_k q[k])` at actions of the policy's own (ibid., equation 9).

    With `mean_of_critics` their mean is in place of the minimum (Chen et al. 2021, algorithm 1, line 12).
    """
    value = q_tm1.mean(dim=0) if mean_of_critics else q_tm1.amin(dim=0)
    return torch.mean(temperature * log_pi_tm1 - value)


def temperature_loss(log_temperature: Tensor, log_pi_tm1: Tensor, target_entropy: float) -> Tensor:
    """`mean(-log alpha (log pi + target entropy))`; no gradient flows into the policy.

    The gradient with respect to `log alpha` is that of equation 18 (ibid.) without its factor alpha, as in the authors'
    code: how fast the temperature moves does not depend on where it is (decision 0169).
    """
    return -torch.mean(log_temperature * (log_pi_tm1.detach() + target_entropy))
