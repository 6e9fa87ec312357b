"""One limiter over all shards: the ratio of their sums holds, and no caller waits for ever."""

import threading

import numpy as np
import pytest

from reverie import Client, DeadlineExceededError, Server, rate_limiters
from reverie.sharding import shard_table

LIMITS = rate_limiters.SampleToInsertRatio(4.0, 10, 60.0)


@pytest.fixture
def limited(prioritized):
    """Makes the tables of shards that share `LIMITS`."""
    return lambda count: shard_table(prioritized(rate_limiter=LIMITS), count)[0]


def test_inserts_wait_for_the_client_with_the_limits_and_say_so(everywhere, limited):
    writer = everywhere(limited(2))
    with pytest.raises(DeadlineExceededError, match="was admitted no insert yet, it has 0") as late:
        writer.insert_batch("t", {"x": np.arange(3)}, timeout=0)
    assert len(late.value.partial) == 0
    assert not writer.can_insert("t")


def test_no_more_goes_in_than_the_limits_of_all_shards_allow(everywhere, limited):
    client = everywhere(limited(2), rate_limiter=LIMITS)
    # (4 * 10 + 60) / 4 = 25 inserts without a sample.
    assert client.can_insert("t", 25)
    assert not client.can_insert("t", 26)
    client.insert_batch("t", {"x": np.arange(20)}, shard=0)
    with pytest.raises(DeadlineExceededError, match="its ration is used up, 5 inserts of 5 admitted") as late:
        client.insert_batch("t", {"x": np.arange(20)}, shard=1, timeout=0.05)
    assert len(late.value.partial) == 5
    why = client.why("t")
    assert "the limiter of all shards allows 0 more inserts" in str(why)
    assert why.insert_reason is not None
    assert (why.num_inserts, why.stuck) == (25, False)
    # 25 * 4 - n >= -20
    assert client.can_sample("t", 120)
    assert not client.can_sample("t", 121)
    with pytest.raises(DeadlineExceededError, match="below -20 "):
        client.sample_batch("t", 121, timeout=0)
    assert client.info().tables["t"].num_samples == 120
    assert client.can_insert("t", 30)


def test_draws_wait_for_the_minimum_size_over_all_shards(everywhere, limited):
    client = everywhere(limited(2), rate_limiter=LIMITS)
    client.insert_batch("t", {"x": np.arange(5)}, shard=0)
    client.insert_batch("t", {"x": np.arange(4)}, shard=1)
    with pytest.raises(DeadlineExceededError, match=r"9 of 10 items \(min_size_to_sample\)"):
        client.sample_batch("t", 1, timeout=0)
    client.insert_batch("t", {"x": np.arange(1)}, shard=1)
    assert len(client.sample_batch("t", 4)) == 4


def test_a_batch_larger_than_the_limits_keeps_its_place_until_it_is_full(sharded, limited):
    client = sharded(limited(2), rate_limiter=LIMITS)
    with pytest.raises(DeadlineExceededError) as late:
        client.insert_batch("t", {"x": np.arange(30)}, timeout=0.05)
    assert len(late.value.partial) == 25
    with pytest.raises(DeadlineExceededError) as late:
        client.sample_batch("t", 200, timeout=0.05)
    assert len(late.value.partial) == 120
    assert late.value.partial.data["x"].shape == (120,)


def test_inserts_that_a_shard_without_a_writer_does_not_use_go_to_the_others(everywhere, limited):
    client = everywhere(limited(3), rate_limiter=LIMITS)
    inserted = 0
    with client.trajectory_writer(1, shard=2) as writer:
        for _ in range(200):
            writer.append({"x": 1.0})
            writer.create_item("t", 1.0, {"x": writer.history["x"][-1]})
            inserted += 1
            # A single thread: whatever the writer waits for, sampling frees it.
            if inserted >= 20:
                client.sample_batch("t", 4)
        writer.flush(timeout=200.0)
    assert client.info().tables["t"].num_inserts == 200


def test_the_ratio_holds_and_no_call_stalls_with_unequal_masses_and_alternating_writers(everywhere, limited):
    client = everywhere(limited(2), rate_limiter=LIMITS)
    inserts, failed = 600, []

    def write(shard):
        try:
            # 30 times the mass in the first shard, and as many inserts in each.
            with client.trajectory_writer(1, shard=shard) as writer:
                for _ in range(inserts // 2):
                    writer.append({"x": 1.0})
                    writer.create_item("t", 30.0 if shard == 0 else 1.0, {"x": writer.history["x"][-1]})
                    writer.flush(timeout=200.0)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(shard,)) for shard in range(2)]
    for thread in threads:
        thread.start()
    drawn, differences = 0, []
    while any(thread.is_alive() for thread in threads):
        with_all = client.can_sample("t", 16)
        if with_all:
            drawn += len(client.sample_batch("t", 16, timeout=200.0))
        figures = client.info().tables["t"]
        differences.append(figures.num_inserts * 4.0 - figures.num_samples)
    for thread in threads:
        thread.join()
    assert failed == []
    figures = client.info().tables["t"]
    assert (figures.num_inserts, figures.num_samples) == (inserts, drawn)
    assert max(differences) <= LIMITS.max_diff
    assert min(difference for difference in differences if difference) >= LIMITS.min_diff


def test_a_learner_that_comes_later_goes_on_with_the_counts_of_the_shards(everywhere, limited):
    first = everywhere(limited(2), rate_limiter=LIMITS)
    first.insert_batch("t", {"x": np.arange(20)}, shard=0)
    first.sample_batch("t", 70)
    second = Client(first.clients, rate_limiter=LIMITS, timeout=200)
    # 20 * 4 - 70 - n >= -20
    assert second.can_sample("t", 30)
    assert not second.can_sample("t", 31)


def test_a_reset_restarts_the_limits(everywhere, limited):
    client = everywhere(limited(2), rate_limiter=LIMITS)
    client.insert_batch("t", {"x": np.arange(20)}, shard=0)
    client.reset("t")
    assert not client.can_sample("t")
    assert client.can_insert("t", 25)
    assert len(client.insert_batch("t", {"x": np.arange(25)}, shard=1)) == 25


def test_several_clients_that_sample_keep_the_limits_together_and_none_is_left_out(stack, limited):
    servers = [stack.enter_context(Server([table], listen=False, shard=i)) for i, table in enumerate(limited(2))]

    def learner(index, count):
        clients = [server.client() for server in servers]
        among = {"rate_limiter": LIMITS, "among": (index, count)}
        return stack.enter_context(Client(clients, seed=index, timeout=200, **among))

    learners, drawn, inserted = [learner(i, 3) for i in range(3)], [0, 0, 0], 0
    for turn in range(600):
        one = turn % 3
        if turn == 300:  # one that starts again counts as the others do
            learners[2].close()
            learners[2] = learner(2, 3)
        if learners[one].can_sample("t", 8):
            learners[one].sample_batch("t", 8, timeout=0)
            drawn[one] += 8
        elif learners[0].can_insert("t", 2):
            # One shard has nearly all of the mass, and half of the inserts.
            rows = {"x": np.arange(2)}
            learners[0].insert_batch("t", rows, np.full(2, 1.0 + 20 * (turn % 2)), timeout=0, shard=turn % 2)
            inserted += 2
        # Asked one after the other, none runs ahead.
        assert LIMITS.min_diff <= 4 * inserted - sum(drawn) <= LIMITS.max_diff
    assert min(drawn) > 200
    assert learners[0].info().tables["t"].num_samples == sum(drawn)
    # All of them know what the others drew: where one takes what is left, there is nothing for any.
    while not learners[1].can_sample("t", 8):
        learners[0].insert_batch("t", {"x": np.arange(1)}, timeout=0)
    assert all(one.can_sample("t", 8) for one in learners)
    learners[1].sample_batch("t", 8, timeout=0)
    assert not any(one.can_sample("t", 8) for one in learners)


@pytest.mark.parametrize(
    ("among", "limits", "words"),
    [
        ((2, 2), LIMITS, r"among is \(2, 2\), and must be \(i, n\)"),
        ((-1, 2), LIMITS, r"among\[0\] must be at least 0"),
        ((0, 0), LIMITS, r"among\[1\] must be at least 1"),
        ((0, 2), None, "give each of them rate_limiter"),
    ],
)
def test_a_number_that_no_client_can_have_is_refused(sharded, limited, among, limits, words):
    with pytest.raises(ValueError, match=words):
        sharded(limited(2), rate_limiter=limits, among=among)


def test_only_the_first_of_several_clients_that_sample_lets_inserts_in(stack, limited):
    servers = [stack.enter_context(Server([table], listen=False, shard=i)) for i, table in enumerate(limited(2))]

    def learner(index):
        clients = [server.client() for server in servers]
        return stack.enter_context(Client(clients, rate_limiter=LIMITS, among=(index, 2), seed=1, timeout=200))

    second = learner(1)
    second.can_sample("t", 1)
    with pytest.raises(DeadlineExceededError, match="was admitted no insert yet"):
        second.insert_batch("t", {"x": np.arange(3)}, timeout=0)
    first = learner(0)
    assert len(first.insert_batch("t", {"x": np.arange(3)})) == 3


@pytest.mark.parametrize(("among", "discards"), [((0, 1), True), ((0, 2), False)])
def test_draws_by_earlier_masses_are_for_a_client_that_samples_alone(everywhere, prioritized, among, discards):
    """A client does not have another's draws: each would count those that the other discards."""
    tables, limiter = shard_table(prioritized(), 2)
    client = everywhere(tables, rate_limiter=limiter, among=among)
    keys = [client.insert_batch("t", {"x": np.arange(4)}, shard=shard) for shard in range(2)]
    for heavy in (0, 1, 0):
        client.sample_batch("t", 64)
        # By the clients of the servers: this one is not notified.
        for shard in range(2):
            client.clients[shard].update_priorities("t", keys[shard], np.full(4, 100.0 if shard == heavy else 1.0))
    batch = client.sample_batch("t", 64)
    assert np.count_nonzero(batch.info.key >> 57 == 0) > 32
    discarded = sum(shard.tables["t"]["discarded"] for shard in client.info().shards)
    # Servers of this process are asked for their masses before each draw.
    assert bool(discarded) == (discards and client.info().transport != "in-process")
    assert client.info().tables["t"].num_samples == 4 * 64
