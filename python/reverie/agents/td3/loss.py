"""TD3's losses as pure functions of tensors.

Names as in the paper: `_tm1` is where the action was taken, `_t` is n steps on. `q_*` of k critics are `[k, B]`,
actions `[B, A]` in `[-1, 1]`, everything else float32 `[B]`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from reverie.agents.learning import weighted


def smoothed(a_t: Tensor, noise: Tensor, clip: float) -> Tensor:
    """`clip(a_t + clip(noise, -c, c), -1, 1)`: target policy smoothing (Fujimoto et al. 2018, equation 14)."""
    return (a_t + noise.clamp(-clip, clip)).clamp(-1.0, 1.0)


def clipped_double_q_target(r_t: Tensor, discount_t: Tensor, q_t: Tensor) -> Tensor:
    """`r_t + discount_t * min_k q_t[k]` (ibid., equation 10); `q_t` of the target critics at the smoothed action.

    `discount_t` is 0 where the episode terminated, not where it was truncated.
    """
    return r_t + discount_t * q_t.amin(dim=0)


def critics_loss(q_tm1: Tensor, target_tm1: Tensor, weights: Tensor | None = None) -> Tensor:
    """The sum over the critics of their mean squared TD errors, a scalar; no gradient flows into the target.

    `weights` `[B]` are importance weights.
    """
    return torch.mean(weighted((target_tm1.detach() - q_tm1) ** 2, weights), dim=1).sum()


def policy_loss(q_tm1: Tensor) -> Tensor:
    """`-mean Q_1(s_tm1, pi(s_tm1))`: of the first critic alone (ibid., algorithm 1)."""
    return -torch.mean(q_tm1[0])
