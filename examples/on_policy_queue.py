"""A queue between an actor and an on-policy learner: each item once, in order, and neither side runs ahead."""

import threading

import numpy as np

import reverie

NUM_UNROLLS, LENGTH = 40, 20
client = reverie.Server([reverie.Table.queue("unrolls", max_size=4)], listen=False).client()


def act() -> None:
    """Writes unrolls of twenty steps; waits while four of them are unread."""
    rng = np.random.default_rng(2)
    with client.trajectory_writer(num_keep_alive_refs=LENGTH) as writer:
        for unroll in range(NUM_UNROLLS):
            for _ in range(LENGTH):
                writer.append({"obs": rng.normal(size=3), "unroll": unroll})
            history = writer.history
            writer.create_item(
                "unrolls",
                priority=1.0,
                trajectory={"obs": history["obs"][-LENGTH:], "unroll": history["unroll"][-1]},
            )
            writer.flush()


actor = threading.Thread(target=act)
actor.start()
order = []
for _ in range(NUM_UNROLLS // 4):
    batch = client.sample_batch("unrolls", 4, timeout=30.0)
    assert batch.data["obs"].shape == (4, LENGTH, 3)
    order.extend(batch.data["unroll"].tolist())
actor.join()
print("read in order:", order == list(range(NUM_UNROLLS)))
assert order == list(range(NUM_UNROLLS))
assert client.info().tables["unrolls"].current_size == 0
