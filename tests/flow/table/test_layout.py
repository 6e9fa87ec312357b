"""The layout that a table without a signature takes from its first insert."""

import numpy as np
import pytest

import reverie

ADVICE = r"table 't' took from its first insert; reset the table to change it, or give it a signature"


def steps(n=2, dtype=np.float32, shape=(3,)):
    return {"obs": {"pixels": np.zeros((n, *shape), dtype)}, "reward": np.zeros(n)}


def settled(client, data, times=2):
    """The table of each server has taken its layout."""
    for _ in range(times):
        client.insert_batch("t", data)
    return client


def write_sequence(client):
    with client.sequence_writer("t", length=2, period=2) as writer:
        for _ in range(2):
            writer.append({"x": np.float64(0)})
        writer.flush(timeout=60.0)


def write_transitions(client):
    with client.transition_writer("t") as writer:
        for step in range(3):
            writer.append(np.float32(step), step, 1.0, False, False)
        writer.flush(timeout=60.0)


@pytest.mark.parametrize(
    ("other", "path", "got", "want"),
    [
        (steps(dtype=np.float64), "obs/pixels", "float64 [3]", "float32 [3], the layout"),
        (steps(shape=(4,)), "obs/pixels", "float32 [4]", "float32 [3], the layout"),
        ({**steps(), "action": np.zeros(2)}, "", "a dict of 'action', 'obs', 'reward'", "a dict of 'obs', 'reward'"),
    ],
    ids=["dtype", "shape", "columns"],
)
def test_rows_of_another_layout_are_refused_where_they_are_inserted(connect, other, path, got, want):
    client = settled(connect(), steps())
    with pytest.raises(reverie.SignatureError, match=ADVICE) as refused:
        client.insert_batch("t", other)
    assert (refused.value.path, refused.value.got) == (path, got)
    assert refused.value.want.startswith(want)
    assert client.info().tables["t"].current_size == 4
    assert client.sample_batch("t", 8, timeout=60.0).data["obs"]["pixels"].dtype == np.float32
    client.insert_batch("t", steps(n=1))


def test_a_reset_and_a_signature_lift_the_layout(connect, uniform):
    open_shape = {"x": reverie.TensorSpec((None,), np.float32)}
    client = connect(uniform("t"), uniform("open", signature=open_shape))
    settled(client, {"x": np.zeros((1, 2), np.float32)})
    client.reset("t")
    settled(client, {"x": np.zeros((1, 5))})
    with pytest.raises(reverie.SignatureError, match=ADVICE):
        client.insert_batch("t", {"x": np.zeros((1, 2), np.float32)})
    for length in (2, 5):
        client.insert_batch("open", {"x": np.zeros((1, length), np.float32)})
    assert client.info().tables["open"].current_size == 2


def test_the_layout_stays_when_the_last_item_is_gone(connect):
    client = settled(connect(), steps())
    client.delete("t", where=[("priority", ">=", 0)])
    assert client.info().tables["t"].current_size == 0
    with pytest.raises(reverie.SignatureError, match=ADVICE):
        client.insert_batch("t", steps(dtype=np.float64))


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_programs_of_dm_reverb_may_mix_layouts_and_read_items_one_by_one(connect, uniform):
    client = connect(uniform("t", sampler=reverie.selectors.Fifo(), max_times_sampled=1))
    for length in (3, 5, 3, 5):
        client.insert({"x": np.zeros(length)}, {"t": 1.0})
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        for step in ({"y": np.int8(1)}, {"y": np.int8(2), "z": "text"}):
            writer.append(step)
            writer.create_item("t", 1.0, {name: writer.history[name][-1] for name in step})
    with client.writer(max_sequence_length=1) as writer:
        writer.append(np.float32(1))
        writer.create_item("t", 1, 1.0)
    assert client.info().tables["t"].current_size == 7
    for _ in range(7):
        next(iter(client.sample("t", 1, emit_timesteps=False, timeout=60.0)))


def test_items_of_dm_reverbs_names_set_no_layout_and_keep_to_none(connect):
    client = connect()
    for _ in range(2):
        client.insert({"x": np.zeros(3)}, {"t": 1.0})
    settled(client, {"x": np.zeros((1, 3), np.float32)})
    client.insert({"x": np.zeros(4)}, {"t": 1.0})
    with pytest.raises(reverie.SignatureError, match=ADVICE):
        client.insert_batch("t", {"x": np.zeros((1, 3))})


def test_the_writers_of_sequences_and_episodes_keep_to_the_layout_and_lengths_may_differ(connect):
    client = connect()
    for length in (2, 4, 3, 5):
        with client.episode_writer("t", max_length=8) as writer:
            for _ in range(length):
                writer.append({"x": np.float32(0)})
            writer.end_episode()
    assert client.sample_batch("t", 8, timeout=60.0, ragged="pad").mask is not None
    with pytest.raises(reverie.SignatureError, match=ADVICE) as refused:
        write_sequence(client)
    assert (refused.value.path, refused.value.got) == ("x", "float64 [any]")
    with pytest.raises(reverie.SignatureError, match=ADVICE) as refused:
        client.insert_batch("t", {"x": np.zeros(1, np.float32)})
    assert refused.value.got == "float32 []"


def test_transitions_keep_to_the_layout(connect):
    client = settled(connect(), {"x": np.zeros((1, 3))})
    with pytest.raises(reverie.SignatureError, match=ADVICE):
        write_transitions(client)
