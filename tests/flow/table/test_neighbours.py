"""`update_priorities(neighbours=)`: earlier items are raised with an item (prioritised sequence replay)."""

import numpy as np
import pytest

from reverie import selectors


def priorities(client, keys):
    return client.get("t", keys).info.priority.tolist()


def test_items_before_an_update_are_raised_by_powers_of_the_decay(connect):
    client = connect()
    keys = client.insert_batch("t", {"n": np.arange(6)}, priorities=1.0)
    assert client.update_priorities("t", keys[4:5], [16.0], neighbours=(3, 0.5)) == (1, 0)
    assert priorities(client, keys) == [1.0, 2.0, 4.0, 8.0, 16.0, 1.0]
    assert client.get("t", keys).info.version.tolist() == [0, 1, 1, 1, 1, 0]


def test_a_neighbour_is_never_lowered_and_one_in_the_batch_is_raised_from_its_new_priority(connect):
    client = connect()
    keys = client.insert_batch("t", {"n": np.arange(4)}, priorities=[1.0, 9.0, 1.0, 1.0])
    client.update_priorities("t", keys[[3, 2]], [8.0, 0.5], neighbours=(2, 0.5))
    assert priorities(client, keys) == [1.0, 9.0, 4.0, 8.0]


def test_the_order_of_a_batch_makes_no_difference(connect):
    outcomes = []
    for order in ([1, 2, 3], [3, 1, 2]):
        client = connect()
        keys = client.insert_batch("t", {"n": np.arange(4)}, priorities=0.0)
        new = np.array([0.0, 3.0, 2.0, 16.0])
        client.update_priorities("t", keys[order], new[order], neighbours=(3, 0.5))
        outcomes.append(priorities(client, keys))
    assert outcomes == [[2.0, 4.0, 8.0, 16.0]] * 2


def test_a_stale_update_raises_no_neighbours(connect):
    client = connect()
    keys = client.insert_batch("t", {"n": np.arange(3)}, priorities=1.0)
    assert client.update_priorities("t", keys[2:], [9.0], if_version=[5], neighbours=(2, 1.0)) == (0, 1)
    assert priorities(client, keys) == [1.0, 1.0, 1.0]


def test_only_items_of_the_same_writer_and_episode_are_raised(connect):
    client = connect()
    with client.trajectory_writer(1) as one, client.trajectory_writer(1) as other:
        for n in range(6):
            writer = one if n % 2 else other
            writer.append({"n": n})
            writer.create_item("t", 1.0, {"n": writer.history["n"][-1:]})
            if n == 1:
                one.end_episode()
            writer.flush()
    keys = client.query("t").key
    client.update_priorities("t", keys[5:], [8.0], neighbours=(5, 0.5))
    assert priorities(client, keys) == [1.0, 1.0, 1.0, 4.0, 1.0, 8.0]
    client.update_priorities("t", keys[4:5], [8.0], neighbours=(5, 0.5))
    assert priorities(client, keys) == [2.0, 1.0, 4.0, 4.0, 8.0, 8.0]


def test_environments_of_one_vector_writer_are_streams_of_their_own(connect):
    client = connect()
    quiet = np.zeros(2, bool)
    with client.transition_writer("t", num_envs=2) as writer:
        for n in range(4):
            writer.append(np.full((2, 1), n), np.zeros(2), np.zeros(2), quiet, quiet)
    found = client.query("t")
    assert len(found) == 6
    client.update_priorities("t", found.key[4:5], [16.0], neighbours=(9, 0.5))
    assert priorities(client, found.key) == [4.0, 1.0, 8.0, 1.0, 16.0, 1.0]


def test_neighbours_skip_deleted_items(connect):
    client = connect()
    keys = client.insert_batch("t", {"n": np.arange(4)}, priorities=1.0)
    client.delete("t", keys[1:3])
    client.update_priorities("t", keys[3:], [8.0], neighbours=(1, 0.5))
    assert priorities(client, keys[[0, 3]]) == [4.0, 8.0]


def test_a_raise_changes_what_is_drawn(connect, uniform):
    client = connect(uniform("t", sampler=selectors.Prioritized(1.0, seed=0)))
    keys = client.insert_batch("t", {"n": np.arange(3)}, priorities=0.0)
    client.update_priorities("t", keys[2:], [4.0], neighbours=(1, 0.5))
    info = client.sample_batch("t", 64).info
    np.testing.assert_allclose(np.unique(info.probability), [2 / 6, 4 / 6])
    assert set(info.key.tolist()) == set(keys[1:].tolist())


def test_invalid_neighbours_are_refused(connect):
    client = connect()
    keys = client.insert_batch("t", {"n": np.arange(2)})
    for bad, words in (
        ((0, 0.5), "k must be"),
        ((1025, 0.5), "1024, got 1025"),
        ((1, 0.0), "decay"),
        ((1, 1.5), "1.5"),
    ):
        with pytest.raises(ValueError, match=words):
            client.update_priorities("t", keys, [1.0, 1.0], neighbours=bad)
    assert client.get("t", keys).info.version.tolist() == [0, 0]
