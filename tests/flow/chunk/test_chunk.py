import gc

import numpy as np
import pytest

from reverie import Table, rate_limiters, selectors, structured
from reverie.client.append import common_compression


def table(name="t", **options):
    return Table(name, selectors.Uniform(seed=1), selectors.Fifo(), 10_000, rate_limiters.MinSize(1), **options)


def frames(num_frames):
    """Frames that look like a game's: a background, and a little that moves."""
    background = np.tile(np.arange(84, dtype=np.uint8), (84, 1))
    stack = np.repeat(background[None], num_frames, axis=0)
    for index in range(num_frames):
        stack[index, index % 80 : index % 80 + 4, 20:24] = 255
    return stack


@pytest.mark.emulated
@pytest.mark.parametrize("compression", ["none", "lz4", "zstd", "auto", "auto:speed", "auto:size"])
def test_frames_come_back_whatever_the_compression(connect, compression):
    client = connect(table(compression=compression))
    images = frames(300)
    with client.trajectory_writer(4) as writer:
        for image in images:
            writer.append({"frame": image})
            if len(writer.history["frame"]) >= 4:
                writer.create_item("t", 1.0, {"frame": writer.history["frame"][-4:]})
    samples = client.sample_batch("t", 64).data["frame"]
    assert samples.shape == (64, 4, 84, 84)
    starts = {images[at].tobytes(): at for at in range(80)}
    for sample in samples:
        start = starts[sample[0].tobytes()]
        np.testing.assert_array_equal(sample[1:], images[start + 1 : start + 4])
    size_bytes = client.info().size_bytes
    if compression == "none":
        assert size_bytes > 300 * 84 * 84
    else:
        assert size_bytes < 300 * 84 * 84 / 5


def test_auto_leaves_what_does_not_compress_as_it_is(connect):
    client = connect(table(compression="auto"))
    rows = np.random.default_rng(0).random((200, 2000), np.float32)
    client.insert_batch("t", rows)
    assert rows.nbytes <= client.info().size_bytes < rows.nbytes * 1.05


def test_auto_packs_less_for_speed_and_more_for_size(connect):
    """Rows that pack three to one are raw for speed; rows that pack five to four are packed for size alone."""
    rng = np.random.default_rng(0)
    thrice = np.tile(rng.random((40, 10, 100), np.float32), (1, 1, 3)).reshape(40, -1)
    hardly = rng.random((40, 2500), np.float32)
    hardly[:, :500] = 0
    sizes = {}
    for setting in ("none", "auto:speed", "auto", "auto:size"):
        for name, rows in (("thrice", thrice), ("hardly", hardly)):
            client = connect(table(compression=setting))
            with client.trajectory_writer(1) as writer:
                for row in rows:
                    writer.append({"x": row})
                    writer.create_item("t", 1.0, {"x": writer.history["x"][-1]})
            drawn = {row.tobytes() for row in client.sample_batch("t", 32).data["x"]}
            assert drawn <= {row.tobytes() for row in rows}
            sizes[setting, name] = client.info().size_bytes / rows.nbytes
    assert all(sizes[setting, "thrice"] >= 1 for setting in ("none", "auto:speed")), sizes
    assert all(sizes[setting, "thrice"] < 0.5 for setting in ("auto", "auto:size")), sizes
    assert all(sizes[setting, "hardly"] >= 1 for setting in ("none", "auto:speed", "auto")), sizes
    assert sizes["auto:size", "hardly"] < 0.95, sizes


@pytest.mark.parametrize("setting", ["auto:speed", "auto:size"])
def test_a_table_has_the_compression_that_it_was_made_with(connect, setting):
    client = connect(table("one", compression=setting), table("two", compression=setting))
    assert {made.compression for made in client._tables(None)} == {setting}
    assert common_compression(client._tables(None)) == setting


def write(client, kind, rows, tables):
    if kind == "trajectory":
        with client.trajectory_writer(1) as writer:
            for row in rows:
                writer.append({"x": row})
                for name in tables:
                    writer.create_item(name, 1.0, {"x": writer.history["x"][-1]})
        return
    step = structured.create_reference_step({"x": None})
    with client.structured_writer([structured.create_config({"x": step["x"][-1]}, name) for name in tables]) as writer:
        for row in rows:
            writer.append({"x": row})


@pytest.mark.parametrize("kind", ["trajectory", "structured"])
@pytest.mark.parametrize("tables", ["ab", "ba"])
@pytest.mark.parametrize("shrinks", [True, False])
def test_a_writer_for_tables_with_different_compression_measures(connect, kind, tables, shrinks):
    client = connect(table("a", compression="none"), table("b", compression="zstd"))
    rows = frames(100) if shrinks else np.random.default_rng(0).random((100, 2000), np.float32)
    write(client, kind, rows, tables)
    size_bytes = client.info().size_bytes
    if shrinks:
        assert size_bytes < rows.nbytes / 5
    else:
        assert rows.nbytes <= size_bytes < rows.nbytes * 1.05


@pytest.mark.parametrize("kind", ["trajectory", "structured"])
def test_a_writer_for_tables_with_one_compression_uses_it(connect, kind):
    client = connect(table("a", compression="none"), table("b", compression="none"))
    write(client, kind, frames(100), "ab")
    assert client.info().size_bytes > 100 * 84 * 84


@pytest.mark.one_table_only("a closed client of several servers stays closed")
def test_bytes_return_to_zero_when_the_tables_are_emptied(connect, until):
    client = connect(table("a"), table("b", compression="zstd"))
    writer = client.trajectory_writer(10)
    for step in range(100):
        writer.append({"x": np.zeros(500), "text": "abc" * (step % 7)})
        for name in "ab":
            latest = slice(-min(2, step + 1), None)
            writer.create_item(name, 1.0, {"x": writer.history["x"][latest], "text": writer.history["text"][-1]})
        if step < 1:
            writer.create_item("a", 1.0, writer.history["x"][:])
        client.insert({"x": step}, {"a": 1.0, "b": 1.0})
    writer.flush(timeout=200)
    assert client.info().size_bytes > 0
    writer.close()
    client.close()
    for name in "ab":
        client.reset(name)
        assert client.info().tables[name].size_bytes == 0
    del writer
    gc.collect()
    until(lambda: client.info().size_bytes == 0)


@pytest.mark.emulated
def test_a_chunk_of_two_tables_counts_once_for_the_server_and_once_for_each(connect):
    client = connect(table("a", compression="none"), table("b", compression="none"))
    client.insert({"x": np.zeros(100_000, np.uint8)}, {"a": 1.0, "b": 1.0})
    info = client.info()
    assert info.tables["a"].size_bytes == info.tables["b"].size_bytes == info.size_bytes
    client.reset("a")
    assert client.info().tables["a"].size_bytes == 0
    assert client.info().size_bytes == info.size_bytes


@pytest.mark.emulated
def test_a_batch_outlives_the_chunks_it_was_gathered_from(connect):
    client = connect(table())
    rows = np.random.default_rng(1).random((8, 1000))
    keys = client.insert_batch("t", rows)
    batch = client.get("t", keys)
    client.reset("t")
    client.insert_batch("t", np.zeros((8, 1000)))
    np.testing.assert_array_equal(batch.data, rows)


@pytest.mark.parametrize("chunk_length", [1, 3, 1000])
def test_steps_may_be_stored_in_chunks_of_any_length(connect, chunk_length):
    client = connect(table())
    with client.trajectory_writer(20, chunk_length=chunk_length) as writer:
        for step in range(40):
            writer.append({"x": np.float32(step)})
        writer.create_item("t", 1.0, writer.history["x"][-20:])
    assert client.sample_batch("t", 1).data[0].tolist() == list(range(20, 40))
    with pytest.raises(ValueError, match="chunk"):
        client.trajectory_writer(20, chunk_length=0)
    with pytest.raises(ValueError, match='"auto:speed" or "auto:size", got "fast"'):
        client.trajectory_writer(20, compression="fast")


def test_steps_have_the_compression_that_all_tables_ask_for_and_are_measured_where_tables_differ(connect):
    """The writer names no table, so that its steps may go into any of them."""
    alike = connect(table("one", compression="none"), table("two", compression="none"))
    assert common_compression(alike._tables(None)) == "none"
    for others in (("none", "zstd"), ("zstd", "none"), ("lz4", "zstd")):
        tables_differ = connect(*(table(name, compression=one) for name, one in zip("ab", others, strict=True)))
        assert common_compression(tables_differ._tables(None)) == "auto"
