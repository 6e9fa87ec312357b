"""Prioritised replay (Schaul et al. 2016): draw, weigh, learn, write the new priorities back by key.

The learner fits y = w x to noisy data in which one row of twenty carries most of the error, and meets
those rows more often because their priority stays high.
"""

import numpy as np

import reverie

table = reverie.Table(
    "replay",
    max_size=2_000,
    sampler=reverie.selectors.Prioritized(0.6, seed=1),
    remover=reverie.selectors.Fifo(),
    rate_limiter=reverie.rate_limiters.MinSize(2_000),
)
client = reverie.Server([table], listen=False).client()

rng = np.random.default_rng(1)
x = rng.normal(size=2_000)
rare = np.arange(2_000) % 20 == 0
y = np.where(rare, 5.0, 1.0) * x
client.insert_batch("replay", {"x": x, "y": y, "rare": rare}, priorities="max")

w, drawn_rare, updates = 0.0, 0, 500
for _ in range(updates):
    batch = client.sample_batch("replay", 64, timeout=5.0)
    weights = batch.weights(beta=0.4)
    error = batch.data["y"] - w * batch.data["x"]
    w += 0.01 * float(np.mean(weights * error * batch.data["x"]))
    result = client.update_priorities("replay", batch.info.key, np.abs(error) + 1e-6)
    assert result.stale == 0
    drawn_rare += int(batch.data["rare"].sum())

share = drawn_rare / (64 * updates)
print(f"w = {w:.2f}; rare rows are {rare.mean():.0%} of the table and {share:.0%} of what was drawn")
assert share > 2 * rare.mean()
