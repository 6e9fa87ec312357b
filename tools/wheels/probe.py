"""Uses an installed wheel a little, over each transport, with NumPy only."""

import platform
import sys

import numpy as np

import reverie
from reverie.testing import TRANSPORTS, serve

for transport in TRANSPORTS:
    table = reverie.Table(
        "t",
        max_size=10,
        sampler=reverie.selectors.Uniform(),
        remover=reverie.selectors.Fifo(),
        rate_limiter=reverie.rate_limiters.MinSize(1),
    )
    with serve([table], transport) as client:
        client.insert_batch("t", {"x": np.arange(4.0)})
        batch = client.sample_batch("t", 8, timeout=100.0)
        assert client.info().transport == transport
        assert batch.data["x"].shape == (8,), batch.data["x"].shape
        assert set(batch.data["x"]) <= {0.0, 1.0, 2.0, 3.0}, batch.data["x"]
assert "torch" not in sys.modules
print(platform.machine(), platform.python_version(), *TRANSPORTS, reverie.__file__)
