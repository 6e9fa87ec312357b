"""IQL's losses as pure functions of tensors (Kostrikov et al. 2021).

Names as in the papers: `_tm1` is where the action was taken, `_t` is n steps on. `q_*` of both critics are `[2, B]`,
everything else float32 `[B]`. No action is computed but those of the data: values stand for the maximum over actions.
"""

from __future__ import annotations

import torch
from torch import Tensor


def value_loss(v_tm1: Tensor, q_tm1: Tensor, expectile: float) -> Tensor:
    """`mean |tau - 1(u < 0)| u^2` with `u = min_k q_tm1[k] - v_tm1` (equation 5); no gradient flows into `q_tm1`.

    `q_tm1` are of the target critics, at the actions of the data.
    """
    u = q_tm1.detach().amin(dim=0) - v_tm1
    return torch.mean(torch.where(u < 0, 1 - expectile, expectile) * u.square())


def critics_loss(q_tm1: Tensor, r_t: Tensor, discount_t: Tensor, v_t: Tensor) -> Tensor:
    """The sum over the critics of the mean of `(r_t + discount_t v_t - q_tm1)^2` (equation 6).

    `discount_t` is 0 where the episode terminated, not where it was truncated. No gradient flows into `v_t`.
    """
    target = r_t + discount_t * v_t.detach()
    return torch.mean((target - q_tm1) ** 2, dim=1).sum()


def policy_loss(log_pi_tm1: Tensor, q_tm1: Tensor, v_tm1: Tensor, advantage_scale: float, clip: float) -> Tensor:
    """`-mean exp(beta (min_k q_tm1[k] - v_tm1)) log pi`, the weights at most `clip` (equation 7).

    `log_pi_tm1` is of the actions of the data. No gradient flows into `q_tm1` and `v_tm1`.
    """
    advantage = (q_tm1.amin(dim=0) - v_tm1).detach()
    return -torch.mean((advantage_scale * advantage).exp().clamp(max=clip) * log_pi_tm1)
