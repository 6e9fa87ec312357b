"""Overlapping sequences for a recurrent learner: twenty steps each, a new one every ten, each step stored once."""

import numpy as np

import reverie

LENGTH, PERIOD = 20, 10
table = reverie.Table(
    "sequences",
    max_size=1_000,
    sampler=reverie.selectors.Uniform(seed=4),
    remover=reverie.selectors.Fifo(),
    rate_limiter=reverie.rate_limiters.MinSize(10),
)
client = reverie.Server([table], listen=False).client()

rng = np.random.default_rng(4)
with client.trajectory_writer(num_keep_alive_refs=LENGTH) as writer:
    for _episode in range(5):
        for t in range(1, 101):
            writer.append({"obs": rng.normal(size=8).astype(np.float32), "action": t % 3, "step": t})
            if t >= LENGTH and t % PERIOD == 0:
                history = writer.history
                writer.create_item(
                    "sequences",
                    priority=1.0,
                    trajectory={name: history[name][-LENGTH:] for name in ("obs", "action", "step")},
                )
        writer.end_episode()

batch = client.sample_batch("sequences", 16, timeout=5.0)
print("columns:", {name: column.shape for name, column in batch.data.items()})
assert batch.data["obs"].shape == (16, LENGTH, 8)
assert (np.diff(batch.data["step"], axis=1) == 1).all(), "consecutive, and never across an episode's end"
