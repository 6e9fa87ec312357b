"""Networks whose parameters are one vector."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie.agents.flat import FlatNetwork  # noqa: E402


@pytest.fixture
def always_warned():
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


def test_weights_that_are_not_writable_are_loaded_without_a_warning_and_stay_as_they_are(always_warned):
    network = FlatNetwork(torch.nn.Linear(2, 1), trainable=False)
    weights = np.arange(3, dtype=np.float32)
    weights.flags.writeable = False  # as those that come from Ray's object store
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network.load(weights)
    network.flat.data.add_(1)
    assert network.flat.tolist() == [1, 2, 3]
    assert weights.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match=r"weights have shape \(2,\)"):
        network.load(weights[:2])
