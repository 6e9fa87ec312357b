"""Priorities of TD errors, for learners and actors.

The functions of an `Array` take tensors or NumPy arrays: a learner has batches on its device, and an actor a few
numbers at a time, for which an operation of NumPy takes a fraction of the time of one of PyTorch.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = TypeVar("Array", Tensor, NDArray[Any])


def priorities_of(errors: Array, *, eps: float, clip: float) -> Array:
    """`min(|error|, clip) + eps` of TD errors `[B]`, detached; `clip` 0 does not clip. NaN stays NaN."""
    detached: Any = errors
    if isinstance(detached, Tensor):
        detached = detached.detach()
    absolute: Array = abs(detached)
    return (absolute.clip(max=clip) if clip else absolute) + eps


def library_of(array: Any) -> Any:
    """PyTorch or NumPy, for functions that have the same names and arguments in both."""
    return torch if isinstance(array, Tensor) else np
