import subprocess
import sys
import threading

import numpy as np
import pytest

import reverie
from reverie import Table, rate_limiters, selectors
from reverie.datasets.batches import split


@pytest.mark.emulated
@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_batches_come_in_the_order_of_a_fifo_and_end_with_max_samples(connect, prefetch):
    client = connect(Table("t", selectors.Fifo(), selectors.Fifo(), 100, max_times_sampled=1))
    client.insert_batch("t", {"n": np.arange(50), "x": np.ones((50, 3))})
    with client.batches("t", 8, prefetch=prefetch, max_samples=20) as batches:
        got = [batch.data["n"].tolist() for batch in batches]
    assert got == [list(range(8)), list(range(8, 16)), list(range(16, 20))]
    assert batches.leftover == []
    assert client.info().tables["t"].current_size == 30


@pytest.mark.emulated
@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_undelivered_draws_are_in_leftover(connect):
    client = connect(Table("t", selectors.Fifo(), selectors.Fifo(), 100, max_times_sampled=1))
    client.insert_batch("t", {"n": np.arange(11)})
    batches = client.batches("t", 4, prefetch=2)
    assert next(batches).data["n"].tolist() == [0, 1, 2, 3]
    while client.info().tables["t"].current_size:
        pass
    batches.close()
    batches.close()
    assert [batch.data["n"].tolist() for batch in batches.leftover] == [[4, 5, 6, 7], [8, 9, 10]]
    with pytest.raises(reverie.ClosedError):
        next(batches)


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
@pytest.mark.parametrize("mixed", [False, True])
def test_draws_of_an_iterator_that_was_not_closed_return_to_their_table_in_order(connect, until, mixed):
    client = connect(*(Table(name, selectors.Fifo(), selectors.Fifo(), 100, max_times_sampled=1) for name in "ab"))
    client.insert_batch("a", {"n": np.arange(11)})
    client.insert_batch("b", {"n": np.arange(100, 111)})
    batches = client.batches({"a": 0.5, "b": 0.5} if mixed else "a", 4, prefetch=2)
    taken = next(batches).data["n"].tolist()
    assert taken == ([0, 1, 100, 101] if mixed else [0, 1, 2, 3])
    # Two batches are ready, or one and a part of another.
    until(lambda: client.info().tables["a"].num_leased >= (4 if mixed else 7))
    del batches
    until(lambda: client.info().tables["a"].num_leased == 0)
    left = client.sample_batch("a", 11 - len([n for n in taken if n < 100]), timeout=200)
    assert left.data["n"].tolist() == list(range(2 if mixed else 4, 11))
    assert client.info().tables["a"].num_samples == 11


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_batches_that_are_taken_are_acknowledged(connect, until):
    client = connect(Table("t", selectors.Fifo(), selectors.Fifo(), 100, max_times_sampled=1))
    client.insert_batch("t", {"n": np.arange(6)})
    batches = client.batches("t", 2, prefetch=1, max_samples=6)
    assert [batch.data["n"].tolist() for batch in batches] == [[0, 1], [2, 3], [4, 5]]
    until(lambda: client.info().tables["t"].num_leased == 0)
    del batches
    assert client.info().tables["t"].current_size == 0


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_batch_whose_conversion_failed_is_in_leftover(connect, monkeypatch, prefetch):
    client = connect(Table("t", selectors.Fifo(), selectors.Fifo(), 100, max_times_sampled=1))
    client.insert_batch("t", {"n": np.arange(4)})
    converted = []

    def convert(batch):
        if converted:
            raise MemoryError("as of a GPU that is full")
        converted.append(batch)
        return batch

    monkeypatch.setattr("reverie.adapters.converter", lambda *_: convert)
    with client.batches("t", 2, prefetch=prefetch, timeout=200) as batches:
        assert next(batches).data["n"].tolist() == [0, 1]
        with pytest.raises(MemoryError, match="full"):
            next(batches)
    assert [batch.data["n"].tolist() for batch in batches.leftover] == [[2, 3]]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_consuming_tables_are_prefetched_only_on_request(connect):
    client = connect(Table.queue("q", 100))
    client.insert_batch("q", {"n": np.arange(10)})
    with client.batches("q", 2) as batches:
        next(batches)
        assert client.info().tables["q"].current_size == 8


def test_prefetched_batches_are_bounded(connect, uniform):
    client = connect(uniform("t"))
    client.insert_batch("t", {"n": np.arange(10)})
    with client.batches("t", 5, prefetch=2) as batches:
        next(batches)
        for _ in range(50):
            client.why("t")
        assert client.info().tables["t"].num_samples <= 5 * (1 + 2)


def test_columns_and_ragged_are_those_of_sample_batch(connect):
    client = connect()
    client.insert_batch("t", {"obs": {"a": np.arange(5), "b": np.arange(5)}, "r": np.ones(5)})
    with client.batches("t", 3, columns=["obs/b", "r"], prefetch=1) as batches:
        data = next(batches).data
    assert {key: list(value) if isinstance(value, dict) else None for key, value in data.items()} == {
        "obs": ["b"],
        "r": None,
    }


def test_large_batches_own_their_memory(connect):
    client = connect()
    rows = np.random.default_rng(0).random((64, 3000))
    client.insert_batch("t", {"x": rows, "n": np.arange(64)})
    with client.batches("t", 32, prefetch=2, max_samples=32 * 12) as batches:
        held = list(batches)
    for batch in held:
        np.testing.assert_array_equal(batch.data["x"], rows[batch.data["n"]])
        assert batch.data["x"].flags.writeable


def test_a_late_batch_raises_the_reason_and_can_be_requested_again(connect):
    client = connect(Table("t", selectors.Uniform(), selectors.Fifo(), 100, rate_limiters.MinSize(5)))
    with client.batches("t", 4, timeout=0.01) as batches:
        with pytest.raises(reverie.DeadlineExceededError, match="5 more inserts"):
            next(batches)
        threading.Timer(0.02, lambda: client.insert_batch("t", {"n": np.arange(5)})).start()
        while True:
            try:
                assert len(next(batches)) == 4
                break
            except reverie.DeadlineExceededError:
                continue


def test_a_server_that_stops_ends_the_iterator_with_its_error_at_every_call():
    server = reverie.Server([Table.queue("q", 5)], listen=False)
    batches = server.client().batches("q", 2, prefetch=1)
    threading.Timer(0.02, server.stop).start()
    for _ in range(3):
        with pytest.raises(reverie.ClosedError):
            next(batches)


@pytest.mark.emulated
def test_tables_are_mixed_by_their_shares(connect, uniform):
    client = connect(uniform("online"), uniform("offline"))
    client.insert_batch("online", {"n": np.arange(10)})
    client.insert_batch("offline", {"n": np.arange(100, 110)})
    with client.batches({"online": 3.0, "offline": 1.0}, 8) as batches:
        batch = next(batches)
    assert (batch.data["n"] >= 100).tolist() == [False] * 6 + [True] * 2
    assert batches.tables == {"online": 6, "offline": 2}
    with pytest.raises(ValueError, match="table"):
        batch.weights(0.5, normalise="table")


def test_shares_add_up_to_the_batch():
    assert split({"a": 1, "b": 1, "c": 1}, 10) == {"a": 4, "b": 3, "c": 3}
    assert split({"a": 0.9, "b": 0.1}, 10) == {"a": 9, "b": 1}
    for wrong in ({}, {"a": 0.0}, {"a": float("nan")}, {"a": 1000.0, "b": 0.1}):
        with pytest.raises(ValueError):
            split(wrong, 10)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 1, "prefetch": -1}, "prefetch"),
        ({"batch_size": 1, "max_samples": 0}, "max_samples"),
        ({"batch_size": 1, "as_": "keras"}, "as_"),
        ({"batch_size": 1, "device": "cuda"}, "device"),
        ({"batch_size": 1, "ragged": "maybe"}, "ragged"),
    ],
)
def test_invalid_options_are_refused(connect, options, word):
    client = connect()
    client.insert({"n": 1}, {"t": 1.0})
    with pytest.raises(ValueError, match=word):
        next(client.batches("t", **options))
    with pytest.raises(reverie.UnknownTableError):
        client.batches("nope", 1)


def test_torch_batches_are_tensors_over_the_same_memory(connect):
    torch = pytest.importorskip("torch")
    from reverie.adapters.torch import BatchDataset, to_tensor

    client = connect()
    client.insert_batch("t", {"x": np.ones((5, 3), np.float32), "s": np.array(["a"] * 5), "f": np.zeros(5, bool)})
    with client.batches("t", 4, as_="torch", device="cpu", pinned=False) as batches:
        batch = next(batches)
    assert batch.data["x"].dtype == torch.float32
    assert batch.data["x"].shape == (4, 3)
    assert batch.data["f"].dtype == torch.bool
    assert isinstance(batch.data["s"], np.ndarray)
    assert isinstance(batch.info.key, np.ndarray)
    array = np.zeros(3)
    to_tensor(array)[0] = 5.0
    assert array[0] == 5.0
    loader = torch.utils.data.DataLoader(
        BatchDataset(lambda: client.batches("t", 4, as_="torch", max_samples=8, columns=["x"])), batch_size=None
    )
    assert [batch.data["x"].shape[0] for batch in loader] == [4, 4]
    ml_dtypes = pytest.importorskip("ml_dtypes")
    half = to_tensor(np.array([1.5], ml_dtypes.bfloat16))
    assert (half.dtype, half.tolist()) == (torch.bfloat16, [1.5])


def test_an_unclosed_iterator_ends_with_the_process():
    code = (
        "import numpy as np, reverie\n"
        "server = reverie.Server([reverie.Table.queue('q', 5)], listen=False)\n"
        "batches = server.client().batches('q', 2, prefetch=1)\n"
        "server.client().insert_batch('q', {'n': np.arange(2)})\n"
        "print(next(batches).data['n'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=200)
    assert done.stdout.strip() == "[0 1]"
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("columns", "kind", "words"),
    [
        ([], ValueError, "an empty list selects nothing"),
        ("x", TypeError, "columns must be a list of paths"),
        ([1], TypeError, "columns must be a list of paths"),
        (3, TypeError, "columns must be a list of paths"),
    ],
)
def test_unknown_columns_are_refused_over_every_transport_in_every_call(connect, columns, kind, words):
    client = connect()
    keys = client.insert_batch("t", {"x": np.arange(4)})
    for call in (
        lambda: client.sample_batch("t", 2, columns=columns),
        lambda: next(client.batches("t", 2, prefetch=0, columns=columns)),
        lambda: next(client.batches("t", 2, prefetch=2, columns=columns)),
        lambda: next(client.windows("t", 2, 1, columns=columns)),
        lambda: client.get("t", keys, columns=columns),
    ):
        with pytest.raises(kind, match=words):
            call()


def test_batches_without_replacement_have_every_item_once(connect):
    client = connect()
    client.insert_batch("t", {"n": np.arange(8)})
    with client.batches("t", 8, without_replacement=True, max_samples=80) as batches:
        assert [sorted(batch.data["n"].tolist()) for batch in batches] == [list(range(8))] * 10
    with client.batches("t", 8, max_samples=80) as batches:
        assert any(len(set(batch.data["n"].tolist())) < 8 for batch in batches)
