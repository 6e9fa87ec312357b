"""Fixtures that tests of checkpoints share."""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def same():
    """Whether two states have the same values, dtypes and kinds."""
    torch = pytest.importorskip("torch")

    def is_same(a, b):
        if isinstance(a, np.ndarray | torch.Tensor):
            return type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
        if isinstance(a, dict):
            return list(a) == list(b) and all(is_same(a[key], b[key]) for key in a)
        if isinstance(a, list | tuple):
            return type(a) is type(b) and len(a) == len(b) and all(map(is_same, a, b))
        return a == b

    return is_same
