"""The losses of CQL(H) that SAC does not have, as pure functions of tensors (Kumar et al. 2020).

Names as in the papers: `_tm1` is where the action was taken, `_t` is n steps on. `q_*` of k critics are `[k, B]`,
actions and what makes them `[B, A]` in units where they span `[-1, 1]`, everything else float32 `[B]`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from reverie.agents.learning import weighted
from reverie.agents.sac.loss import squashed_gaussian

MOST = 1 - 1e-6
"""The largest action whose density is computed: that of 1 is not finite."""


def uniform_actions(noise: Tensor) -> tuple[Tensor, Tensor]:
    """Uniform actions `[..., A]` in `[-1, 1]`, from standard normal `noise`, and `log u(a) = -A log 2` `[...]`.

    `erf(z / sqrt(2))` is `2 Phi(z) - 1` with the distribution function Phi of z.
    """
    actions = torch.erf(noise / math.sqrt(2.0))
    return actions, actions.new_full(actions.shape[:-1], -actions.shape[-1] * math.log(2.0))


def log_integral(q: Tensor, log_density: Tensor) -> Tensor:
    """An estimate `[k, B]` of `log` of the integral of `exp q(s, a)` over the actions (appendix F).

    `q` `[k, n, B]` are of actions that were drawn with the densities `exp log_density` `[n, B]`: it is
    `log(1/n sum_i exp(q_i) / density_i)`.
    """
    return (q - log_density).logsumexp(dim=1) - math.log(len(log_density))


def conservative_gap(q: Tensor, log_density: Tensor, q_tm1: Tensor, weights: Tensor | None = None) -> Tensor:
    """`mean(log_integral - q_tm1)` of each critic, `[k]`: the term of CQL(H) (section 3.2, equation 4).

    Its gradient lowers the values of actions by their softmax and raises those of the data. `q` and `log_density` are
    as for `log_integral`, `q_tm1` of the data's actions; `weights` `[B]` are importance weights.
    """
    return torch.mean(weighted(log_integral(q, log_density) - q_tm1, weights), dim=1)


def factor_loss(log_factor: Tensor, gap: Tensor, threshold: float) -> Tensor:
    """`-factor * mean_k(gap - tau)`: dual ascent on alpha (appendix F); no gradient flows into `gap` `[k]`."""
    return -(log_factor.exp() * (gap.detach().mean() - threshold)).sum()


def squashed_log_pi(mean: Tensor, log_sigma: Tensor, actions: Tensor) -> Tensor:
    """`log pi(a)` `[B]` of given actions under the policy `tanh(mean + sigma * noise)`.

    Actions at the bounds count as `MOST`: their density is not finite.
    """
    u = torch.atanh(actions.clamp(-MOST, MOST))
    return squashed_gaussian(mean, log_sigma, (u - mean) / log_sigma.exp())[1]


def imitation_loss(log_pi_data: Tensor, log_pi_tm1: Tensor, temperature: Tensor | float) -> Tensor:
    """`mean(alpha log pi(a) - log pi(a of the data))`: SAC's policy loss with the likelihood in place of the values.

    `log_pi_tm1` is of the policy's own actions; its temperature keeps the deviation from vanishing.
    """
    return torch.mean(temperature * log_pi_tm1 - log_pi_data)
