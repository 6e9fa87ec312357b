"""Less common uses of histories, steps and writers in programs written for dm-reverb."""

import collections
import types
from unittest import mock

import numpy as np
import pytest

import reverie
from reverie import Table, TrajectoryColumn, rate_limiters, selectors
from reverie import structured_writer as structured


@pytest.fixture
def client(connect):
    fifo = Table("t", selectors.Fifo(), selectors.Fifo(), 1000, rate_limiters.MinSize(1), max_times_sampled=1)
    return connect(fifo, Table.queue("q", 1))


def read(client, writer):
    writer.flush(timeout=200)
    return client.sample_batch("t", 1, timeout=0).data


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_a_history_iterates_over_single_cells_with_none_where_there_is_no_value(client):
    writer = client.trajectory_writer(3)
    writer.append({"a": 0})
    writer.append({"b": 1})
    for a in (2, 3):
        writer.append({"a": a})
    cells = list(writer.history["a"])
    assert [None if cell is None else int(cell.numpy()) for cell in cells] == [None, None, 2, 3]
    assert [cell is None for cell in writer.history["b"]] == [True, False, True, True]
    assert not cells[2].expired
    assert cells[2].is_squeezed
    assert cells[2].shape == ()
    for a in range(10):
        writer.append({"a": a})
    assert cells[2].expired


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_a_column_is_made_of_the_cells_of_others(client):
    writer = client.trajectory_writer(5)
    for a in range(5):
        writer.append({"a": a, "b": 10 * a})
    history = writer.history["a"]
    picked = TrajectoryColumn([*history[0:1], *history[-2:]])
    assert picked.numpy().tolist() == [0, 3, 4]
    alone = TrajectoryColumn(list(history[-1:]), squeeze=True)
    assert alone.is_squeezed
    assert alone.numpy() == 4
    writer.create_item("t", 1.0, {"picked": picked, "alone": alone})
    data = read(client, writer)
    assert data["picked"].tolist() == [[0, 3, 4]]
    assert data["alone"].tolist() == [4]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
@pytest.mark.parametrize(
    ("cells", "squeeze", "error", "message"),
    [
        (lambda history: [], False, ValueError, "at least one cell"),
        (lambda history: list(history["a"]), True, ValueError, "exactly one cell"),
        (lambda history: [None], False, ValueError, "None"),
        (lambda history: [history["a"][:]], False, TypeError, "single cells"),
        (lambda history: [3], False, TypeError, "single cells"),
        (lambda history: [history["a"][0], history["b"][0]], False, ValueError, "'a' and 'b'"),
    ],
)
def test_a_column_of_invalid_cells_is_refused(client, cells, squeeze, error, message):
    writer = client.trajectory_writer(5)
    for a in range(2):
        writer.append({"a": a, "b": a})
    with pytest.raises(error, match=message):
        TrajectoryColumn(cells(writer.history), squeeze=squeeze)


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_a_class_of_attrs_is_a_structure(client):
    attr = pytest.importorskip("attr")
    kind = attr.make_class("Step", ["obs", "_state"])
    writer = client.trajectory_writer(2)
    for obs in range(2):
        writer.append(kind(float(obs), obs + 5))
    assert type(writer.history) is kind
    writer.create_item("t", 1.0, kind(writer.history.obs[:], writer.history._state[-1]))
    data = read(client, writer)
    assert type(data) is kind
    assert (data.obs.tolist(), data._state.tolist()) == ([[0.0, 1.0]], [6])


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_any_mapping_is_accepted_as_a_dict(client):
    writer = client.trajectory_writer(3)
    for step in ({"b": 1, "a": 2}, {"a": 3, "b": 4}):
        writer.append(types.MappingProxyType(step))
    writer.append(collections.OrderedDict(a=5, b=6))
    writer.create_item("t", 1.0, types.MappingProxyType({name: column[:] for name, column in writer.history.items()}))
    assert len(writer.history["a"]) == 3
    assert {name: column.tolist() for name, column in read(client, writer).items()} == {
        "a": [[2, 3, 5]],
        "b": [[1, 4, 6]],
    }


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_the_older_writer_takes_steps_by_their_leaves_whatever_their_structure(client):
    with client.writer(3) as writer:
        for step in ([1, 2], (3, 4), {"x": 5, "y": 6}):
            writer.append(step)
        with pytest.raises(reverie.SignatureError, match="as many columns"):
            writer.append([1, 2, 3])
        writer.create_item("t", 3, 1.0)
    [sample] = client.sample("t", emit_timesteps=False)
    assert [column.tolist() for column in sample.data] == [[1, 3, 5], [2, 4, 6]]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_timesteps_of_scalars_are_arrays_without_axes(client):
    with client.writer(2) as writer:
        writer.append([1, 2.0])
        writer.append([3, 4.0])
        writer.create_item("t", 2, 1.0)
    [steps] = client.sample("t")
    assert [[type(cell) for cell in step.data] for step in steps] == [[np.ndarray] * 2] * 2
    assert [cell.shape for step in steps for cell in step.data] == [()] * 4


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_minus_one_millisecond_waits_as_none_does(client):
    writer = client.trajectory_writer(1, timeout=0.0)
    writer.append(1)
    for _ in range(2):
        writer.create_item("q", 1.0, writer.history[:])
    # The default of the writer holds, as with None: only the number itself is special.
    with pytest.raises(reverie.DeadlineExceededError):
        writer.flush(0, -1)
    with pytest.raises(reverie.DeadlineExceededError):
        writer.end_episode(timeout_ms=-1)
    with pytest.raises(ValueError, match="at least 0"):
        writer.flush(0, -2)


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_the_time_for_a_signature_may_be_given_in_milliseconds(client, monkeypatch):
    asked, tables = [], type(client)._tables
    monkeypatch.setattr(
        type(client), "_tables", lambda self, timeout: (asked.append(timeout), tables(self, timeout))[1]
    )
    for milliseconds in (None, 150_000):
        client.trajectory_writer(1, timeout=200.0, get_signature_timeout_ms=milliseconds).close()
    assert asked == [200.0, 150.0]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_configs_made_of_no_structure_take_the_first_field_of_a_step(client):
    pattern = structured.pattern_from_transform(None, lambda step: step[-2:])
    writer = client.structured_writer([structured.create_config(pattern, "t")])
    for at in range(2):
        writer.append({"a": at, "b": {"c": 7.0}})
    writer.flush(timeout=200)
    [sample] = client.sample("t", emit_timesteps=False)
    assert [column.tolist() for column in sample.data] == [[0, 1]]
    writer.append({"only": 8})  # A step of one field has a first, too.
    writer.append({"only": 9})
    writer.flush(timeout=30)
    assert [sample.data[0].tolist() for sample in client.sample("t", 2, emit_timesteps=False)] == [[1, 8], [8, 9]]
    steps = [{"obs": {"x": at, "y": -1}, "quit": False} for at in range(3)]
    dataset = reverie.PatternDataset(steps, [structured.create_config(pattern, "t")], True, lambda step: step["quit"])
    assert [window.tolist() for window in dataset] == [[0, 1], [1, 2]]


def test_a_writer_that_does_not_validate_leaves_out_what_the_signature_does_not_name(connect):
    signature = {"a": reverie.TensorSpec((None,), np.int64), "n": {"b": reverie.TensorSpec((None,), np.float32)}}
    fifo = selectors.Fifo()
    tables = [Table(name, fifo, fifo, 10, signature=of) for name, of in (("t", signature), ("bare", None))]
    client = connect(*tables)
    step = {"a": 1, "n": {"b": np.float32(2), "extra": 3}, "info": {"a": 4}}
    for validates in (True, False):
        writer = client.trajectory_writer(2, validate_items=validates)
        writer.append(step)
        whole = {"a": writer.history["a"][:], "n": {name: column[:] for name, column in writer.history["n"].items()}}
        whole["info"] = {"a": writer.history["info"]["a"][:]}
        if validates:
            with pytest.raises(reverie.SignatureError, match="got 4 columns"):
                writer.create_item("t", 1.0, whole)
            continue
        writer.create_item("t", 1.0, whole)
        assert read(client, writer) == {"a": [[1]], "n": {"b": [[2.0]]}}
        writer.create_item("bare", 1.0, whole)
        writer.flush(timeout=30)
        assert client.sample_batch("bare", 1, timeout=0).data["n"]["extra"] == [[3]]
        for wrong in ({"a": whole["a"]}, {"a": whole["a"], "n": {"b": whole["n"]["extra"]}}):
            with pytest.raises(reverie.SignatureError):
                writer.create_item("t", 1.0, wrong)
        with pytest.raises(reverie.UnknownTableError):
            writer.create_item("unknown", 1.0, whole)


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_calls_of_a_writer_may_be_replaced_by_those_of_a_test(client):
    with mock.patch.object(writer := client.trajectory_writer(1), "flush") as flush, writer:
        pass
    flush.assert_called_once()
    with (
        mock.patch.object(writer := client.trajectory_writer(1), "flush") as flush,
        pytest.raises(reverie.ReverbError),
        writer,
    ):
        raise reverie.DeadlineExceededError("a test's")
    flush.assert_not_called()


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_keys_beyond_any_that_a_table_gives_are_ignored(client):
    client.insert(1, {"t": 1.0})
    updated, deleted = client.mutate_priorities("t", {(1 << 64) - 1: 2.0}, deletes=[])
    assert (updated, deleted) == ((0, 1), (0, 0))


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_an_unknown_table_raises_an_error_of_every_class_that_ported_code_catches(client):
    for error in (ValueError, RuntimeError, LookupError, reverie.ReverbError):
        with pytest.raises(error, match="no table 'x'"):
            client.insert(1, {"x": 1.0})
        with pytest.raises(error, match="no table 'x'"):
            next(client.sample("x"))
