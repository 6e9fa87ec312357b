"""Draws and ages of items: the figures that `info` reports on every path."""

import time

import numpy as np

from reverie import Table, selectors


def bucket(draws):
    return (draws - 1).bit_length() + 1 if draws else 0


def test_items_that_left_are_counted_by_their_draws_and_draws_by_their_age(connect):
    client, began = connect(), time.monotonic()
    client.insert_batch("t", {"x": np.arange(6)})
    client.sample_batch("t", 7)
    client.sample_batch("t", 2)
    info, most = client.info().tables["t"], 9 * (time.monotonic() - began)
    assert (sum(info.age_histogram), sum(info.sample_times), info.sample_times_sum) == (9, 0, 0)
    assert 0 < info.age_sum < most
    drawn = client.query("t")
    gone = drawn.key[:4]
    client.delete("t", gone)
    info, times = client.info().tables["t"], drawn.times_sampled[:4].tolist()
    assert info.sample_times == tuple(sum(bucket(one) == at for one in times) for at in range(18))
    assert info.sample_times_sum == sum(times)
    client.reset("t")
    info = client.info().tables["t"]
    assert (sum(info.sample_times), info.sample_times_sum, info.age_sum) == (0, 0, 0.0)


def test_a_table_without_a_server_has_no_draws():
    info = Table("t", selectors.Fifo(), selectors.Fifo(), 2).info
    assert (info.sample_times, info.sample_times_sum, info.age_sum) == ((0,) * 18, 0, 0.0)
