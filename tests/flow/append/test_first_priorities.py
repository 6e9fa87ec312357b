"""The priority of new items where the caller gives none."""

import numpy as np
import pytest

from reverie import selectors


def sequences(client, **options):
    with client.sequence_writer("t", 1, 1, **options) as writer:
        writer.append({"x": 0})


def sequences_of_many(client, **options):
    with client.sequence_writer("t", 1, 1, num_envs=1, autoreset="disabled", **options) as writer:
        writer.append({"x": np.zeros(1)})


def episodes(client, **options):
    with client.episode_writer("t", **options) as writer:
        writer.append({"x": 0})
        writer.end_episode()


def transitions(client, **options):
    with client.transition_writer("t", **options) as writer:
        writer.append(np.zeros(2), 0, 0.0, True, False, final_obs=np.zeros(2))


EVERY_WRITER = pytest.mark.parametrize("write", [sequences, sequences_of_many, episodes, transitions])


def first_priority(client, write, **options):
    """The priority of an item that a writer writes into a table whose other items have the priority 5."""
    for _ in range(2):  # of two servers, both have one
        client.insert({"y": 0.0}, {"t": 5.0})
    before = client.query("t").key
    write(client, **options)
    (new,) = [at for at, key in enumerate(client.query("t").key) if key not in before]
    return client.query("t").priority[new]


@EVERY_WRITER
def test_items_of_a_prioritised_table_begin_with_its_largest_priority(connect, uniform, write):
    client = connect(uniform("t", sampler=selectors.Prioritized(0.6, seed=1)))
    assert first_priority(client, write) == 5.0
    assert first_priority(client, write, priority=1.0) == 1.0
    assert first_priority(client, write, priority=2.5) == 2.5


@EVERY_WRITER
def test_the_first_item_of_a_prioritised_table_has_the_priority_1(connect, uniform, write):
    client = connect(uniform("t", sampler=selectors.Prioritized(0.6, seed=1)))
    write(client)
    assert client.query("t").priority.tolist() == [1.0]


@EVERY_WRITER
@pytest.mark.parametrize("connect", ["in-process", "grpc"], indirect=True)
@pytest.mark.parametrize("sampler", [selectors.Uniform(), selectors.Fifo(), selectors.MaxHeap()])
def test_items_of_other_tables_begin_with_1(connect, uniform, write, sampler):
    assert first_priority(connect(uniform("t", sampler=sampler)), write) == 1.0


@pytest.mark.parametrize("connect", ["in-process"], indirect=True)
def test_the_sampler_of_the_writers_own_table_decides(connect, uniform):
    client = connect(uniform("t"), uniform("other", sampler=selectors.Prioritized(0.6)))
    assert first_priority(client, sequences) == 1.0
