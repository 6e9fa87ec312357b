"""Invalid arguments: refused at once, by the caller's name for them, without partial effects."""

import ast
import inspect
from pathlib import Path

import numpy as np
import pytest

import reverie
from reverie import Table, _native, rate_limiters, selectors


def table(name="t", **options):
    options = {"sampler": selectors.Uniform(seed=1), "remover": selectors.Fifo(), "max_size": 100, **options}
    return Table(name, **options)


def connect(*tables):
    return reverie.Server(tables or [table()], listen=False).client()


@pytest.fixture
def client():
    client = connect()
    client.insert_batch("t", {"x": np.arange(8)})
    return client


COUNTS = {
    "batch_size": [
        lambda client, n: client.sample_batch("t", n, timeout=0),
        lambda client, n: client.batches("t", n),
        lambda client, n: client.batches("t", n, prefetch=2),
    ],
    "num_samples": [lambda client, n: client.sample("t", n), lambda client, n: client.can_sample("t", n)],
    "num_inserts": [lambda client, n: client.can_insert("t", n)],
    "prefetch": [lambda client, n: client.batches("t", 1, prefetch=n)],
    "max_samples": [lambda client, n: client.batches("t", 1, max_samples=n)],
    "max_size": [lambda client, n: client.configure("t", max_size=n), lambda _, n: table(max_size=n)],
    "max_times_sampled": [lambda client, n: client.configure("t", max_times_sampled=n)],
    "max_bytes": [lambda _, n: table(max_bytes=n)],
    "num_keep_alive_refs": [
        lambda client, n: client.trajectory_writer(n),
        lambda client, n: client.trajectory_writer(1).configure("x", num_keep_alive_refs=n),
    ],
    "chunk_length": [lambda client, n: client.trajectory_writer(1, chunk_length=n)],
    "max_chunk_length": [
        lambda client, n: client.trajectory_writer(1).configure("x", num_keep_alive_refs=1, max_chunk_length=n)
    ],
    "max_in_flight_bytes": [
        lambda client, n: client.trajectory_writer(1, max_in_flight_bytes=n),
        lambda client, n: client.transition_writer("t", max_in_flight_bytes=n),
    ],
    "block_until_num_items": [
        lambda client, n: client.trajectory_writer(1).flush(n),
        lambda client, n: client.transition_writer("t").flush(n),
    ],
    "n_step": [lambda client, n: client.transition_writer("t", n_step=n)],
    "num_envs": [lambda client, n: client.transition_writer("t", num_envs=n)],
    "frame_stack": [lambda client, n: client.transition_writer("t", frame_stack=n)],
    "stack_axis": [lambda client, n: client.transition_writer("t", stack_axis=n)],
    "min_size_to_sample": [lambda _, n: rate_limiters.MinSize(n)],
    "size": [lambda _, n: rate_limiters.Queue(n), lambda _, n: rate_limiters.Stack(n)],
}
CALLS = [pytest.param(name, call, id=f"{name}-{i}") for name, calls in COUNTS.items() for i, call in enumerate(calls)]


@pytest.mark.parametrize(("name", "call"), CALLS)
@pytest.mark.parametrize("count", [-1, -(2**70)])
def test_a_negative_count_is_a_value_error_that_names_it(client, name, call, count):
    with pytest.raises(ValueError, match=rf"\b{name}\b.*got -"):
        call(client, count)


@pytest.mark.parametrize(("name", "call"), CALLS)
@pytest.mark.parametrize("count", [1.5, "many"])
def test_a_count_that_is_not_an_int_is_a_type_error_that_names_it(client, name, call, count):
    with pytest.raises(TypeError) as raised:
        call(client, count)
    assert name in "".join([str(raised.value), *getattr(raised.value, "__notes__", [])])


@pytest.mark.parametrize("count", [1 << 25, 10**12, 2**70])
@pytest.mark.parametrize("call", COUNTS["batch_size"])
def test_an_impossibly_large_batch_is_refused(client, call, count):
    reported = f"16777216, got {count}" if count < 2**63 else r"16777216, got 2\*\*63 - 1 or more"
    with pytest.raises(ValueError, match=reported):
        next(call(client, count))


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_batch_beyond_the_memory_is_a_memory_error_and_the_process_survives(prefetch):
    client = connect(table(compression="none"))
    client.insert_batch("t", {"x": np.zeros((1, 1 << 26), np.uint8)})
    # 2**47 bytes: more than a process of today can address, however much its system promises.
    with pytest.raises(MemoryError, match="fewer samples"):
        next(client.batches("t", 1 << 21, prefetch=prefetch))
    assert client.sample_batch("t", 1).data["x"].shape == (1, 1 << 26)


def test_draws_of_a_consuming_table_for_which_a_batch_has_no_memory_can_be_read_one_by_one():
    times = 1 << 21
    client = connect(table(sampler=selectors.Fifo(), max_times_sampled=times, compression="none"))
    client.insert_batch("t", {"x": np.full((1, 1 << 26), 7, np.uint8)})
    with pytest.raises(MemoryError, match="fewer samples") as raised:
        client.sample_batch("t", times)
    assert client.info().tables["t"].current_size == 0, "it was sampled as often as it may be"
    drawn = raised.value.drawn
    assert len(drawn) == times
    for left in (times - 1, times - 2):
        single = next(drawn)
        assert (single.data["x"].shape, int(single.data["x"][0, -1]), len(drawn)) == ((1, 1 << 26), 7, left)
        assert single.info.times_sampled.shape == (1,)


def test_a_batch_that_has_no_memory_hides_no_draws_of_other_batches():
    times = 1 << 21
    client = connect(table(sampler=selectors.Fifo(), max_times_sampled=times, compression="none"))
    for length in (1, 1 << 26, 2):
        client.insert({"x": np.zeros(length, np.uint8)}, {"t": 1.0})
        if length == 1:
            client.sample_batch("t", times - 2)
    # Draws of three shapes, which are a batch each: of two, of all times and of three.
    with pytest.raises(MemoryError, match="fewer samples") as raised:
        client._sample_available("t", times + 5)
    drawn = raised.value.drawn
    assert len(drawn) == 1 + times + 3, "the batch that was made before, and each other draw"
    first, *_ = (next(drawn) for _ in range(3))
    assert first.data["x"].shape == (2, 1)
    rest = len(drawn)
    assert next(drawn).data["x"].shape == (1, 1 << 26)
    assert len(drawn) == rest - 1


def test_a_step_that_one_table_refuses_goes_into_none():
    spec = {"x": reverie.TensorSpec((7,), np.float32)}
    tables = [table("a"), table("p", sampler=selectors.Prioritized(1.0)), table("s", signature=spec)]
    client = connect(*tables, table("b", max_bytes=8))
    for other, priority, error in [("p", -1.0, ValueError), ("s", 1.0, reverie.SignatureError)]:
        with pytest.raises(error):
            client.insert({"x": 1}, {"a": 1.0, other: priority})
    with pytest.raises(reverie.ResourceExhaustedError, match="max_bytes"):
        client.insert({"x": np.zeros(100)}, {"a": 1.0, "b": 1.0})
    with pytest.raises(TypeError, match="name must be a str, got 3"):
        client.insert({"x": 1}, {"a": 1.0, 3: 1.0})
    assert [figures.current_size for figures in client.info().tables.values()] == [0, 0, 0, 0]


def test_two_columns_of_one_path_are_refused_before_they_mix(client):
    step = {"a/b": 1.0, "a": {"b": 2.0}}
    for write in (lambda: client.insert(step, {"t": 1.0}), lambda: client.trajectory_writer(2).append(step)):
        with pytest.raises(reverie.SignatureError, match="two columns of this path") as raised:
            write()
        assert raised.value.path == "a/b"
    writer = client.trajectory_writer(2)
    writer.append({"a/b": 1.0})
    with pytest.raises(reverie.SignatureError, match="two columns of this path"):
        writer.append({"a": {"b": 2.0}})


def test_a_list_given_as_a_column_is_refused_with_the_fix(client):
    with pytest.raises(reverie.SignatureError, match=r"'x/0'.*np\.asarray"):
        client.insert_batch("t", {"x": [1, 2, 3]})


def test_limiters_take_the_scalars_of_numpy():
    limiter = rate_limiters.SampleToInsertRatio(np.float32(8), np.int64(100), np.float32(200))
    assert limiter == rate_limiters.SampleToInsertRatio(8.0, 100, 200.0)
    assert rate_limiters.SampleToInsertRatio(8, 100, [600, 1000]) == limiter
    for wrong in ("much", None, (1.0, 2.0, 3.0)):
        with pytest.raises((TypeError, ValueError), match="error_buffer"):
            rate_limiters.SampleToInsertRatio(8, 100, wrong)
    with pytest.raises(TypeError, match="samples_per_insert"):
        rate_limiters.SampleToInsertRatio("8", 100, 200)


def test_a_table_names_the_argument_of_the_wrong_type():
    with pytest.raises(TypeError, match="name must be a str, got 3"):
        table(3)
    with pytest.raises(TypeError, match="put it into"):
        reverie.Server(table(), listen=False)
    with pytest.raises(ValueError, match="max_times_sampled must be at most"):
        connect(table(max_times_sampled=2**33))


def test_counts_beyond_64_bits_and_below_their_least_are_refused_by_name_where_they_are_given():
    for make in (
        lambda count: table(max_bytes=count),
        lambda count: table(rate_limiter=rate_limiters.MinSize(count)),
        lambda count: reverie.Server([table()], listen=False, max_bytes=count),
    ):
        with pytest.raises(ValueError, match=r"(size|bytes|sample) must be at most \d+, got 1180591620"):
            make(2**70)
        with pytest.raises(ValueError, match="must be at least 1, got -1"):
            make(-1)
    with pytest.raises(TypeError, match=r"max_bytes must be an int, got 1\.5"):
        reverie.Server([table()], listen=False, max_bytes=1.5)


@pytest.mark.parametrize("stratified", ["no", 2, None])
def test_stratified_is_a_bool(stratified):
    with pytest.raises(TypeError, match="stratified must be a bool, got"):
        reverie.selectors.Prioritized(0.5, stratified=stratified)


def test_values_that_are_not_specs_or_spaces_are_refused_by_class_and_path():
    spaces = pytest.importorskip("gymnasium").spaces
    with pytest.raises(ValueError, match=r"the sizes of a shape must be None or at least 0, got \(None, -1\)"):
        reverie.TensorSpec((None, -1), np.float32)
    with pytest.raises(TypeError, match=r"a size of a shape must be an int, got 2\.5"):
        reverie.TensorSpec((2.5,), np.float32)
    assert reverie.TensorSpec((np.int8(2), None), np.float32).shape == (2, None)
    with pytest.raises(TypeError, match=r"signature 'a/b': a spec needs \.shape and \.dtype, got a str"):
        table(signature={"a": {"b": "float32"}})
    with pytest.raises(TypeError, match="the samples of a Text have no fixed shape and dtype"):
        reverie.specs.from_space(spaces.Dict(name=spaces.Text(3)))


def test_the_autoreset_mode_of_gymnasium_is_as_good_as_its_name(client):
    modes = pytest.importorskip("gymnasium.vector").AutoresetMode
    no = np.zeros(1, bool)
    client.reset("t")
    with client.transition_writer("t", num_envs=1, autoreset=modes.SAME_STEP) as writer:
        writer.append(np.zeros(1), np.zeros(1), np.zeros(1), no, ~no, final_obs=np.ones(1))
        assert writer.num_in_flight == 0
    assert client.info().tables["t"].current_size == 1
    assert all(mode.name.lower() in ("next_step", "same_step", "disabled") for mode in modes)


def test_invalid_limiters_and_shares_are_named(client):
    with pytest.raises(TypeError, match="rate_limiter must be one of"):
        client.configure("t", rate_limiter="fast")
    with pytest.raises(TypeError, match="mapping of names to shares"):
        client.batches(["t"], 2)
    with pytest.raises(TypeError, match="the share of table 't'"):
        client.batches({"t": "all"}, 2)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int32])
def test_keys_may_be_integers_of_any_dtype(client, dtype):
    key = int(client.insert_batch("t", {"x": np.arange(1)})[0])
    keys = np.array([key if key <= np.iinfo(dtype).max else 5, np.iinfo(dtype).max], dtype)
    result = client.update_priorities("t", keys, np.ones(2))
    assert (result.applied, result.stale) == ((1, 1) if key <= np.iinfo(dtype).max else (0, 2))


def test_a_server_without_room_for_one_table_takes_the_step_into_none():
    tables = [table("a"), table("b")]
    client = reverie.Server(tables, listen=False, max_bytes=10_000).client()
    with pytest.raises(reverie.ResourceExhaustedError):
        client.insert({"x": np.random.default_rng(0).normal(size=100_000)}, {"a": 1.0, "b": 1.0})
    assert [figures.current_size for figures in client.info().tables.values()] == [0, 0]


def stub_docs():
    """Class, method and docstring of every method in the stub that has one; of overloads the first."""
    stub = ast.parse((Path(reverie.__file__).parent / "_native.pyi").read_text())
    found = {}
    for kind in (node for node in stub.body if isinstance(node, ast.ClassDef)):
        for method in (node for node in kind.body if isinstance(node, ast.FunctionDef)):
            if (doc := ast.get_docstring(method)) and not method.name.startswith("_"):
                found.setdefault((kind.name, method.name), doc)
    return found


PUBLIC = ("Client", "HistoryColumn", "StructuredWriter", "TrajectoryColumn", "TrajectoryWriter", "TransitionWriter")


@pytest.mark.parametrize("kind", PUBLIC)
def test_help_shows_what_an_editor_shows(kind):
    of_kind = {name: doc for (of, name), doc in stub_docs().items() if of == kind}
    native = getattr(_native, kind)
    assert {name: inspect.getdoc(getattr(native, name)) for name in of_kind} == of_kind


def test_every_public_call_of_a_client_has_a_docstring_beyond_its_name():
    calls = [name for name in dir(reverie.Client) if not name.startswith("_") and name != "timeout"]
    assert len(calls) > 25
    assert [name for name in calls if len(inspect.getdoc(getattr(reverie.Client, name)) or "") < 60] == []
