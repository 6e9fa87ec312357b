"""The shards of a client: their identity, the shard of a key, and the figures of all together."""

import pickle

import numpy as np
import pytest

from reverie import (
    Client,
    ClosedError,
    Server,
    SignatureError,
    Table,
    UnavailableError,
    UnknownKeyError,
    UnknownTableError,
    rate_limiters,
)
from reverie import selectors as s
from reverie.sharding import shard_table


def test_keys_name_their_shard_and_reach_it(everywhere, prioritized):
    client = everywhere([prioritized() for _ in range(3)])
    keys = [client.insert_batch("t", {"x": np.arange(2) + 10 * shard}, shard=shard) for shard in range(3)]
    assert [set(some >> 57) for some in keys] == [{0}, {1}, {2}]
    mixed = np.concatenate(keys)[[5, 0, 3]]
    assert tuple(client.update_priorities("t", mixed, [7.0, 8.0, 9.0])) == (3, 0)
    found = client.get("t", mixed)
    assert found.info.priority.tolist() == [7.0, 8.0, 9.0]
    assert found.data["x"].tolist() == [21, 0, 11]
    # Only the item whose version is still the one named.
    assert tuple(client.update_priorities("t", mixed, np.ones(3), if_version=[1, 0, 1])) == (2, 1)
    updated, deleted = client.mutate_priorities("t", {mixed[0]: 5.0, mixed[1]: 5.0}, deletes=[mixed[1]])
    assert (tuple(updated), tuple(deleted)) == ((1, 1), (1, 0))
    assert tuple(client.delete("t", mixed)) == (2, 1)
    with pytest.raises(UnknownKeyError, match=str(mixed[1])) as gone:
        client.get("t", mixed[1:])
    assert gone.value.key == mixed[1]
    # A key of a shard that does not exist.
    assert tuple(client.update_priorities("t", [int(mixed[0]) | 60 << 57], [1.0])) == (0, 1)
    assert client.update_priorities("t", np.concatenate(keys), np.full(6, 3.0), wait=False) is None
    assert client.get("t", keys[0][1:]).info.priority.tolist() == [3.0]


def test_priorities_that_a_selector_refuses_change_no_shard(sharded, prioritized):
    client = sharded([prioritized() for _ in range(2)])
    keys = np.concatenate([client.insert_batch("t", {"x": np.arange(2)}, shard=shard) for shard in range(2)])
    for bad in (-1.0, np.nan):
        with pytest.raises(ValueError, match="priority"):
            client.update_priorities("t", keys, [5.0, 5.0, 5.0, bad])
    with pytest.raises(ValueError, match="one length"):
        client.update_priorities("t", keys, [5.0])
    with pytest.raises(SignatureError, match="'keys'"):
        client.update_priorities("t", [0.5], [5.0])
    assert client.get("t", keys).info.priority.tolist() == [1.0] * 4


def test_inserts_and_writers_take_the_shards_in_turns_or_the_one_that_is_named(sharded, prioritized):
    client = sharded([prioritized() for _ in range(3)])
    turns = [int(client.insert_batch("t", {"x": np.zeros(1)})[0]) >> 57 for _ in range(6)]
    assert sorted(turns[:3]) == [0, 1, 2]
    assert turns[:3] == turns[3:]
    with client.trajectory_writer(1, shard=2) as writer:
        writer.append({"x": 1.0})
        writer.create_item("t", 1.0, {"x": writer.history["x"][:]})
    assert [of.info.tables["t"].current_size for of in client.info().shards] == [2, 2, 2 + 1]
    client.reset("t")
    with client.transition_writer("t", shard=2, num_envs=2) as writer:
        for end in (False, True):
            writer.append(np.zeros((2, 3)), np.zeros(2), np.zeros(2), np.full(2, end), np.zeros(2, bool))
    sizes = [of.info.tables["t"].current_size for of in client.info().shards]
    assert sizes == [0, 0, 2]
    with pytest.raises(ValueError, match="below 3"):
        client.transition_writer("t", shard=3)


def test_rows_of_inserts_without_a_wait_are_there_after_a_flush(everywhere, prioritized):
    client = everywhere([prioritized() for _ in range(2)])
    for _ in range(4):
        assert client.insert_batch("t", {"x": np.arange(5)}, wait=False) is None
    client.flush()
    assert [of.info.tables["t"].current_size for of in client.info().shards] == [10, 10]


def test_figures_are_those_of_all_shards(sharded, prioritized):
    client = sharded([prioritized(max_size=10), prioritized(max_size=20)])
    client.insert_batch("t", {"x": np.arange(12)}, priorities=np.ones(12), shard=0)
    client.insert_batch("t", {"x": np.arange(5)}, priorities=np.full(5, 4.0), shard=1)
    client.sample_batch("t", 6)
    info = client.info()
    table = info.tables["t"]
    assert (table.max_size, table.current_size, table.num_inserts, table.num_evicted) == (30, 15, 17, 2)
    assert (table.num_samples, sum(table.age_histogram), table.max_priority) == (6, 6, 4.0)
    assert [of.present for of in info.shards] == [True, True]
    assert [of.tables["t"]["mass"] for of in info.shards] == [10.0, 20.0]
    assert [of.tables["t"]["chance"] for of in info.shards] == pytest.approx([1 / 3, 2 / 3])
    why = client.why("t")
    assert (why.size, why.max_size, why.num_samples) == (15, 30, 6)
    assert "over 2 of 2 shards: 15 items" in str(why)
    client.reset("t")
    assert client.info().tables["t"].num_inserts == 0
    assert not client.can_sample("t")
    assert client.can_insert("t", 100)


def test_two_servers_of_one_number_are_refused(stack, prioritized):
    servers = [stack.enter_context(Server([prioritized()], listen=False, shard=7)) for _ in range(2)]
    with pytest.raises(ValueError, match="both shard 7"):
        Client([server.client() for server in servers])


@pytest.mark.parametrize("shard", [-1, 64])
def test_a_number_that_no_key_could_carry_is_refused(prioritized, shard):
    with pytest.raises(ValueError, match="shard must be"):
        Server([prioritized()], listen=False, shard=shard)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rate_limiter": rate_limiters.SampleToInsertRatio(4.0, 1, 100.0)}, "rate limiter of its own"),
        ({"rate_limiter": rate_limiters.MinSize(2)}, "rate limiter of its own"),
        ({"max_times_sampled": 1}, "max_times_sampled=1"),
    ],
)
def test_tables_that_cannot_be_shards_are_refused(sharded, prioritized, options, words):
    client = sharded([prioritized(**options)])
    with pytest.raises(ValueError, match=words):
        client.sample_batch("t", 1)


def test_shards_that_differ_or_lack_the_table_are_refused(sharded, prioritized):
    client = sharded([prioritized(), prioritized(sampler=s.Uniform())])
    with pytest.raises(ValueError, match="different samplers"):
        client.sample_batch("t", 1)
    with pytest.raises(UnknownTableError, match="'other'"):
        client.sample_batch("other", 1)


def test_wrong_arguments_are_refused_by_name(sharded, prioritized, stack):
    with pytest.raises(TypeError, match="list of addresses"):
        Client(1)
    for option in ({"rate_limiter": rate_limiters.MinSize(3)}, {"among": (0, 2)}, {"seed": 1}):
        with pytest.raises(ValueError, match=f"{next(iter(option))} is for a list of servers"):
            Client("127.0.0.1:1", **option)
    with pytest.raises(ValueError, match="1 to 64, got 0"):
        Client([])
    client = sharded([prioritized()])
    for wrong in ({"rate_limiter": 3.0}, {"rate_limiter": rate_limiters.Rationed()}):
        with pytest.raises((TypeError, ValueError), match="rate_limiter must be"):
            Client(client.clients, **wrong)
    with pytest.raises(ValueError, match="limits nothing"):
        Client(client.clients, rate_limiter=rate_limiters.MinSize(3))
    with pytest.raises(ValueError, match="batch_size"):
        client.sample_batch("t", 0)


def test_a_client_without_a_response_names_the_servers(prioritized):
    with pytest.raises(UnavailableError, match=r"no shard can be reached: shard 0 \(127\.0\.0\.1:1\)"):
        Client(["127.0.0.1:1"], patience=0.2, transport="grpc")


def test_a_client_of_several_servers_is_no_server_itself(sharded, prioritized):
    client = sharded([prioritized()])
    with pytest.raises(ValueError, match="cannot be one of several"):
        Client([client])


def test_one_server_is_a_client_of_itself_and_its_only_shard(stack, prioritized):
    client = stack.enter_context(Server([prioritized()], listen=False)).client()
    assert client.clients == (client,)
    assert client.num_shards == 1
    assert client.info().shards == ()
    client.insert({"x": 1}, {"t": 1.0}, shard=0)
    client.insert_batch("t", {"x": np.arange(2)}, shard=0)
    with client.trajectory_writer(1, shard=0) as writer:
        writer.append({"x": 1})
        writer.create_item("t", 1.0, {"x": writer.history["x"][-1]})
    assert client.info().tables["t"].current_size == 4
    for call in (
        lambda: client.insert({"x": 1}, {"t": 1.0}, shard=1),
        lambda: client.insert_batch("t", {"x": np.arange(2)}, shard=1),
        lambda: client.transition_writer("t", shard=1),
    ):
        with pytest.raises(ValueError, match="shard must be below 1, the number of shards, got 1"):
            call()
    with pytest.raises(ValueError, match="shard must be at least 0"):
        client.insert({"x": 1}, {"t": 1.0}, shard=-1)


def test_errors_that_no_call_reported_are_summed_over_all_shards(sharded, prioritized):
    client = sharded([prioritized(max_size=1), prioritized(max_size=1)])
    client.update_priorities("t", [1], [-1.0], wait=False)
    for shard in range(2):
        client.clients[shard].update_priorities("t", [1], [-1.0], wait=False)
    client.flush()
    info = client.info()
    assert [of.info.unawaited_errors for of in info.shards] == [1, 1]
    assert info.unawaited_errors == 3


def test_a_copy_reaches_the_same_shards_and_has_no_rate_limiter(stack, prioritized):
    table, limiter = shard_table(prioritized(rate_limiter=rate_limiters.MinSize(2)), 1)
    server = stack.enter_context(Server(table, shard=0))
    client = stack.enter_context(Client([server.address], rate_limiter=limiter, timeout=200))
    copy = stack.enter_context(pickle.loads(pickle.dumps(client)))
    assert "rate_limiter" in repr(client)
    assert "rate_limiter" not in repr(copy)
    key = copy.insert_batch("t", {"x": np.zeros(1)})
    assert client.get("t", key).info.key == key
    assert not client.can_sample("t")
    assert copy.can_sample("t")


def test_a_closed_client_ends_what_waits(sharded, prioritized):
    client = sharded([prioritized()])
    with client.batches("t", 1) as batches:
        client.close()
        with pytest.raises(ClosedError):
            next(batches)
    for call in (
        lambda: client.sample_batch("t", 1),
        lambda: client.insert({"x": 1}, {"t": 1.0}),
        lambda: client.insert_batch("t", {"x": np.zeros(1)}),
        lambda: client.transition_writer("t"),
        lambda: client.info(),
    ):
        with pytest.raises(ClosedError):
            call()
    client.close()


def test_one_table_is_spread_over_shards_with_its_parts():
    limits = rate_limiters.SampleToInsertRatio(4.0, 10, 100.0)
    table = Table("t", s.Prioritized(0.6, seed=5), s.Fifo(), 11, limits, max_bytes=30, compression="none")
    tables, limiter = shard_table(table, 3)
    assert limiter == limits
    assert [part.max_size for part in tables] == [4, 4, 3]
    assert [part.max_bytes for part in tables] == [10, 10, 10]
    assert {part.rate_limiter for part in tables} == {rate_limiters.Rationed()}
    assert len({part.sampler.seed for part in tables}) == 3
    assert {part.compression for part in tables} == {"none"}
    with pytest.raises(ValueError, match="fewer than 12 shards"):
        shard_table(table, 12)
    with pytest.raises(ValueError, match="at most 64"):
        shard_table(table, 65)
    with pytest.raises(ValueError, match="max_times_sampled"):
        shard_table(table.replace(max_times_sampled=1), 2)
