import dataclasses
import gc
import inspect
import pickle
import threading
import weakref

import numpy as np
import pytest

import reverie
from reverie import Table, rate_limiters, selectors


@pytest.mark.emulated
@pytest.mark.one_table_only("each server evicts by itself: which items leave differs")
def test_priorities_change_the_draws_and_stale_keys_are_counted(connect, uniform):
    client = connect(uniform("t", max_size=4, sampler=selectors.Prioritized(1.0, seed=0)))
    keys = client.insert_batch("t", {"n": np.arange(4)})
    assert client.update_priorities("t", keys, np.float32([0, 0, 1, 0])) == (4, 0)
    assert set(client.sample_batch("t", 20).data["n"].tolist()) == {2}
    client.insert_batch("t", {"n": np.arange(4, 6)}, priorities=0.0)
    result = client.update_priorities("t", keys, np.ones(4))
    assert (result.applied, result.stale) == (2, 2)
    info = client.info().tables["t"]
    assert (info.num_updates, info.num_stale_updates, info.num_evicted) == (6, 2, 2)


def test_updates_may_require_a_version(connect):
    client = connect()
    keys = client.insert_batch("t", {"n": np.arange(2)})
    seen = client.get("t", keys).info.version
    client.update_priorities("t", keys[:1], [5.0])
    assert client.update_priorities("t", keys, [9.0, 9.0], if_version=seen) == (1, 1)
    assert client.get("t", keys).info.priority.tolist() == [5.0, 9.0]


def test_updates_of_unequal_length_or_of_floats_as_keys_are_refused(connect):
    client = connect()
    keys = client.insert_batch("t", {"n": np.arange(2)})
    with pytest.raises(ValueError):
        client.update_priorities("t", keys, [1.0])
    with pytest.raises(ValueError, match="keys"):
        client.update_priorities("t", keys.astype(float), [1.0, 1.0])
    assert client.update_priorities("t", [], []) == (0, 0)


@pytest.mark.emulated
def test_a_mutation_deletes_first(connect):
    client = connect()
    a, b = client.insert_batch("t", {"n": np.arange(2)}).tolist()
    updated, deleted = client.mutate_priorities("t", updates={a: 3.0, b: 4.0}, deletes=[a, a])
    assert (updated, deleted) == ((1, 1), (1, 1))
    assert client.get("t", [b]).info.priority.tolist() == [4.0]
    with pytest.raises(reverie.UnknownKeyError) as raised:
        client.get("t", [a])
    assert raised.value.key == a
    assert client.delete("t", [b]) == (1, 0)
    assert client.info().tables["t"].size_bytes == 0


def test_a_reset_empties_the_table_and_resets_the_counts(connect):
    client = connect()
    keys = client.insert_batch("t", {"n": np.arange(5)})
    client.sample_batch("t", 5)
    client.reset("t")
    info = client.info().tables["t"]
    assert (info.current_size, info.num_inserts, info.num_samples, info.size_bytes) == (0, 0, 0, 0)
    client.insert_batch("t", {"n": np.arange(5)})
    assert client.update_priorities("t", keys, np.ones(5)) == (0, 5)


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_limits_change_while_running(connect):
    client = connect()
    client.insert_batch("t", {"n": np.arange(10)})
    client.configure("t", max_size=3, max_times_sampled=1, rate_limiter=rate_limiters.MinSize(2))
    assert client.info().tables["t"].current_size == 3
    assert not client.can_sample("t", 3) or client.sample_batch("t", 2)
    with pytest.raises(ValueError, match=r"min_size_to_sample|max_size"):
        client.configure("t", rate_limiter=rate_limiters.MinSize(4))


@pytest.mark.emulated
@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_waiting_calls_proceed_when_new_limits_allow(connect):
    client = connect(Table.queue("q", 2), Table("t", selectors.Fifo(), selectors.Fifo(), 10, rate_limiters.MinSize(5)))
    done = []

    def insert():
        done.append(client.insert_batch("q", {"n": np.arange(4)}, timeout=200))

    def sample():
        done.append(client.sample_batch("t", 1, timeout=200))

    client.insert_batch("t", {"n": np.arange(2)})
    threads = [threading.Thread(target=work) for work in (insert, sample)]
    for thread in threads:
        thread.start()
    while not (client.why("q").inserts and client.why("t").samples):
        pass
    assert not done
    client.configure("q", max_size=4, rate_limiter=rate_limiters.Queue(4))
    client.configure("t", rate_limiter=rate_limiters.MinSize(1))
    for thread in threads:
        thread.join(200)
    assert len(done) == 2
    assert client.info().tables["q"].current_size == 4


def test_a_table_of_this_process_changes_its_own_limits():
    table = Table.queue("q", 4)
    with pytest.raises(ValueError, match="no server"):
        table.configure(max_size=2)
    with reverie.Server([table], listen=False) as server:
        server.client().insert_batch("q", {"n": np.arange(4)})
        table.configure(max_size=2, rate_limiter=rate_limiters.Queue(2), max_times_sampled=2)
        assert (table.info.max_size, table.info.current_size, table.info.max_times_sampled) == (2, 2, 2)
        assert table.max_size == 4


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_can_sample_and_can_insert_ask_the_limiter(connect):
    client = connect(Table.queue("q", 3))
    assert client.can_insert("q", 3)
    assert not client.can_insert("q", 4)
    assert not client.can_sample("q", 1)
    client.insert_batch("q", {"n": np.arange(3)})
    assert client.can_sample("q", 3)
    assert not client.can_insert("q")


@pytest.mark.emulated
@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_queue_and_stack_give_every_item_once_in_their_order(connect):
    client = connect(Table.queue("q", 4), Table.stack("s", 4))
    for name, order in (("q", [0, 1, 2, 3]), ("s", [3, 2, 1, 0])):
        client.insert_batch(name, {"n": np.arange(4)})
        assert client.sample_batch(name, 4).data["n"].tolist() == order
        assert client.info().tables[name].current_size == 0


@pytest.mark.emulated
def test_max_bytes_evicts_by_the_remover(connect, uniform):
    client = connect(uniform("t", max_bytes=200_000, compression="none"))
    for n in range(50):
        client.insert({"n": n, "x": np.zeros(10_000, np.uint8)}, {"t": 1.0})
    info = client.info().tables["t"]
    assert info.size_bytes <= 200_000
    assert 5 < info.current_size < 50
    assert client.sample_batch("t", 100).data["n"].min() > 20


def test_a_server_that_can_never_free_bytes_refuses_at_once(connect, uniform):
    client = connect(uniform("t", compression="none"), max_bytes=100_000)
    client.insert_batch("t", {"x": np.zeros((5, 10_000), np.uint8)})
    with pytest.raises(reverie.ResourceExhaustedError) as raised:
        client.insert_batch("t", {"x": np.zeros((50, 10_000), np.uint8)})
    assert client.info().tables["t"].current_size == 5
    assert raised.value.budget == 100_000
    assert raised.value.needed > 100_000


def test_why_names_the_numbers(connect):
    client = connect(Table("t", selectors.Uniform(), selectors.Fifo(), 100, rate_limiters.MinSize(10)))
    client.insert_batch("t", {"n": np.arange(3)})
    why = client.why("t")
    assert (why.size, why.num_inserts, why.inserts, why.samples) == (3, 3, (), ())
    assert "7 more inserts" in why.sample_reason
    assert why.insert_reason is None
    assert not why.stuck
    assert "7 more inserts" in str(why)


def test_info_has_the_names_of_ported_code(connect, uniform, until):
    client = connect(uniform("t", sampler=selectors.Prioritized(0.6), remover=selectors.MinHeap()))
    client.insert({"n": 1}, {"t": 1.0})
    list(client.sample("t", 3))
    info = client.server_info()["t"]
    assert info.name == "t"
    assert info.sampler_options.WhichOneof("distribution") == "prioritized"
    assert info.sampler_options.prioritized.priority_exponent == 0.6
    assert info.remover_options.WhichOneof("distribution") == "heap"
    assert info.remover_options.heap.min_heap
    assert info.remover_options.is_deterministic
    assert info.rate_limiter_info.insert_stats.completed == 1
    assert info.rate_limiter_info.sample_stats.completed == 3
    assert info.num_unique_samples == 1
    until(lambda: client.server_info()["t"].table_worker_time.sleeping_ms > 0)  # it is there, and does nothing
    assert sum(info.age_histogram) == 3


def test_figures_come_with_the_options_of_the_tables_only_where_they_are_wanted(connect, uniform):
    client = connect(uniform("t"))
    figures, with_options = (client._info(options=options)["tables"]["t"] for options in (False, True))
    assert "options" not in figures
    assert with_options.pop("options")["name"] == "t"
    assert with_options.keys() == figures.keys()
    assert client.info().tables["t"].sampler_options.WhichOneof("distribution") == "uniform"


def test_table_arguments_are_refused_where_they_are_given():
    good = {"sampler": selectors.Fifo(), "remover": selectors.Fifo(), "max_size": 10}
    with pytest.raises(ValueError, match="name"):
        Table("", **good)
    with pytest.raises(ValueError, match="max_size"):
        Table("t", **{**good, "max_size": 0})
    with pytest.raises(TypeError, match="sampler"):
        Table("t", **{**good, "sampler": "uniform"})
    with pytest.raises(TypeError, match="rate_limiter"):
        Table("t", **good, rate_limiter=5)
    for name in ("gzip", "auto:fast", "AUTO", None):
        with pytest.raises(ValueError, match='"auto", "auto:speed", "auto:size", "none", "lz4" or "zstd"'):
            Table("t", **good, compression=name)
    with pytest.raises(TypeError, match="extensions"):
        Table("t", **good, extensions=[1])


def test_a_server_takes_the_largest_max_size_that_the_docstring_names_and_refuses_a_larger_one():
    most = 2**27
    assert f"{most:,} (2**27)" in str(Table.__doc__)
    table = Table("t", selectors.Uniform(), selectors.Fifo(), most)
    reverie.Server([table], listen=False).stop()
    with pytest.raises(ValueError, match=rf"max_size must be between 1 and {most}, got {most + 1}"):
        reverie.Server([table.replace(max_size=most + 1)], listen=False)


def test_replace_keeps_options_that_are_none():
    table = Table("t", selectors.Uniform(), selectors.Fifo(), 10, max_times_sampled=3, max_bytes=100)
    assert table.replace(None, None, selectors.Lifo(), None, None, None, None, None).remover == selectors.Lifo()
    assert repr(table.replace(name=None, signature=None, max_times_sampled=None)) == repr(table)
    assert (table.replace("u").name, table.replace(max_times_sampled=0).max_times_sampled) == ("u", 0)
    assert table.replace(max_bytes=None).max_bytes is None
    assert (table.replace(max_bytes=...).max_bytes, table.replace(max_bytes=7).max_bytes) == (100, 7)
    assert table.replace(compression="zstd").replace(compression=None).compression == "zstd"
    with pytest.raises(TypeError, match="colour"):
        table.replace(colour=1)


def test_replace_names_every_option_of_a_table():
    assert set(inspect.signature(Table.replace).parameters) == set(inspect.signature(Table.__init__).parameters)


def test_servers_refuse_invalid_options():
    table = Table("t", selectors.Uniform(), selectors.Fifo(), 10, rate_limiters.MinSize(11))
    with pytest.raises(ValueError, match="11"):
        reverie.Server([table], listen=False)
    with pytest.raises(ValueError, match="at least one table"):
        reverie.Server([], listen=False)
    with pytest.raises(ValueError, match="'q'"):
        reverie.Server([Table.queue("q", 1), Table.queue("q", 2)], listen=False)
    with pytest.raises(ValueError, match="listen=False"):
        reverie.Server([Table.queue("q", 1)], port=0, listen=False)
    with pytest.raises(ValueError, match=r"name must be text that UTF-8 can encode, got 'q\\ud800'"):
        Table.queue("q\ud800", 1)
    with pytest.raises(ValueError, match="name must not be empty"):
        Table.queue("", 1)


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_an_error_names_some_of_very_many_tables_and_its_attribute_all(connect):
    client = connect(*(Table.queue(f"q{number}", 1) for number in range(50)))
    with pytest.raises(reverie.UnknownTableError, match=r"'q0', .*'q19' and 30 more$") as raised:
        client.insert({"n": 1}, {"q50": 1.0})
    assert raised.value.known == [f"q{number}" for number in range(50)]


def test_a_table_is_on_one_server_and_a_replacement_is_new():
    table = Table.queue("q", 5)
    with reverie.Server([table], listen=False) as server:
        server.client().insert({"n": 1}, {"q": 1.0})
        assert table.info.current_size == 1
        assert table.can_sample(1)
        assert not table.can_insert(5)
        with pytest.raises(ValueError, match="already"):
            reverie.Server([table], listen=False)
        other = table.replace(max_size=7)
        assert other.max_size == 7
        with pytest.raises(TypeError, match="live"):
            pickle.dumps(table)
    assert repr(pickle.loads(pickle.dumps(other))) == repr(other)
    with pytest.raises(AttributeError, match="max_size"):
        other.max_size = 9


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: selectors.Uniform(seed=-1), r"seed must be between 0 and 2\*\*64 - 1, got -1"),
        (lambda: selectors.Fifo(seed=2**64), "seed must be between 0 .*, got 18446744073709551616"),
        (lambda: selectors.Prioritized(float("nan")), "priority_exponent must be a finite number, got nan"),
        (lambda: selectors.Prioritized(float("inf")), "priority_exponent must be a finite number, got inf"),
        (lambda: rate_limiters.RateLimiter(1.0, 1, 2.0, 1.0), "min_diff must not be above max_diff, got 2.0 and 1.0"),
        (lambda: rate_limiters.RateLimiter(1.0, 1, float("nan"), 1.0), "min_diff must not be above max_diff, got nan"),
        (lambda: rate_limiters.RateLimiter(float("inf"), 1, 0.0, 1.0), "samples_per_insert must be a finite number"),
    ],
)
def test_invalid_numbers_of_selectors_and_limiters_are_refused_by_name(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_limiters_refuse_impossible_limits_with_their_numbers():
    with pytest.raises(ValueError, match="samples_per_insert"):
        rate_limiters.SampleToInsertRatio(0.0, 1, 5.0)
    with pytest.raises(ValueError, match="min_size_to_sample"):
        rate_limiters.MinSize(0)
    with pytest.raises(ValueError, match="error_buffer"):
        rate_limiters.SampleToInsertRatio(4.0, 10, 3.9)
    with pytest.raises(ValueError, match=r"narrower than 2\.0 .* widen error_buffer"):
        rate_limiters.SampleToInsertRatio(0.25, 10, 0.9)
    rate_limiters.SampleToInsertRatio(0.25, 10, 1.0)
    for nonsense in (-1.0, float("nan"), (5.0, 1.0), (float("nan"), 60.0)):
        with pytest.raises(ValueError, match="error_buffer must be"):
            rate_limiters.SampleToInsertRatio(4.0, 10, nonsense)
    with pytest.raises(TypeError, match="error_buffer must be a number, got 'all'"):
        rate_limiters.SampleToInsertRatio(4.0, 10, ("all", 60.0))
    with pytest.raises(ValueError, match="error_buffer begins at 41"):
        rate_limiters.SampleToInsertRatio(4.0, 10, (41.0, 100.0))
    with pytest.warns(UserWarning, match="error_buffer ends at 39"):
        rate_limiters.SampleToInsertRatio(4.0, 10, (0.0, 39.0))
    assert rate_limiters.SampleToInsertRatio(2.0, 5, 4).min_diff == 6.0


def test_options_pickle_and_compare_by_value():
    for option in (
        selectors.Prioritized(0.6, seed=3),
        selectors.Uniform(),
        rate_limiters.SampleToInsertRatio(2.0, 5, 4),
        rate_limiters.Queue(3),
        reverie.TensorSpec((None, 3), np.uint8, "frame"),
    ):
        again = pickle.loads(pickle.dumps(option))
        assert again == option
        assert hash(again) == hash(option)
        assert repr(again) == repr(option)
    with pytest.raises(ValueError, match="finite"):
        selectors.Prioritized(float("nan"))


@pytest.mark.parametrize(
    "table",
    [
        Table.queue("q", 5, signature=[reverie.TensorSpec((), np.int64)]),
        Table("t", selectors.Prioritized(0.5), selectors.MinHeap(), 7, rate_limiters.MinSize(3), max_times_sampled=2),
        Table("r", selectors.Uniform(), selectors.Fifo(), 7, rate_limiters.SampleToInsertRatio(2.0, 2, (1.0, 9.0))),
    ],
)
def test_a_table_that_is_on_no_server_yet_is_an_empty_one(table):
    before = table.info, [table.can_sample(n) for n in range(3)], [table.can_insert(n) for n in range(9)]
    with reverie.Server([table], listen=False):
        info = dataclasses.replace(table.info, table_worker_time=before[0].table_worker_time)
        assert before == (
            info, [table.can_sample(n) for n in range(3)], [table.can_insert(n) for n in range(9)]
        )  # fmt: skip


def test_selectors_report_their_kind():
    assert selectors.MaxHeap().HasField("heap")
    assert not selectors.MaxHeap().HasField("fifo")
    with pytest.raises(ValueError, match="got 'age'"):
        selectors.Fifo().HasField("age")


def test_the_memory_of_an_unreferenced_server_is_freed_without_the_cycle_collector():
    gc.disable()
    try:
        table = Table.queue("q", 5)
        server = reverie.Server([table], listen=False)
        kept = weakref.ref(table._host)
        server.client().insert_batch("q", {"n": np.arange(3)})
        assert table.info.current_size == 3
        server.stop()
        del server, table
        assert kept() is None
    finally:
        gc.enable()
