"""Fixtures that tests of checkpoints share; the tests of this folder import its other helpers."""

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def same():
    """Whether two states have the same values, dtypes and kinds."""
    import torch

    def is_same(a, b):
        if isinstance(a, np.ndarray | torch.Tensor):
            return type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
        if isinstance(a, dict):
            return list(a) == list(b) and all(is_same(a[key], b[key]) for key in a)
        if isinstance(a, list | tuple):
            return type(a) is type(b) and len(a) == len(b) and all(map(is_same, a, b))
        return a == b

    return is_same
