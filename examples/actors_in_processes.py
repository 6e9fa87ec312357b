"""Two actors in processes of their own write through shared memory; the learner reads prefetched batches."""

import multiprocessing

import numpy as np

import reverie

NUM_ACTORS, NUM_STEPS = 2, 500


def act(address: str, actor: int) -> None:
    """Writes random steps; every step is an item with the one before it."""
    rng = np.random.default_rng(actor)
    with reverie.Client(address) as client, client.trajectory_writer(num_keep_alive_refs=2) as writer:
        for step in range(NUM_STEPS):
            writer.append({"obs": rng.normal(size=4).astype(np.float32), "actor": actor})
            if step > 0:
                item = {name: column[-2:] for name, column in writer.history.items()}
                writer.create_item("replay", priority=1.0, trajectory=item)


def main() -> None:
    """Starts a server, the actors, and reads until they are done."""
    table = reverie.Table(
        "replay",
        max_size=10_000,
        sampler=reverie.selectors.Uniform(),
        remover=reverie.selectors.Fifo(),
        rate_limiter=reverie.rate_limiters.MinSize(NUM_STEPS),  # more than one actor writes
    )
    with reverie.Server([table]) as server:
        context = multiprocessing.get_context("spawn")
        actors = [context.Process(target=act, args=(server.address, actor)) for actor in range(NUM_ACTORS)]
        for process in actors:
            process.start()
        learner = reverie.Client(server.address, transport="shared-memory")
        with learner.batches("replay", 32, prefetch=2, max_samples=32 * 20, timeout=60.0) as batches:
            seen = {int(actor) for batch in batches for actor in batch.data["actor"][:, 0]}
        for process in actors:
            process.join()
            assert process.exitcode == 0
        info = learner.info()
        print(f"{info.transport}: {info.tables['replay'].num_inserts} items, batches from the actors {sorted(seen)}")
        assert info.tables["replay"].num_inserts == NUM_ACTORS * (NUM_STEPS - 1)


if __name__ == "__main__":
    main()
