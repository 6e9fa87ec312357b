"""The calls of a client over several servers."""

import os
import threading
import time

import numpy as np
import pytest

from reverie import Client, RaggedError, SequenceWriter, rate_limiters, structured
from reverie.sharding import ShardedClient, shard_table
from reverie.testing import serve

LIMITS = rate_limiters.SampleToInsertRatio(4.0, 2, 40.0)


def test_a_client_of_several_servers_is_a_client():
    assert ShardedClient is Client


@pytest.fixture
def three(everywhere, prioritized):
    """Items 0 to 8 with their priorities, inserted in this order, each at the next of three shards; and their keys."""
    client = everywhere([prioritized() for _ in range(3)])
    priorities = [5.0, 1.0, 4.0, 4.0, 9.0, 0.5, 4.0, 3.0, 7.0]
    keys = [client.insert_batch("t", {"x": np.array([x])}, [p], shard=x % 3)[0] for x, p in enumerate(priorities)]
    return client, np.array(keys), np.array(priorities)


def items(info, keys):
    return [int(np.flatnonzero(keys == key)[0]) for key in info.key]


def test_a_query_finds_items_of_all_shards_in_one_order_up_to_its_limit(three):
    client, keys, priorities = three
    all_of_them = items(client.query("t"), keys)
    assert sorted(all_of_them) == list(range(9))
    # Within each shard as it was, over shards as well as their clocks are known: each query measures them.
    by_shard = [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    assert [[x for x in all_of_them if x % 3 == shard] for shard in range(3)] == by_shard
    assert len(client.query("t", limit=4)) == 4
    by_priority = client.query("t", order="priority")
    assert by_priority.priority.tolist() == sorted(priorities)
    assert items(client.query("t", order="-priority", limit=3), keys) == [4, 8, 0]
    for order, turn in (("-age", 1), ("age", -1)):
        by_age = items(client.query("t", order=order), keys)[::turn]
        assert [[x for x in by_age if x % 3 == shard] for shard in range(3)] == by_shard
    some = client.query("t", [("priority", ">", 4.0), ("age", "<", 1e6)], order="-priority")
    assert items(some, keys) == [4, 8, 0]
    np.testing.assert_array_equal(some.priority, priorities[items(some, keys)])
    assert some.table_size.tolist() == [9] * 3
    assert len(client.query("t", [("times_sampled", ">", 0)])) == 0
    with pytest.raises(ValueError, match="order"):
        client.query("t", order="size")


def test_items_are_deleted_by_conditions_at_every_shard(three):
    client, keys, _ = three
    assert tuple(client.delete("t", where=[("priority", "==", 4.0)])) == (3, 0)
    assert sorted(items(client.query("t"), keys)) == [0, 1, 4, 5, 7, 8]
    # Only items with these keys: two are gone already, the priority of one is too high.
    assert tuple(client.delete("t", keys[:4], [("priority", "<", 2.0)])) == (1, 3)
    assert sorted(items(client.query("t"), keys)) == [0, 4, 5, 7, 8]
    with pytest.raises(ValueError, match="delete needs keys= or at least one condition"):
        client.delete("t")
    assert client.can_sample("t", 5)
    client.delete("t", client.query("t").key)
    # Nothing that was received before the delete is used.
    assert not client.can_sample("t")


def test_one_step_goes_into_tables_of_one_shard(everywhere, prioritized):
    client = everywhere([prioritized(), prioritized()])
    client.insert({"x": 7}, {"t": 2.0}, shard=1)
    client.insert({"x": 8}, {"t": 3.0})
    assert sorted(client.query("t").priority) == [2.0, 3.0]
    assert client.query("t", [("priority", "==", 2.0)]).key[0] >> 57 == 1


def test_samples_come_one_by_one_from_all_shards_as_from_one_table(three):
    client, _, priorities = three
    n = 8000
    drawn = list(client.sample("t", n, emit_timesteps=False, unpack_as_table_signature=True))
    counts = np.bincount([int(sample.data["x"][0]) for sample in drawn], minlength=9)
    expected = n * priorities / priorities.sum()
    surprise = (((counts - expected) ** 2 / expected).sum() - 8) / 4
    assert surprise < 5
    # The twin: the heaviest item weighs a fifth more, by which so many draws differ by about 23 (at least 8 in 20,000
    # simulations).
    wrong = expected * (n - 1.2 * expected[4]) / (n - expected[4])
    wrong[4] = 1.2 * expected[4]
    assert (((counts - wrong) ** 2 / wrong).sum() - 8) / 4 > 1 + surprise
    first = drawn[0]
    assert first.info.table_size == 9
    assert first.info.probability == pytest.approx(first.info.priority / priorities.sum())
    # The first ones are of several shards: a caller that stops early has not seen only one.
    assert len({sample.info.key >> 57 for sample in drawn[:30]}) == 3
    [step] = next(iter(client.sample("t")))
    assert step.data[0].shape == ()


def test_writers_of_every_kind_write_to_the_shard_that_is_named(everywhere, prioritized):
    client = everywhere([prioritized(), prioritized()])
    with client.sequence_writer("t", 2, 1, shard=1) as writer:
        assert isinstance(writer, SequenceWriter)
        for x in range(3):
            writer.append({"x": float(x)})
    with client.episode_writer("t", shard=1) as writer:
        writer.append({"x": 1.0})
        writer.end_episode()
    with client.writer(2, shard=1) as writer:
        writer.append({"x": 1.0})
        writer.create_item("t", 1, 1.0)
    pattern = structured.pattern_from_transform({"x": 0.0}, lambda step: {"x": step["x"][-1:]})
    with client.structured_writer([structured.create_config(pattern, "t")], shard=1) as writer:
        writer.append({"x": 1.0})
    sizes = [of.info.tables["t"].current_size for of in client.info().shards]
    assert sizes[0] == 0
    assert sizes[1] >= 5


def test_items_of_unequal_lengths_are_read_by_their_keys_where_that_is_asked_for(sharded, prioritized):
    client = sharded([prioritized(), prioritized()])
    for shard, cells in enumerate([2, 4]):
        with client.trajectory_writer(4, shard=shard) as writer:
            for step in range(4):
                writer.append({"x": np.int64(10 * shard + step)})
            writer.create_item("t", 1.0, {"x": writer.history["x"][:cells]})
    keys = client.query("t").key[::-1]
    with pytest.raises(RaggedError, match="'x'"):
        client.get("t", keys)
    padded = client.get("t", keys, ragged="pad")
    assert padded.data["x"].tolist() == [[10, 11, 12, 13], [0, 1, 0, 0]]
    assert padded.mask.tolist() == [[True] * 4, [True, True, False, False]]
    with pytest.raises(ValueError, match='pass ragged="pad"'):
        client.get("t", keys, ragged="values")
    assert client.get("t", keys[:1], ragged="values").lengths.tolist() == [4]


def test_limits_change_over_all_shards_while_they_run(everywhere, prioritized):
    limits = rate_limiters.SampleToInsertRatio(4.0, 2, 40.0)
    tables, limiter = shard_table(prioritized(max_size=20, rate_limiter=limits), 2)
    client = everywhere(tables, rate_limiter=limiter)
    for shard in range(2):
        client.insert_batch("t", {"x": np.arange(6)}, shard=shard)
    client.configure("t", max_size=9)
    assert [of.info.tables["t"].max_size for of in client.info().shards] == [5, 4]
    assert client.info().tables["t"].current_size == 9
    # 12 inserts of 4 samples each; no more until 40 beyond are drawn.
    assert not client.can_insert("t", 100)
    client.configure("t", rate_limiter=rate_limiters.MinSize(2))
    assert client.can_insert("t", 100)
    client.insert_batch("t", {"x": np.arange(100)}, shard=0, timeout=200)
    client.configure("t", max_times_sampled=0)
    for wrong, words in (
        ({"max_size": 1}, "at least 2, an item for each shard"),
        ({"max_times_sampled": 1}, "max_times_sampled=1"),
        ({"rate_limiter": rate_limiters.Rationed()}, "limits of all shards"),
        ({"rate_limiter": rate_limiters.MinSize(10)}, "max_size 9 is below min_size_to_sample 10"),
    ):
        with pytest.raises(ValueError, match=words):
            client.configure("t", **wrong)
    with Client(client.clients, timeout=200) as other, pytest.raises(ValueError, match="does not limit"):
        other.configure("t", rate_limiter=rate_limiters.MinSize(2))


def test_a_draw_that_waits_goes_on_when_a_shard_has_news(everywhere, prioritized, until):
    client = everywhere([prioritized() for _ in range(2)])

    def waited():
        """Seconds from an insert to the end of the draw that waited for it."""
        client.reset("t")
        drawn = []
        reader = threading.Thread(target=lambda: drawn.append(client.sample_batch("t", 4, timeout=200.0)))
        reader.start()
        until(lambda: client.why("t").samples)
        inserted = time.monotonic()
        client.insert_batch("t", {"x": np.arange(3)}, shard=1)
        reader.join(200.0)
        assert len(drawn[0]) == 4
        return time.monotonic() - inserted

    # A reader that is not woken polls every ten seconds. At least one wait of several is shorter: no machine is always
    # busy just then.
    assert any(waited() < 5.0 for _ in range(5))


@pytest.mark.parametrize("network", ["shared-memory", "grpc"])
def test_a_forked_child_reaches_the_servers_again(stack, prioritized, network):
    clients = [stack.enter_context(serve([prioritized()], network, shard=shard)) for shard in range(2)]
    client = stack.enter_context(Client(clients, timeout=200.0))
    client.insert_batch("t", {"x": np.full(4, 1)}, shard=0)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            client.insert_batch("t", {"x": np.full(4, 2)}, shard=1)
            os.write(writing, str(set(client.sample_batch("t", 64).data["x"].tolist())).encode())
        except BaseException as error:
            os.write(writing, repr(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 1000) == b"{1, 2}"
    assert set(client.sample_batch("t", 64).data["x"]) == {1, 2}


def test_a_forked_child_cannot_use_servers_of_the_parent_process(sharded, prioritized):
    client = sharded([prioritized(), prioritized()])
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            client.sample_batch("t", 1)
        except BaseException as error:
            os.write(writing, type(error).__name__.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 1000) == b"ForkedError"


def test_tables_of_two_shards_have_one_limiter(prioritized):
    tables = [prioritized("a", rate_limiter=rate_limiters.MinSize(2)), prioritized("b", rate_limiter=LIMITS)]
    with pytest.raises(ValueError, match="have one limiter"), serve(tables, "two-shards"):
        pass
