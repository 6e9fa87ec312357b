"""Distributions of returns: probabilities on fixed values (C51, D4PG) and quantiles (IQN). Pure functions.

Names as in the papers: `_tm1` is where the action was taken, `_t` is n steps on.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def support(v_min: float, v_max: float, num_atoms: int, device: torch.device) -> Tensor:
    """The values `[K]` of a categorical distribution, at equal distances from `v_min` to `v_max`."""
    return torch.linspace(v_min, v_max, num_atoms, device=device)


def projected(values: Tensor, probabilities: Tensor, v_min: float, v_max: float) -> Tensor:
    """Probabilities `[B, K]` of any values `[B, K]`, as those of the K values of `support`.

    Values outside of `[v_min, v_max]` count as the bound. The probability of a value between two of the support goes
    to both, in proportion to their nearness (Bellemare et al. 2017, algorithm 1; equation 7). If a value is not finite,
    which a bound would hide, some probabilities of its row are NaN.
    """
    atoms = probabilities.shape[1]
    probabilities = torch.where(values.isfinite(), probabilities, torch.nan)
    places = (values.nan_to_num().clamp(v_min, v_max) - v_min) * ((atoms - 1) / (v_max - v_min))
    places = places.clamp(max=atoms - 1)  # in float32 that of `v_max` may round to more: a share above 1
    lower = places.floor().clamp(max=atoms - 2)
    upper_share = places - lower
    index = lower.long()
    found = torch.zeros_like(probabilities)
    found = found.scatter_add(1, index, probabilities * (1 - upper_share))
    return found.scatter_add(1, index + 1, probabilities * upper_share)


def categorical_target(r_t: Tensor, discount_t: Tensor, p_t: Tensor, v_min: float, v_max: float) -> Tensor:
    """Probabilities `[B, K]` of `r_t + discount_t Z_t` on the support, where Z has the probabilities `p_t` `[B, K]`.

    `r_t` and `discount_t` are `[B]`; the discount is 0 where the episode terminated. No gradient flows into the target.
    """
    z = support(v_min, v_max, p_t.shape[1], p_t.device)
    return projected(r_t.unsqueeze(1) + discount_t.unsqueeze(1) * z, p_t, v_min, v_max).detach()


def cross_entropy(log_p: Tensor, target: Tensor) -> Tensor:
    """`-sum_i target_i log p_i`, `[B]` (Bellemare et al. 2017, algorithm 1)."""
    return -(target * log_p).sum(dim=1)


def divergence(log_p: Tensor, target: Tensor) -> Tensor:
    """`KL(target || p)`, `[B]`, detached: the priority of Rainbow (Hessel et al. 2018, "Prioritized replay")."""
    entropy: Tensor = -torch.special.xlogy(target, target).sum(dim=1)
    return (cross_entropy(log_p, target) - entropy).detach().clamp(min=0.0)


def fractions_of(noise: Tensor) -> Tensor:
    """Uniform numbers in (0, 1) of standard normal ones: their distribution function."""
    fractions: Tensor = torch.special.ndtr(noise)
    return fractions


def midpoints(count: int, device: torch.device) -> Tensor:
    """`(i + 1/2) / count`, `[count]`: the fractions of which the quantiles' mean is the distribution's."""
    return (torch.arange(count, device=device) + 0.5) / count


def quantile_losses(z_tm1: Tensor, fractions: Tensor, target: Tensor, kappa: float) -> Tensor:
    """The quantile Huber losses `[B]` (Dabney et al. 2018b, equations 3 and 4).

    `z_tm1` `[B, N]` are the quantiles at the fractions `[B, N]`, `target` `[B, M]` draws of what they estimate: the sum
    over the N of the mean over the M of `|tau - 1(u < 0)| huber(u) / kappa`, `u` the target less the quantile. No
    gradient flows into the target.
    """
    u = target.detach().unsqueeze(1) - z_tm1.unsqueeze(2)
    losses = functional.huber_loss(u, torch.zeros_like(u), reduction="none", delta=kappa) / kappa
    weights = (fractions.unsqueeze(2) - (u.detach() < 0).float()).abs()
    return (weights * losses).mean(dim=2).sum(dim=1)
