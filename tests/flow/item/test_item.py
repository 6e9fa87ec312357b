import numpy as np
import pytest

import reverie
from reverie import Table, rate_limiters, selectors


@pytest.mark.emulated
def test_keys_are_positive_and_belong_to_one_item_of_one_table(connect, uniform):
    client = connect(uniform("a", max_size=50), uniform("b", max_size=50))
    keys = [client.insert_batch(name, {"n": np.arange(200)}) for name in "ab"]
    together = np.concatenate(keys)
    assert together.dtype == np.int64
    assert (together >= 0).all()
    assert len(set(together.tolist())) == 400
    assert client.update_priorities("a", keys[1], np.ones(200)) == (0, 200)


def test_a_key_of_an_earlier_server_reaches_nothing():
    def serve():
        client = reverie.Server([Table.queue("q", 10)], listen=False).client()
        return client, client.insert_batch("q", {"n": np.arange(10)})

    _, old = serve()
    client, new = serve()
    assert not set(old.tolist()) & set(new.tolist())
    assert client.update_priorities("q", old, np.ones(10)) == (0, 10)


@pytest.mark.one_table_only("a table of one item has no parts")
def test_a_reused_slot_has_another_key(connect, uniform):
    client = connect(uniform("t", max_size=1))
    keys = [client.insert_batch("t", {"n": np.array([n])})[0] for n in range(100)]
    assert len(set(keys)) == 100
    assert client.delete("t", keys[:-1]) == (0, 99)
    assert client.get("t", keys[-1:]).data["n"].tolist() == [99]


def test_any_integer_is_a_valid_key_to_request(connect):
    client = connect()
    client.insert({"n": 1}, {"t": 1.0})
    for key in (0, -1, 2**63 - 1, -(2**63), 1 << 30):
        assert client.delete("t", [key]) == (0, 1)
        with pytest.raises(reverie.UnknownKeyError):
            client.get("t", [key])


@pytest.mark.emulated
def test_columns_of_one_item_may_have_lengths_of_their_own(connect):
    client = connect()
    with client.trajectory_writer(10) as writer:
        for step in range(10):
            writer.append({"obs": np.float32(step), "action": step})
        history = writer.history
        writer.create_item(
            "t", 1.0, {"obs": history["obs"][-4:], "action": history["action"][-4:-1], "last": history["obs"][-1]}
        )
    data = client.sample_batch("t", 2).data
    assert data["obs"].tolist() == [[6.0, 7.0, 8.0, 9.0]] * 2
    assert data["action"].tolist() == [[6, 7, 8]] * 2
    assert data["last"].tolist() == [9.0] * 2


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_items_of_one_table_may_differ_in_form_and_come_one_by_one(connect):
    client = connect(Table("t", selectors.Fifo(), selectors.Fifo(), 10, rate_limiters.MinSize(1), max_times_sampled=1))
    client.insert({"a": 1}, {"t": 1.0})
    client.insert({"b": np.zeros(3)}, {"t": 1.0})
    first, second = client.sample("t", 2, emit_timesteps=False, unpack_as_table_signature=True)
    assert (list(first.data), list(second.data)) == (["a"], ["b"])


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_items_that_differ_make_no_batch_and_the_error_names_both(connect):
    client = connect(Table("t", selectors.Fifo(), selectors.Fifo(), 10, rate_limiters.MinSize(1), max_times_sampled=1))
    client.insert({"a": np.ones(1, np.float32)}, {"t": 1.0})
    client.insert({"a": np.ones(1)}, {"t": 1.0})
    with pytest.raises(reverie.SignatureError, match=r"float32.*float64|float64.*float32") as raised:
        client.sample_batch("t", 2, timeout=0)
    assert [batch.data["a"].dtype for batch in raised.value.drawn] == [np.float32, np.float64]


@pytest.mark.emulated
def test_versions_count_the_updates_of_an_item(connect):
    client = connect()
    keys = client.insert_batch("t", {"n": np.arange(3)})
    for _ in range(2):
        client.update_priorities("t", keys[1:], [2.0, 3.0])
    client.update_priorities("t", keys[[2, 2]], [4.0, 5.0])
    info = client.get("t", keys).info
    assert info.priority.tolist() == [1.0, 2.0, 5.0]
    assert info.version.tolist()[:2] == [0, 2]
    assert info.version[2] > 2
