"""Extensions of tables, over every transport."""

import pickle

import numpy as np
import pytest

from reverie import Server, Table, TensorSpec, checkpointers, extensions, rate_limiters, selectors

pytestmark = pytest.mark.one_table_only("its tables delete sampled items: shards refuse them")


def pair(timeout=5.0, target=None, **options):
    target = target or Table("kept", selectors.Uniform(seed=1), selectors.Fifo(), 100)
    return Table.queue("fresh", 100, [extensions.insert_on_sample(target, timeout)], **options), target


def test_an_item_goes_into_the_other_table_under_its_key_when_it_is_first_sampled(connect):
    client = connect(*pair())
    client.insert_batch("fresh", {"x": np.arange(5.0)}, priorities=np.arange(1.0, 6.0))
    first = client.sample_batch("fresh", 3, timeout=200)
    kept = client.get("kept", first.info.key)
    np.testing.assert_array_equal(kept.data["x"], first.data["x"])
    np.testing.assert_array_equal(kept.info.priority, [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(kept.info.times_sampled, [1, 1, 1])
    info = client.info().tables
    assert (info["fresh"].current_size, info["kept"].current_size) == (2, 3)
    [copies] = info["fresh"].copies
    assert (copies.target, copies.timeout) == ("kept", 5.0)
    assert (copies.inserted, copies.dropped, copies.waiting) == (3, 0, 0)
    assert info["kept"].copies == ()


def test_priorities_and_deletes_reach_the_copy_under_the_key_that_the_first_table_gave(connect):
    client = connect(*pair())
    client.insert_batch("fresh", {"x": np.arange(3.0)})
    keys = client.sample_batch("fresh", 3, timeout=200).info.key
    updated, deleted = client.mutate_priorities("kept", {int(keys[0]): 7.0}, deletes=[int(keys[1])])
    assert (updated.applied, deleted.applied) == (1, 1)
    np.testing.assert_array_equal(client.query("kept").key, keys[[0, 2]])
    np.testing.assert_array_equal(client.get("kept", keys[[0, 2]]).info.priority, [7.0, 1.0])
    assert client.update_priorities("kept", keys, np.ones(3)).stale == 1
    drawn = client.sample_batch("kept", 50, timeout=200).info
    assert set(drawn.key.tolist()) == set(keys[[0, 2]].tolist())
    assert drawn.times_sampled.min() == 2


def test_a_blocked_copy_does_not_block_the_sample_and_is_dropped_at_its_timeout(connect):
    client = connect(*pair(timeout=0, target=Table.queue("kept", 1)))
    client.insert_batch("fresh", {"x": np.arange(3.0)})
    client.sample_batch("fresh", 3, timeout=200)
    [copies] = client.info().tables["fresh"].copies
    assert (copies.inserted, copies.dropped, copies.waiting) == (1, 2, 0)
    client.reset("fresh")
    assert client.info().tables["fresh"].copies[0].inserted == 0


def test_a_copy_that_waits_goes_in_when_there_is_room(connect):
    client = connect(*pair(timeout=None, target=Table.queue("kept", 1)))
    client.insert_batch("fresh", {"x": np.arange(3.0)})
    client.sample_batch("fresh", 3, timeout=200)
    assert client.info().tables["fresh"].copies[0].waiting == 2
    assert client.sample_batch("kept", 3, timeout=200).data["x"].tolist() == [0.0, 1.0, 2.0]


def test_trajectories_share_their_steps_with_their_copies(connect):
    client = connect(*pair())
    with client.trajectory_writer(4) as writer:
        for step in range(4):
            writer.append({"x": np.full(1000, step, np.float32)})
        writer.create_item("fresh", 2.0, {"x": writer.history["x"][-3:]})
    before = client.info().size_bytes
    [sample] = client.sample("fresh", emit_timesteps=False, unpack_as_table_signature=True)
    [copy] = client.sample("kept", emit_timesteps=False, unpack_as_table_signature=True)
    assert copy.info.key == sample.info.key
    np.testing.assert_array_equal(copy.data["x"], sample.data["x"])
    assert client.info().size_bytes <= before


def test_a_restored_table_has_the_extensions_of_its_constructor_and_copies_keep_their_keys(tmp_path):
    checkpointer = checkpointers.DefaultCheckpointer(tmp_path)
    with Server(list(pair()), checkpointer=checkpointer, listen=False) as server:
        client = server.client()
        client.insert_batch("fresh", {"x": np.arange(4.0)})
        keys = client.sample_batch("fresh", 2, timeout=200).info.key
        client.insert_batch("kept", {"x": np.array([9.0])})
        client.checkpoint()
    for config in ("constructor", "checkpoint"):
        with Server(list(pair()), checkpointer=checkpointer, listen=False, restore_config=config) as server:
            client = server.client()
            assert server.tables[0].extensions == pair()[0].extensions
            assert client.get("kept", keys).data["x"].tolist() == [0.0, 1.0]
            client.sample_batch("fresh", 1, timeout=200)
            assert client.get("kept", client.query("kept").key).data["x"].tolist() == [0.0, 1.0, 9.0, 2.0]
            assert client.update_priorities("kept", keys, np.array([3.0, 4.0])).applied == 2


def test_an_option_can_be_read_compared_replaced_and_pickled():
    table, _ = pair(timeout=0.5)
    assert "extensions=(insert_on_sample('kept', timeout=0.5),)" in repr(table)
    assert pickle.loads(pickle.dumps(table)).extensions == table.extensions == table.replace(name="n").extensions
    assert table.replace(extensions=()).extensions == ()
    by_name = extensions.insert_on_sample("kept", float("inf"))
    assert by_name.timeout is None
    assert by_name != table.extensions[0]
    assert len({by_name, extensions.insert_on_sample("kept", None)}) == 1
    with pytest.raises(AttributeError, match="cannot be changed"):
        by_name.timeout = 1.0


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: extensions.insert_on_sample(3, 1.0), TypeError, "target_table must be"),
        (lambda: extensions.insert_on_sample("", 1.0), ValueError, "must be the name of a table"),
        (lambda: extensions.insert_on_sample("t", -1.0), ValueError, "at least 0"),
        (lambda: extensions.insert_on_sample("t", float("nan")), ValueError, "at least 0"),
        (lambda: extensions.insert_on_sample("t", "1"), TypeError, "timeout must be a number"),
        (lambda: Table.queue("q", 1, ["kept"]), TypeError, "extensions must come from reverie.extensions, got a str"),
        (lambda: Server([pair()[0]], listen=False), ValueError, "needs it on the same server, which has 'fresh'"),
    ],
)
def test_bad_extensions_are_refused(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_signatures_that_no_item_can_fit_both_of_are_refused():
    target = Table(
        "kept",
        selectors.Fifo(),
        selectors.Fifo(),
        10,
        rate_limiters.MinSize(1),
        signature={"x": TensorSpec((), np.float32)},
    )
    other = pair(target=target, signature={"x": TensorSpec((), np.int64)})
    with pytest.raises(ValueError, match=r"'fresh': insert_on_sample into table 'kept' copies .*int64.*float32"):
        Server(list(other), listen=False)
    fits = pair(target=target, signature={"x": TensorSpec((None,), np.float32)})
    Server(list(fits), listen=False).stop()
