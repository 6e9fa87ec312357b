import collections
import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reverie
from reverie.testing import arrays, nests, serve


@pytest.mark.emulated
def test_a_step_comes_back_as_it_was_inserted(connect):
    client = connect()
    step = {"obs": np.arange(4, dtype=np.float32), "action": 3, "reward": 0.5, "done": False}
    client.insert(step, {"t": 1.0})
    data = client.sample_batch("t", 2).data
    assert list(data) == ["action", "done", "obs", "reward"]
    np.testing.assert_array_equal(data["obs"], np.tile(step["obs"], (2, 1)))
    assert {name: (str(column.dtype), column.shape) for name, column in data.items()} == {
        "obs": ("float32", (2, 4)),
        "action": ("int64", (2,)),
        "reward": ("float64", (2,)),
        "done": ("bool", (2,)),
    }


def test_rows_come_back_under_their_keys_in_order(connect):
    client = connect()
    obs = np.random.default_rng(0).random((200, 3), np.float32)
    keys = client.insert_batch("t", {"obs": obs, "index": np.arange(200)}, priorities=np.arange(1, 201))
    assert keys.dtype == np.int64
    assert len(set(keys.tolist())) == 200
    batch = client.get("t", keys[::-1])
    np.testing.assert_array_equal(batch.data["obs"], obs[::-1])
    np.testing.assert_array_equal(batch.data["index"], np.arange(200)[::-1])
    np.testing.assert_array_equal(batch.info.priority, np.arange(1, 201)[::-1])


@pytest.mark.emulated
def test_one_step_goes_into_several_tables_and_is_stored_once(connect, uniform):
    client = connect(uniform("a"), uniform("b"))
    client.insert({"frame": np.zeros(10_000, np.uint8)}, {"a": 1.0, "b": 2.0})
    info = client.info()
    assert info.tables["a"].size_bytes == info.tables["b"].size_bytes == info.size_bytes
    assert client.sample_batch("b", 1).info.priority.tolist() == [2.0]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_a_step_that_times_out_at_a_table_goes_into_no_table_later(connect, uniform):
    client = connect(reverie.Table.queue("full", 1), reverie.Table.queue("too", 1), uniform("t"), uniform("u"))
    for name in ("full", "too"):
        client.insert({"n": 0}, {name: 1.0})
    for seconds in (0.1, 1.0, 10.0, 100.0):  # on a busy machine an answer over a network takes time
        with pytest.raises(reverie.DeadlineExceededError, match="table 'full': 1 of 1 item,") as raised:
            client.insert({"n": 1}, {"t": 1.0, "full": 1.0, "too": 1.0, "u": 1.0}, timeout=seconds)
        if len(raised.value.partial) == 2:
            break
    assert sorted(raised.value.partial) == ["t", "u"]
    assert str(raised.value).startswith('insert (done in ["t", "u"]): the timeout passed; ')
    for name in ("full", "too"):
        assert client.why(name).inserts == ()
        assert client.sample_batch(name, 1, timeout=100).data["n"].tolist() == [0]
        assert client.info().tables[name].num_inserts == 1


def test_no_table_and_unknown_tables_are_refused_by_name(connect):
    client = connect()
    with pytest.raises(ValueError, match="at least one table"):
        client.insert({"a": 1}, {})
    with pytest.raises(reverie.UnknownTableError, match=r"'nope'.*'t'") as raised:
        client.insert({"a": 1}, {"nope": 1.0})
    assert (raised.value.name, raised.value.known) == ("nope", ["t"])


@pytest.mark.one_table_only('"max" is the largest priority of one server')
def test_priorities_may_be_one_number_one_each_or_the_maximum(connect):
    client = connect()
    client.insert_batch("t", {"a": np.arange(2)}, priorities=[3.0, 7.0])
    keys = client.insert_batch("t", {"a": np.arange(2)}, priorities="max")
    assert client.get("t", keys).info.priority.tolist() == [7.0, 7.0]
    keys = client.insert_batch("t", {"a": np.arange(2)}, priorities=2)
    assert client.get("t", keys).info.priority.tolist() == [2.0, 2.0]
    with pytest.raises(ValueError, match="2 rows and 3 priorities"):
        client.insert_batch("t", {"a": np.arange(2)}, priorities=[1.0, 2.0, 3.0])


@pytest.mark.one_table_only("the largest priority is that of one server")
def test_rows_without_priorities_get_the_largest_where_the_table_draws_by_priority_and_else_one(connect, uniform):
    prioritised = reverie.Table(
        "by priority",
        sampler=reverie.selectors.Prioritized(0.6),
        remover=reverie.selectors.Fifo(),
        max_size=100,
        rate_limiter=reverie.rate_limiters.MinSize(1),
    )
    client = connect(prioritised, uniform("t"))
    for table, then in (("by priority", 5.0), ("t", 1.0)):
        keys = client.insert_batch(table, {"a": np.arange(2)})
        assert client.get(table, keys).info.priority.tolist() == [1.0, 1.0]
        client.insert_batch(table, {"a": np.arange(1)}, priorities=5.0)
        keys = client.insert_batch(table, {"a": np.arange(2)})
        assert client.get(table, keys).info.priority.tolist() == [then, then]


@pytest.mark.parametrize("priority", [float("nan"), float("inf"), float("-inf")])
def test_priorities_that_are_not_finite_are_refused(connect, priority):
    client = connect()
    with pytest.raises(ValueError):
        client.insert({"a": 1}, {"t": priority})
    assert client.info().tables["t"].current_size == 0


def test_rows_of_unequal_number_name_the_column(connect):
    client = connect()
    with pytest.raises(reverie.SignatureError, match=r"'b/c'.*2 rows.*3 rows") as raised:
        client.insert_batch("t", {"a": np.zeros(3), "b": {"c": np.zeros(2)}})
    assert raised.value.path == "b/c"


def test_an_item_must_fit_the_signature_and_the_error_names_the_column(connect, uniform):
    spec = {"obs": reverie.TensorSpec((4,), np.float32), "action": reverie.TensorSpec((), np.int32)}
    client = connect(uniform("t", signature=spec))
    client.insert({"obs": np.zeros(4, np.float32), "action": 1}, {"t": 1.0})
    assert client.sample_batch("t", 1).data["action"].dtype == np.int32
    with pytest.raises(reverie.SignatureError) as raised:
        client.insert({"obs": np.zeros(5, np.float32), "action": 1}, {"t": 1.0})
    assert raised.value.path == "obs"
    with pytest.raises(reverie.SignatureError) as raised:
        client.insert({"obs": np.zeros(4, np.float64), "action": 1}, {"t": 1.0})
    assert "float64" in raised.value.got
    assert "float32" in raised.value.want


def test_numbers_of_every_numpy_class_arrive_as_they_are(connect):
    names = (
        "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128 longlong"
    )
    values = [np.dtype(name).type(3) for name in names.split()] + [np.complex128(1.5 - 2j), np.float16(-0.5), np.True_]
    client = connect()
    for number in (1, 2, 3):  # the first teaches the form, the others come by the short way
        client.insert({"n": number} | {str(at): value for at, value in enumerate(values)}, {"t": 1.0})
    data = client.sample_batch("t", 20).data
    for at, value in enumerate(values):
        column = data[str(at)]
        assert column.dtype == value.dtype
        assert (column == value).all(), value.dtype


@pytest.mark.one_table_only("each server has rows of its own, and learns their dtypes by itself")
def test_python_numbers_take_the_dtype_that_the_column_has(connect):
    client = connect()
    client.insert({"x": np.float32(1.5), "n": np.int8(1)}, {"t": 1.0})
    client.insert({"x": 2, "n": 100}, {"t": 1.0})
    assert sorted(client.sample_batch("t", 50).data["x"].tolist())[-1] == 2.0
    with pytest.raises(reverie.SignatureError, match="'n'"):
        client.insert({"x": 2.0, "n": 1000}, {"t": 1.0})
    with pytest.raises(reverie.SignatureError, match="'n'"):
        client.insert({"x": 2.0, "n": 1.0}, {"t": 1.0})


@pytest.mark.one_table_only("each server has rows of its own, and learns their dtypes by itself")
def test_python_numbers_take_the_dtype_that_the_tables_batches_have(connect):
    client = connect()
    client.insert_batch("t", {"x": np.zeros(3, np.float32), "n": np.zeros(3, np.int16)})
    client.insert({"x": 1.5, "n": 7}, {"t": 1.0})
    data = client.sample_batch("t", 50).data
    assert (data["x"].dtype, data["n"].dtype) == (np.float32, np.int16)


@pytest.mark.parametrize(
    ("leaf", "words"),
    [
        (None, "NoneType"),
        (object(), "object"),
        (np.array([object()]), "Python objects"),
        (np.zeros(2, "M8[s]"), "int64"),
        (np.zeros(2, [("a", "f4")]), "dict of arrays"),
        (np.zeros(2, np.longdouble), "float64"),
        (2**70, "64 bits|int64"),
        ({1, 2}, "set"),
        (np.ma.array([1.0, 2.0], mask=[False, True]), r"masked values.*\.filled\(value\)"),
        (np.ma.masked, "masked values"),
    ],
)
def test_leaves_that_no_column_holds_are_refused_with_path_and_advice(connect, leaf, words):
    client = connect()
    with pytest.raises(reverie.SignatureError, match=words) as raised:
        client.insert({"fine": 1, "deep": [leaf]}, {"t": 1.0})
    assert raised.value.path == "deep/0"


def test_masked_values_are_no_rows_nor_priorities_and_a_mask_that_hides_nothing_is_none(connect, tmp_path):
    client = connect()
    hidden = np.ma.array(np.arange(3.0), mask=[False, True, False])
    with pytest.raises(reverie.SignatureError, match="masked values"):
        client.insert_batch("t", {"x": hidden})
    with pytest.raises(reverie.SignatureError, match=r"priorities.*masked values"):
        client.insert_batch("t", {"x": np.arange(3.0)}, priorities=hidden)
    seen = np.ma.array(np.arange(3.0), mask=[False] * 3)
    file = np.memmap(tmp_path / "x", np.float64, "w+", shape=3)
    file[:] = np.arange(3.0)
    for rows in (seen, file, np.arange(3.0).view(Labelled)):
        assert client.get("t", client.insert_batch("t", {"x": rows})).data["x"].tolist() == [0.0, 1.0, 2.0]
    with client.trajectory_writer(2) as writer:
        writer.append({"x": np.zeros(3)})
        with pytest.raises(reverie.SignatureError, match="masked values"):  # of what the column holds already, too
            writer.append({"x": hidden})


class Labelled(np.ndarray):
    """A subclass whose bytes are all there is to it."""


def test_text_is_as_wide_as_its_widest_value(connect):
    client = connect()
    keys = [
        client.insert_batch("t", {"b": np.array([text.encode()]), "u": np.array([text])}) for text in ("a", "béc", "")
    ]
    data = client.get("t", np.concatenate(keys)).data
    assert data["u"].tolist() == ["a", "béc", ""]
    assert [value.decode() for value in data["b"].tolist()] == ["a", "béc", ""]
    client.reset("t")
    objects = np.array(["xx", "y"], dtype=object)
    assert client.get("t", client.insert_batch("t", {"u": objects})).data["u"].tolist() == ["xx", "y"]


def test_ml_dtypes_come_back_as_they_are(connect):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    client = connect()
    values = np.arange(6).astype(ml_dtypes.bfloat16).reshape(2, 3)
    batch = client.get("t", client.insert_batch("t", {"x": values, "y": values.astype(ml_dtypes.float8_e5m2)}))
    assert batch.data["x"].dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(batch.data["x"].astype(np.float32), values.astype(np.float32))
    assert batch.data["y"].dtype == ml_dtypes.float8_e5m2


Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass(frozen=True)
class Step:
    obs: dict
    point: Point
    total: float = dataclasses.field(init=False, default=1.0)


def test_named_tuples_and_dataclasses_come_back_as_their_classes(connect):
    client = connect()
    client.insert(Step({"z": 1, "a": 2}, Point(3, (4, [5]))), {"t": 1.0})
    data = client.sample_batch("t", 1).data
    assert isinstance(data, Step)
    assert isinstance(data.point, Point)
    assert data.point.y[1][0].tolist() == [5]
    assert data.total.tolist() == [1.0]


@given(nest=nests(arrays()))
def test_every_nest_of_every_dtype_comes_back_as_it_was(nest):
    table = reverie.Table("t", reverie.selectors.Fifo(), reverie.selectors.Fifo(), 10)
    with serve([table]) as client:
        client.insert(nest, {"t": 1.0})
        client.insert(nest, {"t": 1.0})
        batch = client.sample_batch("t", 1)
        _assert_same(nest, batch.data)


def _assert_same(nest, data):
    if isinstance(nest, dict):
        assert list(data) == sorted(nest)
        for key in nest:
            _assert_same(nest[key], data[key])
    elif isinstance(nest, list | tuple):
        assert type(data) is type(nest)
        assert len(data) == len(nest)
        for want, got in zip(nest, data, strict=True):
            _assert_same(want, got)
    else:
        assert got_kind(data.dtype) == got_kind(nest.dtype)
        np.testing.assert_array_equal(data[0], nest)
        assert data.flags.writeable
        assert data.flags.c_contiguous


def got_kind(dtype):
    return (dtype.kind, None if dtype.kind in "SU" else dtype.itemsize)


@given(rows=st.integers(1, 300), width=st.integers(1, 600))
def test_rows_of_any_size_are_kept_apart(rows, width):
    table = reverie.Table("t", reverie.selectors.Fifo(), reverie.selectors.Fifo(), 1000)
    with serve([table]) as client:
        data = np.arange(rows * width, dtype=np.int32).reshape(rows, width)
        keys = client.insert_batch("t", data)
        np.testing.assert_array_equal(client.get("t", keys).data, data)


@pytest.mark.emulated
@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_inserts_with_wait_false_keep_the_order_of_calls_and_flush_waits_for_all(connect):
    client = connect(reverie.Table.queue("t", 10_000))
    for first in range(0, 900, 3):
        assert client.insert_batch("t", {"n": np.arange(first, first + 3)}, wait=False) is None
    assert client.flush() is None
    assert client.server_info()["t"].current_size == 900
    assert client.sample_batch("t", 900).data["n"].tolist() == list(range(900))
    client.flush(timeout=0)


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_inserts_with_wait_false_may_wait_for_the_limiter_up_to_a_bound_and_block_nothing_else(connect):
    client = connect(reverie.Table.queue("t", 4))
    key = client.insert_batch("t", {"n": np.arange(1)})
    for number in range(1, 4096 + 4):
        client.insert_batch("t", {"n": np.array([number])}, wait=False, timeout=200)
    # The limiter let three of them in, which leaves 4,096 that are not answered.
    with pytest.raises(reverie.DeadlineExceededError, match=r"nothing was inserted; .*table 't'") as raised:
        client.insert_batch("t", {"n": np.array([-1])}, wait=False, timeout=0)
    assert raised.value.partial.shape == (0,)
    with pytest.raises(reverie.DeadlineExceededError, match=r"flush: .*table 't'"):
        client.flush(timeout=0)
    assert client.update_priorities("t", key, [2.0], wait=False) is None
    assert client.update_priorities("t", key, [3.0]).applied == 1
    assert client.sample_batch("t", 4100, timeout=200).data["n"].tolist() == list(range(4100))
    client.flush(timeout=200)
    assert client.server_info()["t"].current_size == 0


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_a_writer_ahead_of_a_limiter_continues_up_to_its_own_bound(connect):
    client = connect(reverie.Table.queue("t", 2), reverie.Table.queue("u", 2))
    writer = client.trajectory_writer(1)
    for number in range(24):
        writer.append({"x": np.full(64 << 10, number, np.uint8)})
        writer.create_item("t", 1.0, {"x": writer.history["x"][-1]})
        client.insert_batch("u", {"x": np.full((1, 64 << 10), number, np.uint8)}, wait=False)
    writer.flush(22, timeout=200)
    assert writer.num_in_flight == 22
    for table in ("t", "u"):
        assert client.sample_batch(table, 24, timeout=200).data["x"][:, -1].tolist() == list(range(24))
    writer.close()


def test_invalid_inserts_with_wait_false_are_refused_at_once(connect):
    client = connect()
    with pytest.raises(reverie.UnknownTableError):
        client.insert_batch("u", {"n": np.ones(1)}, wait=False)
    with pytest.raises(ValueError, match="priorit"):
        client.insert_batch("t", {"n": np.ones(1)}, float("nan"), wait=False)
    client.flush()
    assert client.info().unawaited_errors == 0
    assert client.server_info()["t"].current_size == 0


def test_a_step_with_the_known_form_and_another_memory_layout_arrives_unchanged(connect):
    """Steps of a known form are read in place; a step that only looks like one must be detected."""
    client = connect()

    def step(number, obs=None, action=None):
        obs = np.full(4, number, np.float32) if obs is None else obs
        return {"obs": obs, "action": np.int64(number) if action is None else action}

    class Subclass(np.ndarray):
        pass

    steps = [
        step(0),
        step(1),
        step(2, obs=np.repeat(np.float32([2, 9]), 4)[:4][::-1]),
        step(3, obs=np.full(8, 3, np.float32)[::2]),
        step(4, obs=np.full(4, 4, ">f4")),
        step(5, obs=np.full(4, 5, np.float32).view(Subclass)),
        step(6, action=6),
        step(7, action=np.asarray(7)),
        step(8),
        dict(reversed(step(9).items())),
        step(10),
    ]
    for one in steps:
        client.insert(one, {"t": 1.0})
    data = client.get("t", client.query("t").key).data
    assert sorted(data["action"].tolist()) == list(range(11))
    np.testing.assert_array_equal(data["obs"], np.repeat(data["action"][:, None], 4, axis=1).astype(np.float32))
    assert (data["obs"].dtype, data["action"].dtype) == (np.float32, np.int64)


def test_reading_a_leaf_may_insert_another_step_with_the_same_client(connect):
    client = connect()

    class Leaf:
        def __array__(self, dtype=None, copy=None):
            client.insert({"n": np.int64(1)}, {"t": 1.0})
            return np.asarray(2)

    for _ in range(2):
        client.insert({"n": np.int64(0)}, {"t": 1.0})
        client.insert({"n": Leaf()}, {"t": 1.0})
    assert sorted(client.get("t", client.query("t").key).data["n"].tolist()) == [0, 0, 1, 1, 2, 2]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_an_empty_insert_makes_no_items_and_does_not_ask_the_limiter(connect):
    client = connect(reverie.Table.queue("q", 1))
    client.insert_batch("q", {"x": np.zeros(1)})
    assert client.insert_batch("q", {"x": np.zeros(0)}, timeout=0).tolist() == []
    assert client.insert_batch("q", {"x": np.zeros((0, 2))}, [], timeout=0).dtype == np.int64
    assert client.insert_batch("q", {"x": np.zeros(0)}, wait=False) is None
    assert client.info().tables["q"].num_inserts == 1


def test_a_deadline_error_is_raised_only_if_some_insert_is_missing(connect):
    client = connect()
    client.info()
    reported, complete = 0, []
    for number in range(20):
        try:
            reported += len(client.insert_batch("t", {"x": np.full(3, number)}, timeout=0))
        except reverie.DeadlineExceededError as late:
            reported, complete = reported + len(late.partial), [*complete, len(late.partial) == 3]
        try:
            client.insert({"x": number}, {"t": 1.0}, timeout=0)
            reported += 1
        except reverie.DeadlineExceededError as late:
            complete.append(late.partial != [])
    assert not any(complete)
    assert client.info().tables["t"].num_inserts == reported


@pytest.mark.long
@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_a_large_insert_is_split_into_requests_in_order_up_to_the_limit(connect, uniform):
    # A request over a network holds 2**19.
    room, rows = 2**19 + 10, np.arange(2**19 + 100, dtype=np.int32)
    for seconds in (1.0, 8.0, 40.0, 160.0):  # on a busy machine they take time
        client = connect(reverie.Table.queue("q", room), uniform("t", max_size=10**6))
        with pytest.raises(reverie.DeadlineExceededError) as raised:
            client.insert_batch("q", {"x": rows}, timeout=seconds)
        keys, full = raised.value.partial, "table 'q': 524298 of 524298 items"
        # The last rows may go in behind the reason, which is of a moment before.
        if len(keys) == room and full in str(raised.value):
            break
    assert full in str(raised.value)
    assert len(set(keys.tolist())) == len(keys) == room
    assert client.get("q", keys[[0, 2**19 - 1, 2**19, -1]]).data["x"].tolist() == [0, 2**19 - 1, 2**19, room - 1]
    assert client.insert_batch("t", {"x": rows}, np.ones(len(rows))).shape == rows.shape
    client.insert_batch("t", {"x": rows[: 2**19 + 1]}, wait=False)
    client.flush()
    assert client.info().tables["t"].num_inserts == len(rows) + 2**19 + 1
