"""`Batch.padded`: columns of unequal lengths with a padding of choice."""

import numpy as np
import pytest

from reverie import Table, rate_limiters, selectors

LENGTHS = (3, 5, 2)


@pytest.fixture
def read(connect):
    """A batch of three items: tokens of 3, 5 and 2 steps, another column one step shorter, and one without steps."""
    client = connect(Table("t", selectors.Fifo(), selectors.Fifo(), 10, rate_limiters.MinSize(1), max_times_sampled=1))

    def read(ragged, shorter=False, **options):
        with client.trajectory_writer(5) as writer:
            for length in LENGTHS:
                for step in range(length):
                    writer.append(
                        {"tokens": np.int32(step + 1), "probs": np.full(2, step + 0.5, np.float32), "text": "a"}
                    )
                history = writer.history
                item = {"tokens": history["tokens"][-length:], "last": history["tokens"][-1]}
                item["deep"] = {"probs": history["probs"][-length + shorter :], "text": history["text"][-length:]}
                writer.create_item("t", 1.0, item)
                writer.end_episode()
        if options:
            with client.batches("t", 3, ragged=ragged, max_samples=3, **options) as batches:
                return next(batches)
        return client.sample_batch("t", 3, ragged=ragged)

    return read


pytestmark = pytest.mark.one_table_only("its table deletes sampled items: shards refuse them")

TOKENS = [[1, 2, 3, -100, -100], [1, 2, 3, 4, 5], [1, 2, -100, -100, -100]]


@pytest.mark.parametrize("ragged", ["pad", "values"])
def test_cells_behind_the_end_of_an_item_get_the_value(read, ragged):
    batch = read(ragged)
    tokens, lengths = batch.padded("tokens", -100)
    assert (tokens.tolist(), tokens.dtype) == (TOKENS, np.int32)
    assert (lengths.tolist(), lengths.dtype) == (list(LENGTHS), np.int64)
    probs, lengths = batch.padded("deep/probs", float("nan"))
    assert (probs.shape, probs.dtype, lengths.tolist()) == ((3, 5, 2), np.float32, list(LENGTHS))
    np.testing.assert_array_equal(probs[0, :, 1], np.float32([0.5, 1.5, 2.5, np.nan, np.nan]))
    assert batch.padded("tokens")[0].tolist() == [[max(token, 0) for token in row] for row in TOKENS]
    batch.padded("tokens", 7)
    assert 7 not in batch.data["tokens"], "the batch stays as it is"


@pytest.mark.parametrize("ragged", ["pad", "values"])
def test_columns_that_differ_in_length_have_lengths_of_their_own(read, ragged):
    batch = read(ragged, shorter=True)
    assert batch.padded("tokens", -100)[0].tolist() == TOKENS
    probs, lengths = batch.padded("deep/probs", -1.0)
    assert (probs.shape, lengths.tolist()) == ((3, 4, 2), [length - 1 for length in LENGTHS])
    assert probs[2, :, 0].tolist() == [1.5, -1.0, -1.0, -1.0]


@pytest.mark.parametrize("connect", ["in-process"], indirect=True)
@pytest.mark.parametrize("ragged", ["pad", "values"])
@pytest.mark.parametrize("library", ["torch", "jax"])
def test_columns_of_other_libraries_stay_of_their_kind(read, library, ragged):
    framework = pytest.importorskip(library)
    batch = read(ragged, as_=library)
    tokens, lengths = batch.padded("tokens", -100)
    assert isinstance(tokens, framework.Tensor if library == "torch" else framework.Array)
    assert tokens.dtype == batch.data["tokens"].dtype
    assert (tokens.tolist(), lengths.tolist()) == (TOKENS, list(LENGTHS))
    assert batch.padded("deep/probs", 2.0)[0].shape == (3, 5, 2)


@pytest.mark.parametrize("connect", ["in-process"], indirect=True)
@pytest.mark.parametrize("library", [None, "torch"])
def test_columns_that_cannot_be_padded_are_refused_by_name(read, library):
    if library:
        pytest.importorskip(library)
    options = {"as_": library} if library else {}
    for ragged in ("pad", "values"):
        batch = read(ragged, **options)
        for column, value, text in (
            ("token", 0, r"no column 'token'; there is .*'tokens'"),
            ("last", 0, r"column 'last' \[3\] has no time axis"),
            ("deep/text", 0, "column 'deep/text' is text"),
            ("tokens", 0.5, r"value is 0\.5, which column 'tokens' of (torch\.)?int32 cannot hold"),
            ("tokens", float("nan"), "value is nan, which column 'tokens'"),
            ("tokens", 2**40, f"value is {2**40}, which column 'tokens'"),
        ):
            with pytest.raises(ValueError, match=text):
                batch.padded(column, value)


@pytest.mark.parametrize("connect", ["in-process"], indirect=True)
def test_a_batch_of_equal_lengths_that_was_read_without_ragged_is_refused(connect):
    client = connect()
    client.insert_batch("t", {"x": np.ones(3)})
    with pytest.raises(
        ValueError, match='column \'x\' has no mask and no lengths: read it with ragged="pad" or "values"'
    ):
        client.sample_batch("t", 2).padded("x")
