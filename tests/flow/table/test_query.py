"""`query`, and `delete` with conditions."""

import numpy as np
import pytest

import reverie


def filled(connect, n=10, **options):
    client = connect(**options)
    keys = client.insert_batch("t", {"n": np.arange(n)}, priorities=np.arange(n) % 4)
    return client, keys


def test_a_query_finds_the_items_for_which_every_condition_holds(connect):
    client, keys = filled(connect)
    found = client.query("t", where=[("priority", ">=", 1), ("priority", "!=", 2.0)])
    assert found.key.tolist() == keys[[1, 3, 5, 7, 9]].tolist()
    assert found.priority.tolist() == [1, 3, 1, 3, 1]
    assert (found.probability == 0).all()
    assert (found.table_size == 10).all()
    assert client.get("t", found.key).data["n"].tolist() == [1, 3, 5, 7, 9]


@pytest.mark.parametrize(
    ("op", "numbers"),
    [
        ("<", [0, 1]),
        ("<=", [0, 1, 2]),
        ("==", [2]),
        ("!=", [0, 1, 3]),
        (">=", [2, 3]),
        (">", [3]),
    ],
)
def test_every_op_compares_as_python_does(connect, op, numbers):
    client, keys = filled(connect, 4)
    assert client.query("t", [("priority", op, 2)]).key.tolist() == keys[numbers].tolist()


def test_every_field_can_be_queried(connect, uniform):
    client = connect(uniform("t", sampler=reverie.selectors.Fifo()))
    keys = client.insert_batch("t", {"n": np.arange(5)})
    client.update_priorities("t", keys[:2], [7.0, 8.0])
    client.update_priorities("t", keys[:1], [7.0])
    client.sample_batch("t", 3)
    assert client.query("t", [("version", "==", 2)]).key.tolist() == keys[:1].tolist()
    assert client.query("t", [("version", ">", 0)]).key.tolist() == keys[:2].tolist()
    assert client.query("t", [("times_sampled", ">=", 3)]).key.tolist() == keys[:1].tolist()
    assert client.query("t", [("age", "<", 3600)]).key.tolist() == keys.tolist()
    assert client.query("t", [("age", ">", 3600)]).key.tolist() == []


def test_a_query_without_conditions_finds_all_in_the_order_of_insertion(connect):
    client, keys = filled(connect)
    client.delete("t", keys[3:5])
    late = client.insert_batch("t", {"n": np.arange(2)})
    assert client.query("t").key.tolist() == [*keys[:3].tolist(), *keys[5:].tolist(), *late.tolist()]
    assert client.query("t", where=[]).key.shape == (10,)


def test_an_order_sorts_and_a_limit_takes_the_first(connect):
    client, keys = filled(connect)
    assert client.query("t", order="priority").key.tolist() == keys[[0, 4, 8, 1, 5, 9, 2, 6, 3, 7]].tolist()
    assert client.query("t", order="-priority", limit=3).key.tolist() == keys[[3, 7, 2]].tolist()
    assert client.query("t", order="-age", limit=1).key.tolist() == keys[:1].tolist()
    assert client.query("t", limit=4).key.tolist() == keys[:4].tolist()
    assert client.query("t", limit=99).key.tolist() == keys.tolist()


def test_a_query_counts_as_no_sample_and_finds_nothing_in_an_empty_table(connect):
    client, _ = filled(connect)
    client.query("t")
    assert client.info().tables["t"].rate_limiter_info.sample_stats.completed == 0
    client.reset("t")
    assert client.query("t").key.shape == (0,)


def test_invalid_conditions_are_refused_by_name(connect):
    client, keys = filled(connect)
    with pytest.raises(ValueError, match=r'where: the field must be one of "priority".*got "key"'):
        client.query("t", [("key", "==", 1)])
    with pytest.raises(ValueError, match=r'the op must be one of "<".*got "=~"'):
        client.query("t", [("priority", "=~", 1)])
    with pytest.raises(ValueError, match="NaN"):
        client.query("t", [("priority", "<", float("nan"))])
    with pytest.raises(TypeError, match="tuples"):
        client.query("t", [lambda item: True])
    for none in (lambda item: True, 3):
        with pytest.raises(TypeError, match=r"where must be a list of \(field, op, number\), got"):
            client.query("t", none)
        with pytest.raises(TypeError, match=r"where must be a list of \(field, op, number\), got"):
            client.delete("t", where=none)
    with pytest.raises(ValueError, match="64 conditions, got 65"):
        client.query("t", [("priority", "<", 1)] * 65)
    with pytest.raises(ValueError, match=r'order must be one of.*got "size"'):
        client.query("t", order="-size")
    with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
        client.query("t", limit=0)
    with pytest.raises(reverie.UnknownTableError):
        client.query("other")
    with pytest.raises(ValueError, match="the field"):
        client.delete("t", keys, where=[("key", "==", 1)])


def test_delete_by_conditions_drops_the_items_for_which_all_hold(connect):
    client, keys = filled(connect)
    client.sample_batch("t", 1)
    assert client.delete("t", where=[("priority", "<=", 1), ("age", "<", 3600)]) == (6, 0)
    assert client.query("t").key.tolist() == keys[[2, 3, 6, 7]].tolist()
    assert client.delete("t", where=[("priority", ">", 5)]) == (0, 0)


def test_delete_by_keys_and_conditions_takes_only_those_of_both(connect):
    client, keys = filled(connect)
    assert client.delete("t", keys[:4], where=[("priority", ">=", 2)]) == (2, 2)
    assert client.query("t").key.tolist() == keys[[0, 1, 4, 5, 6, 7, 8, 9]].tolist()


@pytest.mark.one_table_only("which server has room is not known to the caller")
@pytest.mark.parametrize("make", [reverie.Table.queue, reverie.Table.stack])
def test_a_deleted_item_of_a_queue_gives_its_place_to_another(connect, make):
    client = connect(make("q", 2))
    keys = client.insert_batch("q", {"n": np.arange(2)})
    assert not client.can_insert("q", 1)
    assert client.delete("q", keys[:1]) == (1, 0)
    client.insert_batch("q", {"n": np.array([7])}, timeout=100)
    assert not client.can_insert("q", 1)
    assert sorted(int(client.sample_batch("q", 1, timeout=100).data["n"][0]) for _ in range(2)) == [1, 7]


def test_delete_without_keys_and_conditions_is_refused(connect):
    client, _ = filled(connect)
    for nothing in ({}, {"where": []}):
        with pytest.raises(ValueError, match="reset"):
            client.delete("t", **nothing)
    assert client.delete("t", keys=[]) == (0, 0)
    assert client.info().tables["t"].current_size == 10


def test_a_delete_goes_through_a_table_of_many_items_in_parts(connect, uniform):
    client = connect(uniform("t", max_size=10_000))
    client.insert_batch("t", {"n": np.arange(5_000)}, priorities=np.arange(5_000))
    assert client.delete("t", where=[("priority", "<", 4_500)]) == (4_500, 0)
    assert client.query("t").priority.tolist() == list(range(4_500, 5_000))
