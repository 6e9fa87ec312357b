"""Uniform replay: insert rows, draw batches, the oldest leave when the table is full."""

import numpy as np

import reverie

table = reverie.Table(
    "replay",
    max_size=5_000,
    sampler=reverie.selectors.Uniform(seed=0),
    remover=reverie.selectors.Fifo(),
    rate_limiter=reverie.rate_limiters.MinSize(500),
)
client = reverie.Server([table], listen=False).client()

rng = np.random.default_rng(0)
for block in range(12):
    client.insert_batch(
        "replay",
        {
            "obs": rng.normal(size=(1_000, 4)).astype(np.float32),
            "action": rng.integers(0, 2, 1_000),
            "reward": rng.normal(size=1_000).astype(np.float32),
            "block": np.full(1_000, block),
        },
        priorities=np.ones(1_000),
    )

batch = client.sample_batch("replay", 256, timeout=5.0)
print("batch:", {name: (column.shape, str(column.dtype)) for name, column in batch.data.items()})
print("blocks still there:", np.unique(batch.data["block"]))
assert client.info().tables["replay"].current_size == 5_000
assert batch.data["block"].min() >= 7, "the first seven thousand have left"
