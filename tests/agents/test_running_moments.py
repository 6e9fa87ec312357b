"""Mean and variance of numbers that arrive in batches."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie.agents.inputs import RunningMoments  # noqa: E402
from reverie.agents.layers import initialised  # noqa: E402


def test_moments_merged_batch_by_batch_are_those_of_all_numbers():
    rng = np.random.default_rng(0)
    parts = [rng.normal(1000.0, 3.0, (n, 2)).astype(np.float32) for n in (1, 5, 40, 2)]
    moments = initialised(lambda: RunningMoments(2), 0)
    x = torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(moments(x), x.clamp(-10, 10), atol=1e-6), "they change nothing before the first batch"
    for part in parts:
        moments.merge(torch.from_numpy(part))
    whole = np.concatenate(parts).astype(np.float64)
    assert moments.count.item() == 48
    spacing = np.spacing(np.float32(1000.0))
    assert np.abs(moments.mean.detach().numpy() - whole.mean(axis=0)).max() < len(parts) * spacing
    assert np.allclose(moments.variance.detach().numpy(), whole.var(axis=0), rtol=1e-3)
    moments.merge(torch.empty(0, 2))
    assert moments.count.item() == 48
