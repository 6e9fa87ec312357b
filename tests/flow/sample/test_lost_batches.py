"""Batches of tables that are lost: the loop does not end as if it were finished."""

import collections
import itertools

import numpy as np
import pytest

import reverie


@pytest.mark.parametrize("sent_ahead", [0, 2])
def test_every_call_after_the_tables_are_lost_raises_the_error(uniform, sent_ahead):
    server = reverie.Server([uniform("t")], listen=False)
    client = server.client()
    client.insert_batch("t", {"n": np.arange(3)})
    options = {"send": lambda batch: (batch, lambda: batch), "sent_ahead": sent_ahead} if sent_ahead else {}
    batches = reverie.datasets.Batches(client, "t", 2, prefetch=1, timeout=200, **options)
    next(batches)
    server.stop()
    for _ in range(3):
        with pytest.raises(reverie.ClosedError, match="t"):
            collections.deque(itertools.islice(batches, 9))


def test_batches_end_at_their_last_sample(uniform):
    with reverie.Server([uniform("t")], listen=False) as server:
        client = server.client()
        client.insert_batch("t", {"n": np.arange(3)})
        assert [len(batch) for batch in client.batches("t", 2, max_samples=5)] == [2, 2, 1]
