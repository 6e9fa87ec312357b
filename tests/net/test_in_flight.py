"""Bounds on calls in flight that no caller waits for."""

import numpy as np
import pytest

import reverie
from reverie import _native

ROW = {"x": np.zeros((1, 1000), np.uint8)}


@pytest.fixture
def full(own_host, network):
    """The address of a server whose table takes one item, and no second before a draw."""
    table = reverie.Table(
        "t",
        sampler=reverie.selectors.Fifo(),
        remover=reverie.selectors.Fifo(),
        max_size=100,
        rate_limiter=reverie.rate_limiters.Queue(1),
    )
    with own_host.serve([table]) as address:
        yield address


def test_inserts_that_no_caller_waits_for_wait_beyond_the_clients_own_bytes(full, connect, network):
    client = connect(full, transport=network, max_in_flight_bytes=2_500)
    assert client.max_in_flight_bytes == 2_500
    client.info(timeout=200)

    def insert(timeout):
        for _ in range(20):
            client.insert_batch("t", ROW, wait=False, timeout=timeout)

    with pytest.raises(reverie.DeadlineExceededError, match="earlier ones with wait=False"):
        insert(0.2)
    client = connect(full, transport=network)
    assert client.max_in_flight_bytes == 64 << 20
    insert(200)


def test_a_writer_takes_its_clients_bytes_unless_it_has_its_own(full, connect, network):
    def write(timeout, own):
        writer = client.trajectory_writer(1, max_in_flight_bytes=own, timeout=timeout)
        for _ in range(20):
            writer.append({"x": np.zeros(1000, np.uint8)})
            writer.create_item("t", 1.0, {"x": writer.history["x"][-1:]})

    client = connect(full, transport=network, max_in_flight_bytes=2_500)
    client.info(timeout=200)
    with pytest.raises(reverie.DeadlineExceededError):
        write(0.2, None)
    write(200, 64 << 20)


def test_writers_of_several_environments_share_their_bytes(full, connect, network):
    rows = np.random.default_rng(1).integers(256, size=(4, 1000), dtype=np.uint8)
    with connect(full, transport=network).sequence_writer("t", 1, 1, timeout=200) as writer:
        writer.append({"x": rows[0]})  # the table takes no other item

    def num_steps(num_envs, own=None, **bound):
        """The steps of an environment that are in flight when the table takes none and `append` no more."""
        client = connect(full, transport=network, **bound)
        writer = client.sequence_writer("t", 1, 1, num_envs=num_envs, max_in_flight_bytes=own, timeout=0.1)
        for step in range(100):
            try:
                writer.append({"x": rows[0] if num_envs is None else rows[:num_envs]})
            except reverie.DeadlineExceededError:
                return step
        raise AssertionError("append has no bound")

    alone = [num_steps(None, max_in_flight_bytes=size) for size in (4_000, 16_000)]
    assert 0 < alone[0] < alone[1]
    assert num_steps(4, max_in_flight_bytes=16_000) == alone[0]
    assert num_steps(4, own=16_000) == alone[0]
    assert num_steps(1, max_in_flight_bytes=16_000) == alone[1]


def test_only_batches_without_a_given_prefetch_widen_over_a_slow_link(full, connect, network, monkeypatch):
    client = connect(full, transport=network)
    client.insert_batch("t", ROW, timeout=60)
    seen = []

    def make(*_, **given):
        seen.append((given["ahead"], given.get("widens", False)))

    monkeypatch.setattr(_native, "Prefetch", make)
    client.batches("t", 1, prefetch=3)
    client.windows("t", 1, 1, prefetch=4)
    client.batches("t", 1)
    client.windows("t", 1, 1)
    assert seen == [(3, False), (4, False), (2, True), (2, True)]


def test_bytes_in_flight_below_one_are_refused(connect):
    with pytest.raises(ValueError, match="max_in_flight_bytes must be at least 1, got 0"):
        connect("127.0.0.1:1", max_in_flight_bytes=0)
