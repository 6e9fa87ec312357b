"""Cells that differ in the size of their first axis: padded, or as values and lengths."""

import numpy as np
import pytest

from reverie import Journal, RaggedError, Server, SignatureError, Table, TensorSpec, rate_limiters, selectors
from reverie.checkpointers import DefaultCheckpointer

SIZES = (3, 5, 0, 2)

one_by_one = pytest.mark.one_table_only("the items are drawn in the order of their inserts")


def cell(size, first=0):
    return np.arange(first, first + size, dtype=np.int32)


def table(signature, **options):
    options = {"sampler": selectors.Fifo(), "max_times_sampled": 1, **options}
    return Table(
        "t",
        remover=selectors.Fifo(),
        max_size=100,
        rate_limiter=rate_limiters.MinSize(1),
        signature=signature,
        **options,
    )


STEP = {"tokens": TensorSpec((None,), np.int32), "reward": TensorSpec((), np.float32)}


@pytest.fixture
def completions(connect):
    """A client whose table has four completions of these sizes."""
    client = connect(table(STEP))
    for size in SIZES:
        client.insert({"tokens": cell(size, 10 * size), "reward": np.float32(size)}, {"t": 1.0})
    return client


@one_by_one
def test_cells_of_any_size_are_padded_with_a_mask(completions):
    batch = completions.sample_batch("t", 4, ragged="pad")
    assert batch.data["tokens"].dtype == np.int32
    assert batch.data["tokens"].tolist() == [[30, 31, 32, 0, 0], [50, 51, 52, 53, 54], [0] * 5, [20, 21, 0, 0, 0]]
    assert batch.mask.tolist() == [[at < size for at in range(5)] for size in SIZES]
    assert batch.data["reward"].tolist() == list(SIZES), "a column without such cells stays as it is"


@one_by_one
def test_cells_of_any_size_come_as_values_and_lengths(completions):
    batch = completions.sample_batch("t", 4, ragged="values")
    assert batch.data["tokens"].tolist() == [30, 31, 32, 50, 51, 52, 53, 54, 20, 21]
    assert (batch.lengths.tolist(), batch.lengths.dtype) == (list(SIZES), np.int64)


@one_by_one
@pytest.mark.parametrize("ragged", ["pad", "values"])
def test_a_batch_has_the_same_arrays_where_all_sizes_happen_to_be_equal(completions, ragged):
    batch = completions.sample_batch("t", 1, ragged=ragged)
    assert batch.data["tokens"].shape == ((1, 3) if ragged == "pad" else (3,))
    assert (batch.mask if ragged == "pad" else batch.lengths).shape == ((1, 3) if ragged == "pad" else (1,))


@one_by_one
def test_a_batch_without_ragged_stacks_equal_sizes_and_refuses_others_by_name(completions):
    assert completions.sample_batch("t", 1).data["tokens"].tolist() == [[30, 31, 32]]
    with pytest.raises(RaggedError, match="column 'tokens': its cells have the sizes 0, 2, 5; pass ragged="):
        completions.sample_batch("t", 3)


@one_by_one
@pytest.mark.parametrize("ragged", ["pad", "values"])
def test_the_padding_is_a_value_on_a_side_up_to_a_multiple(completions, ragged):
    batch = completions.sample_batch("t", 4, ragged=ragged)
    right, lengths = batch.padded("tokens", -1, multiple=4)
    assert lengths.tolist() == list(SIZES)
    assert right.tolist() == [[*range(10 * size, 11 * size), *[-1] * (8 - size)] for size in SIZES]
    left, lengths = batch.padded("tokens", -1, side="left")
    assert lengths.tolist() == list(SIZES)
    assert left.tolist() == [[*[-1] * (5 - size), *range(10 * size, 11 * size)] for size in SIZES]
    with pytest.raises(ValueError, match="side must be"):
        batch.padded("tokens", side="both")
    with pytest.raises(ValueError, match="multiple"):
        batch.padded("tokens", multiple=0)
    with pytest.raises(ValueError, match=r"column 'reward' \[4\] has no time axis of unequal lengths"):
        batch.padded("reward")


@pytest.mark.parametrize("connect", ["in-process"], indirect=True)
@pytest.mark.parametrize("library", ["torch", "jax"])
def test_other_libraries_pad_on_a_side_too(completions, library):
    pytest.importorskip(library)
    with completions.batches("t", 4, ragged="values", max_samples=4, as_=library) as batches:
        batch = next(batches)
    assert batch.lengths.tolist() == list(SIZES)
    left, _ = batch.padded("tokens", -1, side="left", multiple=3)
    assert type(left) is type(batch.data["tokens"])
    assert left.tolist() == [[*[-1] * (6 - size), *range(10 * size, 11 * size)] for size in SIZES]


@pytest.mark.emulated
@pytest.mark.parametrize("ragged", ["pad", "values"])
def test_batches_drawn_ahead_and_over_shards_have_every_cell_whole(connect, ragged):
    client = connect(table(STEP, sampler=selectors.Uniform(seed=1), max_times_sampled=0))
    for size in (7, 1, 4) * 4:
        client.insert({"tokens": cell(size, 10 * size), "reward": np.float32(size)}, {"t": 1.0})
    with client.batches("t", 16, ragged=ragged, max_samples=48) as batches:
        drawn = list(batches)
    assert len(drawn) == 3
    for batch in drawn:
        tokens, lengths = batch.padded("tokens", -1)
        assert lengths.tolist() == batch.data["reward"].tolist()
        for row, size in zip(tokens, lengths, strict=True):
            assert row[:size].tolist() == cell(size, 10 * size).tolist()
            assert (row[size:] == -1).all()


@one_by_one
def test_several_columns_have_masks_and_lengths_by_path(connect):
    signature = {"obs": {"points": TensorSpec((None, 3), np.float32)}, "tokens": TensorSpec((None,), np.int64)}
    client = connect(table(signature))
    for size in (2, 4):
        points = np.full((size, 3), size, np.float32)
        client.insert({"obs": {"points": points}, "tokens": np.arange(2 * size)}, {"t": 1.0})
        client.insert({"obs": {"points": points}, "tokens": np.arange(2 * size)}, {"t": 1.0})
    padded = client.sample_batch("t", 2, ragged="pad")
    assert {path: mask.shape for path, mask in padded.mask.items()} == {"obs/points": (2, 2), "tokens": (2, 4)}
    values = client.sample_batch("t", 2, ragged="values")
    assert {path: of.tolist() for path, of in values.lengths.items()} == {"obs/points": [4, 4], "tokens": [8, 8]}
    assert values.data["obs"]["points"].shape == (8, 3)
    assert values.padded("obs/points", np.nan)[0].shape == (2, 4, 3)


SEQUENCE = {"agents": TensorSpec((None, None, 2), np.float32), "reward": TensorSpec((None,), np.float32)}


def append_steps(writer, sizes):
    for step, size in enumerate(sizes):
        writer.append({"agents": np.full((size, 2), step + 1, np.float32), "reward": np.float32(step)})


@one_by_one
@pytest.mark.parametrize("kind", ["trajectory", "sequence", "episode"])
def test_steps_of_a_sequence_may_differ_in_size(connect, kind):
    client = connect(table(SEQUENCE))
    for sizes in ([2, 0, 3], [1, 1, 1]):
        if kind == "trajectory":
            with client.trajectory_writer(3) as writer:
                append_steps(writer, sizes)
                assert writer.history["agents"][-3:].shape == (3, None, 2)
                trajectory = {name: column[-3:] for name, column in writer.history.items()}
                writer.create_item("t", 1.0, trajectory)
        else:
            make = client.sequence_writer("t", 3, 3) if kind == "sequence" else client.episode_writer("t")
            with make as writer:
                append_steps(writer, sizes)
                writer.end_episode()
    batch = client.sample_batch("t", 2, ragged="pad")
    agents = batch.data["agents"]
    assert agents.shape == (2, 3, 3, 2)
    assert agents[..., 0].tolist() == [[[1, 1, 0], [0, 0, 0], [3, 3, 3]], [[1, 0, 0], [2, 0, 0], [3, 0, 0]]]
    assert batch.mask["agents"].sum(axis=2).tolist() == [[2, 0, 3], [1, 1, 1]]
    assert batch.mask["reward"].tolist() == [[True] * 3] * 2


@one_by_one
def test_sequences_of_several_lengths_have_lengths_for_each_step(connect):
    client = connect(table(SEQUENCE))
    with client.episode_writer("t") as writer:
        for sizes in ([2, 0, 3], [4]):
            append_steps(writer, sizes)
            writer.end_episode()
    batch = client.sample_batch("t", 2, ragged="values")
    assert batch.data["agents"][:, 0].tolist() == [1, 1, 3, 3, 3, 1, 1, 1, 1]
    assert batch.lengths["agents"].tolist() == [[2, 0, 3], [4, 0, 0]]
    assert batch.lengths["reward"].tolist() == [3, 1]
    agents, lengths = batch.padded("agents", -1, side="left")
    assert lengths.tolist() == [[2, 0, 3], [4, 0, 0]]
    assert agents[..., 0].tolist() == [
        [[-1, -1, 1, 1], [-1] * 4, [-1, 3, 3, 3]],
        [[1, 1, 1, 1], [-1] * 4, [-1] * 4],
    ]


@pytest.mark.parametrize("connect", ["in-process"], indirect=True)
def test_an_invalid_cell_is_refused_by_the_columns_name(connect):
    client = connect(table(STEP))
    reward = np.float32(0)
    for tokens in (cell(4).reshape(2, 2), cell(4).astype(np.int64)):
        with pytest.raises(SignatureError, match=r"column 'tokens'.*int32 \[any\]"):
            client.insert({"tokens": tokens, "reward": reward}, {"t": 1.0})
    with client.trajectory_writer(3) as writer:
        writer.append({"tokens": cell(3), "reward": reward})
        for tokens in (cell(4).reshape(2, 2), cell(4).astype(np.int64), np.int32(1)):
            with pytest.raises(SignatureError, match=r"column 'tokens'.*int32 \[any\], as in the steps before"):
                writer.append({"tokens": tokens, "reward": reward})
        with pytest.raises(SignatureError, match=r"column 'reward'.*as in the steps before"):
            writer.append({"tokens": cell(9), "reward": np.zeros(2, np.float32)})


@pytest.mark.parametrize("connect", ["in-process"], indirect=True)
def test_without_a_signature_a_batch_of_other_sizes_names_the_way_out(connect):
    client = connect(table(None))
    for size in (3, 5):
        client.insert({"tokens": cell(size)}, {"t": 1.0})
    with pytest.raises(SignatureError, match=r"column 'tokens'.*a table's signature with None as the first size"):
        client.sample_batch("t", 2, ragged="pad")


@pytest.mark.parametrize("connect", ["in-process"], indirect=True)
def test_cells_are_stored_with_the_bytes_that_they_have(connect):
    client = connect(table(STEP, compression="none"))
    sizes = np.random.default_rng(1).integers(50, 2_001, size=100)
    for size in sizes:
        client.insert({"tokens": cell(size), "reward": np.float32(0)}, {"t": 1.0})
    payload = 4 * (sizes.sum() + len(sizes))
    assert payload <= client.info().size_bytes < 1.25 * payload


@pytest.mark.parametrize("kept", ["checkpoint", "journal"])
def test_cells_come_back_from_the_disk_with_their_sizes(tmp_path, kept):
    options = {"journal": Journal(tmp_path)} if kept == "journal" else {"checkpointer": DefaultCheckpointer(tmp_path)}
    server = Server([table(STEP)], listen=False, **options)
    client = server.client()
    for size in SIZES:
        client.insert({"tokens": cell(size, 10 * size), "reward": np.float32(size)}, {"t": 1.0})
    if kept == "checkpoint":
        client.checkpoint()
    server.stop()
    server = Server([table(STEP)], listen=False, **options)
    batch = server.client().sample_batch("t", 4, ragged="values")
    server.stop()
    assert batch.lengths.tolist() == list(SIZES)
    assert batch.data["tokens"].tolist() == [30, 31, 32, 50, 51, 52, 53, 54, 20, 21]
