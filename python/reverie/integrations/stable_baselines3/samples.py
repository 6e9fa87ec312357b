"""The samples of the replay buffers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

__all__ = ["PrioritizedSamples"]


class PrioritizedSamples(NamedTuple):
    """Transitions of a prioritised buffer: the fields of SB3's samples, then what prioritised replay adds."""

    observations: Any
    actions: torch.Tensor
    next_observations: Any
    dones: torch.Tensor
    rewards: torch.Tensor
    discounts: torch.Tensor | None
    weights: torch.Tensor
    """Importance weights `[B, 1]`, at most 1 (Schaul et al. 2016, section 3.4)."""
    keys: npt.NDArray[np.int64]
    """The keys of the transitions, for `update_priorities`."""
