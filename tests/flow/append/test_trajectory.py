import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reverie
from reverie import Table, rate_limiters, selectors


@pytest.fixture
def client(connect):
    fifo = Table("t", selectors.Fifo(), selectors.Fifo(), 1000, rate_limiters.MinSize(1), max_times_sampled=1)
    return connect(fifo, Table.queue("q", 1))


def read(client, writer):
    writer.flush(timeout=200)
    return client.sample_batch("t", 1, timeout=0).data


@pytest.mark.emulated
@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_items_are_slices_of_the_history(client):
    with client.trajectory_writer(10) as writer:
        for step in range(6):
            writer.append({"obs": np.full(3, step, np.float32), "action": step, "reward": 0.5 * step})
        writer.create_item("t", 1.5, {"obs": writer.history["obs"][-3:], "last": writer.history["action"][-1]})
        writer.create_item("t", 1.0, [writer.history["reward"][1:5:2], writer.history["action"][[0, 0, 4]]])
    batch = client.sample_batch("t", 1)
    assert batch.info.priority.tolist() == [1.5]
    assert batch.data["obs"][0, :, 0].tolist() == [3.0, 4.0, 5.0]
    assert batch.data["last"].tolist() == [5]
    rewards, actions = read(client, writer)
    assert rewards.tolist() == [[0.5, 1.5]]
    assert actions.tolist() == [[0, 0, 4]]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_an_item_over_the_open_chunk_is_visible_once_flushed(client):
    writer = client.trajectory_writer(4)
    for step in range(50):
        writer.append({"x": step})
        if step >= 3:
            writer.create_item("t", 1.0, {"x": writer.history["x"][-4:]})
            assert read(client, writer)["x"].tolist() == [[step - 3, step - 2, step - 1, step]]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_history_counts_like_a_list(client):
    writer = client.trajectory_writer(3)
    with pytest.raises(RuntimeError, match="before the first append"):
        writer.history  # noqa: B018
    for step in range(5):
        writer.append({"x": [np.int32(step)]})
    [column] = writer.history["x"]
    assert len(column) == 5
    assert column[-1].numpy().tolist() == 4
    assert column[2:].numpy().tolist() == [2, 3, 4]
    assert column[2:].shape == (3,)
    assert column[-1].shape == ()
    assert column[-1].is_squeezed
    assert not column[-1:].is_squeezed
    assert column[2:].dtype == np.int32
    assert column[[4, 2]].numpy().tolist() == [4, 2]
    assert column[2:][::-1].numpy().tolist() == [4, 3, 2]
    assert [int(cell.numpy()) for cell in column[2:]] == [2, 3, 4]
    with pytest.raises(ValueError, match=r"'x/0'.*expired"):
        column[0]
    with pytest.raises(ValueError, match=r"'x/0'.*expired"):
        column[:]
    with pytest.raises(IndexError, match="'x/0'"):
        column[5]
    old = column[2:]
    writer.append({"x": [np.int32(5)]})
    with pytest.raises(RuntimeError, match="expired"):
        old.numpy()


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_steps_may_come_in_parts_and_fields_may_be_missing(client):
    writer = client.trajectory_writer(10)
    writer.append({"obs": 1.0}, partial_step=True)
    assert writer.step_is_open
    assert writer.episode_steps == 0
    assert len(writer.history["obs"]) == 1
    with pytest.raises(ValueError, match="'obs'"):
        writer.append({"obs": 2.0})
    writer.append({"action": 7})
    assert writer.episode_steps == 1
    writer.append({"obs": 2.0, "action": None})
    assert len(writer.history["action"]) == 2
    with pytest.raises(ValueError, match=r"'action'.*None"):
        writer.history["action"][-1]
    writer.create_item("t", 1.0, {"o": writer.history["obs"][:], "a": writer.history["action"][0]})
    data = read(client, writer)
    assert (data["o"].tolist(), data["a"].tolist()) == ([[1.0, 2.0]], [7])


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_a_new_field_has_none_in_the_steps_before(client):
    writer = client.trajectory_writer(10)
    writer.append({"a": 1, "b": {"c": 1}})
    writer.append({"a": 2, "b": {"c": 2, "d": 5.0}})
    writer.append({"b": None, "e": (1, [2])})
    history = writer.history
    assert sorted(history) == ["a", "b", "e"]
    assert len(history["b"]["d"]) == 3
    assert history["b"]["d"][1].numpy() == 5.0
    assert history["e"][1][0][-1].numpy() == 2
    with pytest.raises(ValueError, match=r"'b/d'.*None"):
        history["b"]["d"][0]
    with pytest.raises(reverie.SignatureError, match="'a'") as raised:
        writer.append({"a": {"deeper": 1}})
    assert raised.value.path == "a"


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_dtype_and_shape_of_a_column_stay(client):
    writer = client.trajectory_writer(2)
    writer.append({"x": np.zeros(3, np.float32)})
    with pytest.raises(reverie.SignatureError, match="'x'") as raised:
        writer.append({"x": np.zeros(4, np.float32)})
    assert (raised.value.path, "[4]" in raised.value.got) == ("x", True)
    with pytest.raises(ValueError, match="float64"):
        writer.append({"x": np.zeros(3)})
    writer.append({"x": np.ones(3, np.float32)})
    assert len(writer.history["x"]) == 2


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_an_episode_ends_with_its_history_unless_it_is_kept(client):
    writer = client.trajectory_writer(5)
    writer.append({"x": 1})
    writer.end_episode(clear_buffers=False)
    assert writer.episode_steps == 0
    writer.append({"x": 2})
    writer.create_item("t", 1.0, writer.history["x"][-2:])
    assert read(client, writer).tolist() == [[1, 2]]
    writer.end_episode()
    assert len(writer.history["x"]) == 0
    with pytest.raises(IndexError):
        writer.history["x"][-1]
    writer.append({"x": 3})
    assert writer.history["x"][0].numpy() == 3


def episodes(client, table="t"):
    info = client.server_info()[table]
    return info.num_episodes, info.num_deleted_episodes


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_an_item_counts_for_every_episode_that_it_has_cells_of(client):
    # dm-reverb has the same counts after the same calls.
    with client.trajectory_writer(4) as writer:
        writer.append({"x": 1.0, "y": 1.0})
        history = writer.history
        writer.append({"x": 2.0, "y": 2.0})
        writer.end_episode(clear_buffers=False)
        writer.append({"x": 3.0, "y": 3.0})
        for item in (
            {"a": history["x"][-2:]},
            {"a": history["x"][-1:]},
            {"a": history["x"][-1:], "b": history["y"][0:1]},
            {"b": history["y"][[-1, 0]]},
            {"b": history["y"][:2]},
        ):
            writer.create_item("t", 1.0, item)
        writer.end_episode(clear_buffers=False)
        writer.append({"x": 4.0, "y": 4.0})
        # The episode between has no cell of it, and its chunk is between all the same.
        writer.create_item("t", 1.0, {"b": history["y"][[0, -1]]})
        writer.flush(timeout=200)
    counted = [episodes(client)]
    for _ in range(6):
        client.sample_batch("t", 1, timeout=0)
        counted.append(episodes(client))
    assert counted == [(3, 0), (3, 0), (3, 0), (3, 0), (2, 1), (2, 1), (0, 3)]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_columns_may_be_kept_for_different_lengths(client):
    writer = client.trajectory_writer(1)
    writer.configure(("a", "long"), num_keep_alive_refs=5, max_chunk_length=2)
    for step in range(5):
        writer.append({"a": {"long": step, "short": step}})
    writer.create_item("t", 1.0, {"l": writer.history["a"]["long"][:], "s": writer.history["a"]["short"][-1:]})
    assert read(client, writer)["l"].tolist() == [[0, 1, 2, 3, 4]]
    with pytest.raises(ValueError, match="'a/short'"):
        writer.history["a"]["short"][-2:]
    with pytest.raises(ValueError, match="max_chunk_length must be at most num_keep_alive_refs=2, got 3"):
        writer.configure("b", num_keep_alive_refs=2, max_chunk_length=3)


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_a_column_may_be_configured_after_steps_of_it_were_appended(client):
    writer = client.trajectory_writer(4)
    for step in range(4):
        writer.append({"x": step, "y": step})
    writer.configure("x", num_keep_alive_refs=2, max_chunk_length=1)
    for step in range(4, 8):
        writer.append({"x": step, "y": step})
    with pytest.raises(ValueError, match=r"'x'.*keeps the last 2"):
        writer.history["x"][-3:]
    writer.create_item("t", 1.0, {name: writer.history[name][-2:] for name in "xy"})
    assert read(client, writer)["x"].tolist() == [[6, 7]]
    writer.configure(("x",), num_keep_alive_refs=4)
    writer.append({"x": 8, "y": 8})
    writer.create_item("t", 1.0, writer.history["x"][-4:])
    assert read(client, writer).tolist() == [[5, 6, 7, 8]]
    writer.append({"y": 9}, partial_step=True)
    with pytest.raises(ValueError, match="'x' cannot be configured within a step"):
        writer.configure("x", num_keep_alive_refs=1)


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_a_slice_from_before_the_history_is_refused_not_shortened(client):
    writer = client.trajectory_writer(5)
    for step in range(2):
        writer.append({"x": step})
    history = writer.history["x"]
    with pytest.raises(ValueError, match="'x': the slice begins 3 steps back, and there are 2"):
        history[-3:]
    assert history[-2:].numpy().tolist() == [0, 1]
    assert history[-2:][-9:].numpy().tolist() == [0, 1]  # A part of a column is a list's.


BOUNDS = st.none() | st.integers(-12, 12) | st.sampled_from([-(2**80), -(2**63), 2**63 - 1, 2**80])


SLICES = st.builds(slice, BOUNDS, BOUNDS, BOUNDS.filter(lambda step: step != 0))


@given(slices=st.lists(SLICES, min_size=60, max_size=60))
@settings(max_examples=20, deadline=None)
def test_a_slice_has_the_cells_that_a_slice_of_a_list_has(slices):
    steps = list(range(9))
    with reverie.Server([Table.queue("q", 5)], listen=False) as server:
        writer = server.client().trajectory_writer(len(steps))
        for step in steps:
            writer.append({"x": step})
        for key in slices:
            whole = writer.history["x"][:]
            assert whole[key].numpy().tolist() == steps[key] if steps[key] else len(whole[key]) == 0
            if key.start is None or key.start >= -len(steps):
                assert len(writer.history["x"][key]) == len(steps[key])
        with pytest.raises(ValueError, match="slice step cannot be zero"):
            writer.history["x"][::0]
        with pytest.raises(TypeError, match="integer"):
            writer.history["x"]["a":]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_trajectories_of_other_leaves_and_other_writers_are_refused(client):
    writer, other = client.trajectory_writer(2), client.trajectory_writer(2)
    writer.append({"x": 1})
    other.append({"x": 1})
    with pytest.raises(TypeError, match=r"'a/1'.*TrajectoryColumn"):
        writer.create_item("t", 1.0, {"a": [writer.history["x"][-1:], np.zeros(3)]})
    with pytest.raises(TypeError, match=r"^the trajectory must be a TrajectoryColumn"):
        writer.create_item("t", 1.0, np.zeros(3))
    with pytest.raises(ValueError, match="another writer"):
        writer.create_item("t", 1.0, other.history["x"][-1:])
    with pytest.raises(reverie.UnknownTableError):
        writer.create_item("nope", 1.0, writer.history["x"][-1:])
    with pytest.raises(ValueError, match="num_keep_alive_refs"):
        client.trajectory_writer(0)


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_flush_waits_for_the_table_and_its_error_names_the_reason(client):
    writer = client.trajectory_writer(3)
    for step in range(3):
        writer.append({"x": step})
        writer.create_item("q", 1.0, writer.history["x"][-1])
    writer.flush(block_until_num_items=2, timeout_ms=30_000)
    assert writer.num_in_flight == 2
    writer.flush(block_until_num_items=2, timeout_ms=0)
    with pytest.raises(reverie.DeadlineExceededError, match="table 'q'"):
        writer.flush(timeout_ms=20)
    assert client.sample_batch("q", 3, timeout=200).data.tolist() == [0, 1, 2]
    writer.flush(timeout=200)


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_a_closed_writer_refuses_steps_and_sent_items_still_arrive(client):
    writer = client.trajectory_writer(3)
    writer.append({"x": 1})
    writer.create_item("q", 1.0, writer.history["x"][-1])
    writer.create_item("q", 1.0, writer.history["x"][-1])
    writer.close()
    writer.close()
    with pytest.raises(reverie.ClosedError):
        writer.append({"x": 1})
    assert client.sample_batch("q", 2, timeout=200).data.tolist() == [1, 1]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_items_of_unequal_length_are_refused_padded_or_given_as_values(client):
    def send():
        writer = client.trajectory_writer(5)
        for length in (2, 3):
            for step in range(length):
                writer.append({"x": np.full(2, step + 1.0)})
            writer.create_item("t", 1.0, {"x": writer.history["x"][:]})
            writer.end_episode()

    send()
    with pytest.raises(reverie.RaggedError, match='ragged="pad"') as raised:
        client.sample_batch("t", 2, timeout=0)
    assert raised.value.path == "x"
    assert [batch.data["x"].shape for batch in raised.value.drawn] == [(1, 2, 2), (1, 3, 2)]
    send()
    with client.batches("t", 2, prefetch=1) as batches, pytest.raises(reverie.RaggedError):
        next(batches)
    assert [batch.data["x"].shape for batch in batches.leftover] == [(1, 2, 2), (1, 3, 2)]
    send()
    batch = client.sample_batch("t", 2, timeout=0, ragged="pad")
    assert batch.data["x"][..., 0].tolist() == [[1.0, 2.0, 0.0], [1.0, 2.0, 3.0]]
    assert batch.mask.tolist() == [[True, True, False], [True, True, True]]
    send()
    batch = client.sample_batch("t", 2, timeout=0, ragged="values")
    assert batch.data["x"][:, 0].tolist() == [1.0, 2.0, 1.0, 2.0, 3.0]
    assert batch.lengths.tolist() == [2, 3]


def test_a_signature_describes_the_whole_item(connect):
    spec = {"x": reverie.TensorSpec((None, 2), np.float32), "last": reverie.TensorSpec((), np.int64)}
    client = connect(Table("t", selectors.Fifo(), selectors.Fifo(), 10, signature=spec))
    writer = client.trajectory_writer(5)
    for step in range(3):
        writer.append({"x": np.zeros(2, np.float32), "last": step})
    history = writer.history
    writer.create_item("t", 1.0, {"x": history["x"][-2:], "last": history["last"][-1]})
    with pytest.raises(reverie.SignatureError) as raised:
        writer.create_item("t", 1.0, {"x": history["x"][-2:], "last": history["last"][-1:]})
    assert raised.value.path == "last"
    writer.flush(timeout=200)
    assert client.info().tables["t"].current_size == 1


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_sampled_trajectories_come_step_by_step(client):
    writer = client.trajectory_writer(5)
    for step in range(4):
        writer.append({"a": step, "b": np.full(2, float(step))})
    writer.create_item("t", 1.0, {"a": writer.history["a"][-3:], "b": writer.history["b"][-3:]})
    [steps] = client.sample("t", 1, unpack_as_table_signature=True)
    assert [int(step.data["a"]) for step in steps] == [1, 2, 3]
    assert all(step.data["b"].shape == (2,) for step in steps)
    writer.create_item("t", 1.0, {"a": writer.history["a"][-3:], "b": writer.history["b"][-1]})
    with pytest.raises(ValueError, match="emit_timesteps=False"):
        list(client.sample("t", 1))


@pytest.mark.emulated
def test_memory_of_overlapping_items_is_shared(connect):
    client = connect(Table("t", selectors.Uniform(), selectors.Fifo(), 1000, compression="none"))
    writer = client.trajectory_writer(8)
    for _ in range(200):
        writer.append({"x": np.zeros(1000, np.uint8)})
        if len(writer.history["x"]) >= 8:
            writer.create_item("t", 1.0, {"x": writer.history["x"][-8:]})
    writer.flush(timeout=200)
    assert 0 < client.info().size_bytes < 200 * 1000 * 1.5


def test_a_garbage_collected_writer_frees_its_memory(connect, until):
    client = connect(Table("t", selectors.Uniform(), selectors.Fifo(), 1000, compression="none"))
    writer = client.trajectory_writer(8)
    writer.append({"x": np.zeros(1000, np.uint8)})
    writer.create_item("t", 1.0, writer.history["x"][-1])
    writer.flush(timeout=200)
    client.reset("t")
    assert client.info().size_bytes > 0
    del writer
    gc.collect()
    until(lambda: client.info().size_bytes == 0)


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_in_an_open_step_every_column_counts_alike_and_what_is_not_given_yet_is_none(client):
    writer = client.trajectory_writer(4)
    for step in range(3):
        writer.append({"obs": float(step)}, partial_step=True)
        writer.append({"action": step})
    writer.append({"obs": 3.0}, partial_step=True)
    history = writer.history
    assert (len(history["obs"]), len(history["action"])) == (4, 4)
    with pytest.raises(ValueError, match=r"'action': step 3 holds no value \(None\)"):
        history["action"][-1]
    writer.create_item("t", 1.0, {name: column[-4:-1] for name, column in history.items()})
    data = read(client, writer)
    assert (data["obs"].tolist(), data["action"].tolist()) == ([[0.0, 1.0, 2.0]], [[0, 1, 2]])
    writer.append({"action": 3})
    assert history["action"][-1].numpy() == 3
    writer.append({"obs": 4.0}, partial_step=True)
    with pytest.raises(ValueError, match="'action': step 0 has expired"):
        history["action"][0]
