"""The first call of a client, which makes its connection."""

from contextlib import suppress

import numpy as np
import pytest

import reverie


@pytest.mark.parametrize("transport", ["shared-memory", "grpc"])
def test_a_first_call_with_wait_false_arrives_with_the_second_call(transport):
    rows = {"x": np.zeros(4)}
    with reverie.Server([reverie.Table.queue("q", 8)]) as server:
        for _ in range(20):
            with reverie.Client(server.address, transport=transport, patience=100.0) as client:
                with suppress(reverie.DeadlineExceededError):
                    client.insert_batch("q", rows, timeout=0)
                assert client.info(timeout=100.0).connected
                client.reset("q")
