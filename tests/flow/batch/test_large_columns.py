"""Batches hold the stored values, whichever way the bytes of their columns travel."""

import numpy as np
import pytest

COUNT = 40
WIDTHS = {"tiny": 1, "small": 300, "pixels": 1024, "wide": 40_000}  # float32 each: from 4 B to 160 kB


def rows():
    numbers = np.arange(COUNT, dtype=np.float32)
    columns = {name: numbers[:, None] * 1000 + np.arange(width, dtype=np.float32) for name, width in WIDTHS.items()}
    return {**columns, "number": np.arange(COUNT), "text": np.array([f"{n:03}" for n in range(COUNT)])}


def check(data, stored):
    picked = data["number"]
    for name, column in stored.items():
        np.testing.assert_array_equal(data[name], column[picked], err_msg=name)
        assert data[name].flags["C_CONTIGUOUS"]
        assert data[name].flags["WRITEABLE"]


@pytest.mark.emulated
@pytest.mark.parametrize("columns", [None, ["number", "wide"], ["number", "pixels", "tiny"], ["number", "small"]])
def test_columns_of_large_and_small_cells_arrive_as_they_were_stored(connect, columns):
    client, stored = connect(), rows()
    client.insert_batch("t", stored)
    wanted = stored if columns is None else {name: stored[name] for name in columns}
    for batch_size in (1, 7, 64):
        batch = client.sample_batch("t", batch_size, columns=columns, timeout=200)
        assert set(batch.data) == set(wanted)
        check(batch.data, wanted)
        assert len(batch.info.key) == batch_size


def test_prefetched_batches_keep_their_rows_after_the_items_are_deleted(connect, uniform):
    client, stored = connect(uniform("t", max_size=COUNT)), rows()
    client.insert_batch("t", stored)
    held = []
    with client.batches("t", 16, prefetch=4) as batches:
        for _ in range(12):
            held.append(next(batches))
            client.insert_batch("t", stored)
    for batch in held:
        check(batch.data, stored)


def test_stacks_of_frames_of_a_batch_larger_than_a_cache_arrive_as_they_were_written(connect):
    client, quiet = connect(), np.zeros(1, bool)
    frames = (np.arange(40)[:, None, None] + np.arange(90 * 91).reshape(90, 91)).astype(np.uint8)
    with client.transition_writer("t", num_envs=1, frame_stack=4) as writer:
        for step, frame in enumerate(frames):
            writer.append(frame[None], np.array([step]), np.zeros(1, np.float32), quiet, quiet)
    data = client.sample_batch("t", 160, timeout=200).data
    assert data["obs"].nbytes + data["next_obs"].nbytes > 10_000_000
    for step, obs, next_obs in zip(data["action"], data["obs"], data["next_obs"], strict=True):
        number = int(step)
        if number >= 3:
            np.testing.assert_array_equal(obs, frames[number - 3 : number + 1])
            np.testing.assert_array_equal(next_obs, frames[number - 2 : number + 2])
