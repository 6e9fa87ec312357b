"""Shards whose process is killed, or starts again: the others go on."""

import contextlib
import functools
import logging
import signal

import numpy as np
import pytest

from reverie import Client, DeadlineExceededError, UnavailableError, UnknownKeyError, rate_limiters
from reverie.sharding import shard_table
from reverie.testing import ServerProcess, serve

LIMITS = rate_limiters.SampleToInsertRatio(4.0, 2, 40.0)


@pytest.fixture(params=["shared-memory", "grpc"])
def network(request):
    return request.param


@pytest.fixture
def mortal(new_port):
    """A server process of the test's own, whose server keeps its port."""
    host = ServerProcess()
    host.serve = functools.partial(host.serve, port=new_port())
    yield host
    host.process.kill()
    with contextlib.suppress(OSError):
        host.close()


@pytest.fixture
def joined(network, stack):
    """Makes a client that gives a shard up soon, of addresses where all could be reached to begin with."""

    def reached(address):
        client = stack.enter_context(Client(address, transport=network, patience=0.3))
        while True:
            try:
                client.info()
                return client
            except UnavailableError:
                continue

    def joined(addresses, **options):
        clients = [reached(address) for address in addresses]
        return stack.enter_context(Client(clients, timeout=100.0, seed=1, **options))

    return joined


def kill(host):
    host.process.send_signal(signal.SIGKILL)
    host.process.wait()


def lost(caplog):
    return [line for line in caplog.messages if " is lost, " in line]


@pytest.mark.long
def test_a_killed_shard_leaves_the_distribution_and_the_others_go_on(
    network, mortal, stack, joined, prioritized, caplog
):
    tables, limiter = shard_table(prioritized(rate_limiter=LIMITS), 2)
    survivor = stack.enter_context(serve(tables[:1], network, shard=0))
    with mortal.serve(tables[1:], shard=1) as address, caplog.at_level(logging.WARNING, "reverie"):
        client = joined([survivor.server_address, address], rate_limiter=limiter)
        keys = [client.insert_batch("t", {"x": np.full(4, shard)}, shard=shard) for shard in range(2)]
        assert set(client.sample_batch("t", 20).data["x"]) == {0, 1}
        left = client.info().tables["t"].num_inserts * 4.0 + 40.0 + 8.0
        kill(mortal)
        batch = client.sample_batch("t", 10)
        assert len(batch) == 10
        assert set(batch.data["x"]) == {0}
        # Probability and number are those of what is left: the draws that met the lost shard were made again.
        np.testing.assert_allclose(batch.info.probability, np.full(10, 1 / 4))
        assert set(batch.info.table_size) == {4}
        assert tuple(client.update_priorities("t", np.concatenate(keys), np.ones(8))) == (4, 4)
        client.sample_batch("t", 10)
        info = client.info()
        assert [of.present for of in info.shards] == [True, False]
        assert info.tables["t"].current_size == 4
        assert address in str(client.why("t"))
        assert len(lost(caplog)) == 1
        # The inserts that it could still have taken go to the other: (8 * 4 + ... ) / 4 - 8 are open in all.
        open_now = int(left // 4 - 8)
        assert client.can_insert("t", open_now)
        assert len(client.insert_batch("t", {"x": np.zeros(open_now, int)}, shard=0)) == open_now
        # Turns pass over it.
        assert {int(key) >> 57 for key in client.insert_batch("t", {"x": np.zeros(1, int)})} == {0}


@pytest.mark.long
def test_a_shard_that_starts_again_is_taken_back_and_its_old_keys_are_stale(
    network, mortal, stack, joined, prioritized, until, caplog
):
    tables, limiter = shard_table(prioritized(rate_limiter=LIMITS), 2)
    survivor = stack.enter_context(serve(tables[:1], network, shard=0))
    with mortal.serve(tables[1:], shard=1) as address, caplog.at_level(logging.WARNING, "reverie"):
        port = int(address.rpartition(":")[2])
        client = joined([survivor.server_address, address], rate_limiter=limiter)
        old = [client.insert_batch("t", {"x": np.full(4, shard)}, shard=shard) for shard in range(2)]
        # Inserts count once a draw has received them.
        client.sample_batch("t", 10)
        kill(mortal)
        client.sample_batch("t", 10)
        again = ServerProcess()
        stack.callback(again.close)
        with again.serve([table.replace() for table in tables[1:]], port=port, shard=1):
            until(lambda: all(of.present for of in client.info().shards))
            client.info()  # A call delivers the log lines of those before it.
            assert any("is back" in line for line in caplog.messages)
            # Its items are gone, and what was inserted counts: 8 inserts of the ratio, 4 items.
            table = client.why("t")
            assert (table.size, table.num_inserts) == (4, 8)
            assert tuple(client.update_priorities("t", np.concatenate(old), np.ones(8))) == (4, 4)
            new = client.insert_batch("t", {"x": np.full(4, 2)}, shard=1)
            assert not set(new) & set(old[1])
            assert set(client.sample_batch("t", 20).data["x"]) == {0, 2}
            assert len(lost(caplog)) == 1


@pytest.mark.long
def test_a_stopped_shard_is_left_out_and_is_back_when_it_continues(
    network, mortal, stack, joined, prioritized, until, caplog
):
    survivor = stack.enter_context(serve([prioritized()], network, shard=0))
    with mortal.serve([prioritized()], shard=1) as address, caplog.at_level(logging.WARNING, "reverie"):
        client = joined([survivor.server_address, address])
        for shard in range(2):
            client.insert_batch("t", {"x": np.full(4, shard)}, shard=shard)
        assert set(client.sample_batch("t", 40).data["x"]) == {0, 1}
        with mortal.suspended():
            assert set(client.sample_batch("t", 40, timeout=20).data["x"]) == {0}
            assert set(client.sample_batch("t", 40, timeout=20).data["x"]) == {0}
        until(lambda: all(of.present for of in client.info().shards))
        assert set(client.sample_batch("t", 40).data["x"]) == {0, 1}
        client.info()  # A call delivers the log lines of those before it.
        assert any(f"({address}) is lost" in line for line in caplog.messages)


@pytest.mark.long
def test_a_query_and_a_read_leave_out_a_shard_that_is_killed_meanwhile(
    network, mortal, stack, joined, prioritized, new_port
):
    for call in ("query", "get"):
        host = ServerProcess()
        stack.callback(host.close)
        survivor = stack.enter_context(serve([prioritized()], network, shard=0))
        with host.serve([prioritized()], shard=1, port=new_port()) as address:
            client = joined([survivor.server_address, address])
            keys = [client.insert_batch("t", {"x": np.full(4, shard)}, shard=shard) for shard in range(2)]
            assert client.can_sample("t")
            kill(host)
            if call == "query":
                assert set(client.query("t").key) == set(keys[0])
            else:
                assert set(client.get("t", keys[0]).data["x"]) == {0}
                with pytest.raises(UnknownKeyError, match=str(keys[1][0])):
                    client.get("t", keys[1])
            assert [of.present for of in client.info().shards] == [True, False]


@pytest.mark.long
def test_inserts_that_time_out_at_a_dead_shard_go_to_the_others_from_then_on(
    network, mortal, stack, joined, prioritized, until, caplog
):
    survivor = stack.enter_context(serve([prioritized()], network, shard=0))
    with mortal.serve([prioritized()], shard=1) as address, caplog.at_level(logging.WARNING, "reverie"):
        actor = joined([survivor.server_address, address])
        actor.insert_batch("t", {"x": np.zeros(1)})
        kill(mortal)

        def goes_to_the_survivor():
            try:
                return {int(key) >> 57 for key in actor.insert_batch("t", {"x": np.zeros(1)}, timeout=0.1)} == {0}
            except DeadlineExceededError:
                return False

        # Nothing else is asked of the shards. One of two turns is that of the dead shard.
        until(lambda: all(goes_to_the_survivor() for _ in range(4)))
        assert len(lost(caplog)) == 1
        with pytest.raises(DeadlineExceededError, match=address):
            actor.insert_batch("t", {"x": np.zeros(1)}, shard=1, timeout=0.1)


@pytest.mark.long
def test_a_writer_keeps_what_its_lost_shard_did_not_confirm_and_sends_it_when_the_shard_is_back(
    network, mortal, stack, joined, prioritized
):
    survivor = stack.enter_context(serve([prioritized()], network, shard=0))
    with mortal.serve([prioritized()], shard=1) as address:
        client = joined([survivor.server_address, address])
        writer = client.trajectory_writer(1, shard=1)

        def write():
            writer.append({"x": 1.0})
            writer.create_item("t", 1.0, writer.history["x"][-1])

        write()
        writer.flush()
        kill(mortal)
        assert [of.present for of in client.info().shards] == [True, False]
        for _ in range(3):
            write()
        with pytest.raises(
            DeadlineExceededError, match="unconfirmed inserts are kept, and sent when the server is back"
        ):
            writer.flush(timeout=0.1)
        assert writer.num_in_flight == 3
        again = ServerProcess()
        stack.callback(again.close)
        with again.serve([prioritized()], port=int(address.rpartition(":")[2]), shard=1) as address:
            writer.flush(timeout=200)
            # Its predecessor's item is gone with it.
            assert stack.enter_context(Client(address, patience=100.0)).info(timeout=200).tables["t"].current_size == 3


@pytest.mark.long
def test_with_no_shard_left_every_call_raises_an_error(mortal, joined, prioritized):
    with mortal.serve([prioritized()], shard=0) as address:
        client = joined([address])
        client.insert_batch("t", {"x": np.arange(4)})
        client.sample_batch("t", 4)
        kill(mortal)
        for call in (
            lambda: client.sample_batch("t", 4),
            lambda: client.insert_batch("t", {"x": np.arange(4)}),
            lambda: client.transition_writer("t"),
            lambda: client.can_sample("t"),
            lambda: client.info(),
        ):
            with pytest.raises(UnavailableError, match=address):
                call()
        assert tuple(client.update_priorities("t", [1], [1.0])) == (0, 1)


def test_prefetched_batches_go_on_without_a_killed_shard(network, mortal, stack, joined, prioritized):
    survivor = stack.enter_context(serve([prioritized()], network, shard=0))
    with mortal.serve([prioritized()], shard=1) as address:
        client = joined([survivor.server_address, address])
        for shard in range(2):
            client.insert_batch("t", {"x": np.full(4, shard)}, shard=shard)
        with client.batches("t", 16, prefetch=2) as batches:
            assert len(next(batches)) == 16
            kill(mortal)
            seen = [set(next(batches).data["x"]) for _ in range(8)]
        assert seen[-1] == {0}


def test_a_draw_that_waits_for_nothing_gives_the_shards_time_to_answer(everywhere, prioritized):
    client = everywhere([prioritized() for _ in range(2)])
    client.insert_batch("t", {"x": np.arange(4)}, shard=0)
    assert len(client.sample_batch("t", 2, timeout=0)) == 2
