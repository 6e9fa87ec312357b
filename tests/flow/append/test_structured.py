"""Structured writers: items of steps by patterns, conditions and priorities."""

import pickle
from typing import NamedTuple

import numpy as np
import pytest

import reverie
from reverie import Table, rate_limiters, selectors, structured
from reverie.structured import Condition, create_config, td_error

STEP = {"a": None, "b": None, "c": None}
REF = structured.create_reference_step(STEP)
DATA = Condition.data(STEP)


@pytest.fixture
def client(connect):
    fifo = Table("t", selectors.Fifo(), selectors.Fifo(), 1000, rate_limiters.MinSize(1), max_times_sampled=1)
    return connect(fifo, fifo.replace(name="u"), Table.queue("q", 1))


def config(pattern, *conditions, table="t", priority=None):
    return create_config(pattern, table, conditions, priority)


def drain(client, writer, table="t"):
    """Every item of the table: its data, flat, and its priority."""
    writer.flush(timeout=200)
    size = client.server_info()[table].current_size
    samples = client.sample(table, size, emit_timesteps=False) if size else ()
    return [([cell.tolist() for cell in sample.data], sample.info.priority) for sample in samples]


def items(client, configs, steps):
    """Items that a writer makes from steps: dicts; `...` leaves the step open; "end" and "keep" end the episode."""
    writer = client.structured_writer(configs)
    for step in steps:
        if step in ("end", "keep"):
            writer.end_episode(clear_buffers=step == "end", timeout=200)
        else:
            is_part = any(value is ... for value in step.values())
            values = {field: value for field, value in step.items() if value is not ...}
            writer.append({**STEP, **values}, partial_step=is_part)
    made = [data for data, _ in drain(client, writer)]
    writer.close()
    return [data[0] if len(data) == 1 else data for data in made]


COUNT = [{"a": i} for i in range(5)]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
@pytest.mark.parametrize(
    ("node", "want"),
    [
        (REF["a"][-1], [0, 1, 2, 3, 4]),
        (REF["a"][-4], [0, 1]),
        (REF["a"][-2:], [[0, 1], [1, 2], [2, 3], [3, 4]]),
        (REF["a"][-3:-1], [[0, 1], [1, 2], [2, 3]]),
        (REF["a"][-3:-1:2], [[0], [1], [2]]),
        (REF["a"][-4::3], [[0, 3], [1, 4]]),
    ],
)
def test_a_pattern_slices_the_latest_steps(client, node, want):
    assert items(client, [config(node)], COUNT) == want


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_every_config_makes_its_items_in_the_order_of_the_configs_into_its_table(client):
    configs = [config({"x": REF["a"][-2:]}), config([REF["a"][-1]], table="u"), config((REF["a"][-1:],))]
    with client.structured_writer(configs) as writer:
        for step in COUNT[:3]:
            writer.append({**STEP, **step})
    assert [data for data, _ in drain(client, writer)] == [[[0]], [[0, 1]], [[1]], [[1, 2]], [[2]]]
    assert [data for data, _ in drain(client, writer, "u")] == [[0], [1], [2]]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_items_have_the_structure_of_the_pattern(client):
    class Pair(NamedTuple):
        first: object
        second: object

    class Step(NamedTuple):
        obs: object
        action: object

    step = structured.create_reference_step(Step({"image": None, "speed": None}, None))
    pattern = {"pair": Pair(step.obs["image"][-2:], [step.action[-1]]), "speed": (step.obs["speed"][-1],)}
    with client.structured_writer([create_config(pattern, "t")]) as writer:
        for i in range(3):
            writer.append(Step({"image": np.full((2, 3), i, np.uint8), "speed": i / 2}, np.int32(i)))
    sample = next(client.sample("t", 1, emit_timesteps=False, unpack_as_table_signature=True))
    assert sample.data["pair"].first.tolist() == [[[0] * 3] * 2, [[1] * 3] * 2]
    assert (sample.data["pair"].second[0].tolist(), sample.data["speed"][0].dtype) == (1, np.float64)


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
@pytest.mark.parametrize(
    ("condition", "want"),
    [
        (Condition.step_index() == 2, [2, 12]),
        (Condition.step_index() != 2, [0, 1, 3, 10, 11, 13]),
        (Condition.step_index() < 1, [0, 10]),
        (Condition.step_index() <= 1, [0, 1, 10, 11]),
        (Condition.step_index() > 2, [3, 13]),
        (Condition.step_index() >= 2, [2, 3, 12, 13]),
        (Condition.step_index() % 3 == 0, [0, 3, 10, 13]),
        (Condition.step_index() % 3 != 0, [1, 2, 11, 12]),
        (Condition.step_index() % 3 >= 1, [1, 2, 11, 12]),
        (Condition.steps_since_applied() >= 3, [2, 11]),
        (Condition.steps_since_applied() == 1, [0, 1, 2, 3, 10, 11, 12, 13]),
        (Condition.is_end_episode(), [3, 13]),
        (DATA["b"] == 1, [1, 11]),
        (DATA["b"] >= 0, [0, 1, 10, 11]),
        (DATA["b"] % 3 == 2, [3, 13]),
        (DATA["c"] == 1, [2, 12]),
    ],
)
def test_a_condition_decides_which_steps_make_items(client, condition, want):
    episode = [{"b": 0, "c": False}, {"b": 1, "c": False}, {"c": True}, {"b": -1, "c": False}]
    steps = [{"a": 10 * e + i, **step} for e in range(2) for i, step in enumerate(episode)]
    steps = [*steps[:4], "end", *steps[4:], "end"]
    assert items(client, [config(REF["a"][-1], condition)], steps) == want


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_all_conditions_must_hold(client):
    conditions = (Condition.step_index() >= 1, Condition.steps_since_applied() >= 2)
    assert items(client, [config(REF["a"][-1], *conditions)], COUNT) == [1, 3]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_steps_since_applied_continues_across_episodes_and_the_step_index_restarts(client):
    since = config(REF["a"][-1], Condition.steps_since_applied() >= 2)
    assert items(client, [since], [*COUNT, "end", *COUNT]) == [1, 3, 0, 2, 4]
    assert items(client, [since], [*COUNT, "keep", *COUNT]) == [1, 3, 0, 2, 4]
    assert items(client, [config(REF["a"][-1], Condition.step_index() == 1)], [*COUNT, "keep", *COUNT]) == [1, 1]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_a_step_counts_as_one_however_many_parts_it_has(client):
    parts = [part for i in range(4) for part in ({"a": i, "c": ...}, {"b": i})]
    for condition in (Condition.step_index() % 2 == 1, Condition.steps_since_applied() >= 2):
        assert items(client, [config(REF["a"][-1], condition)], parts) == [1, 3]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_a_config_applies_at_the_first_part_of_a_step_at_which_it_can_and_only_there(client):
    writer = client.structured_writer(
        [config({"x": REF["a"][-1]}), config({"x": REF["a"][-1], "y": REF["b"][-1]}, table="u")]
    )
    for i in range(2):
        writer.append({"a": i}, partial_step=True)
        assert writer.step_is_open
        assert [data for data, _ in drain(client, writer)] == [[i]]
        assert drain(client, writer, "u") == []
        writer.append({"b": 10 + i, "c": None})
        assert not writer.step_is_open
        assert drain(client, writer) == []
        assert [data for data, _ in drain(client, writer, "u")] == [[i, 10 + i]]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_a_condition_sees_the_values_of_the_steps_earlier_parts(client):
    conditioned = config(REF["b"][-1], DATA["a"] == 1)
    steps = [{"a": 1, "c": ...}, {"b": 5}, {"a": 2, "c": ...}, {"b": 6}]
    assert items(client, [conditioned], steps) == [5]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_n_step_transitions_of_a_loop_that_opens_a_step_before_it_acts(client):
    """Like adders: the observation opens a step, the action that follows closes it, zeros close the last."""

    def transition(n):
        return {"obs": REF["a"][-n - 1 :: n], "action": REF["b"][-n - 1 : -n], "reward": REF["c"][-n - 1 : -1]}

    starts = [config(transition(n), Condition.step_index() == n) for n in (1, 2)]
    ends = [config(transition(n), Condition.is_end_episode(), Condition.step_index() != n) for n in (2, 1)]
    writer = client.structured_writer([*starts, config(transition(3)), *ends])
    for length in (1, 4):
        writer.append({**STEP, "a": 0}, partial_step=True)
        for i in range(length):
            writer.append({**STEP, "b": 10 + i, "c": i / 2})
            writer.append({**STEP, "a": i + 1}, partial_step=True)
        writer.append({**STEP, "b": 0, "c": 0.0})
        writer.end_episode(timeout=200)
    made = [data for data, _ in drain(client, writer)]
    assert made == [
        [[10], [0, 1], [0.0]],  # Columns in flattening order: action, obs, reward.
        [[10], [0, 1], [0.0]],
        [[10], [0, 2], [0.0, 0.5]],
        [[10], [0, 3], [0.0, 0.5, 1.0]],
        [[11], [1, 4], [0.5, 1.0, 1.5]],
        [[12], [2, 4], [1.0, 1.5]],
        [[13], [3, 4], [1.5]],
    ]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_the_end_of_an_episode_applies_a_config_unless_the_last_step_did(client):
    late = config(REF["a"][-2:], Condition.is_end_episode())
    assert items(client, [late], [*COUNT, "end", *COUNT, "end"]) == [[3, 4], [3, 4]]
    assert items(client, [config(REF["a"][-1])], [*COUNT[:2], "end"]) == [0, 1]
    assert items(client, [late], [*COUNT, "keep", "keep"]) == [[3, 4]]
    assert items(client, [late], ["end", "end"]) == []
    # From an open step it takes the part that was given.
    assert items(client, [late], [{"a": 0}, {"a": 1, "c": ...}, "end"]) == [[0, 1]]
    # And a condition on data means the last step's.
    flagged = config(REF["a"][-1], Condition.is_end_episode(), DATA["b"] == 1)
    steps = [{"a": 0, "b": 0}, {"a": 1, "b": 1}, "end", {"a": 2, "b": 1}, {"a": 3}, "end"]
    assert items(client, [flagged], steps) == [1]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_items_cross_episodes_only_where_the_buffers_are_kept(client):
    two = [config(REF["a"][-2:])]
    assert items(client, two, [*COUNT[:2], "end", *COUNT[:2]]) == [[0, 1], [0, 1]]
    assert items(client, two, [*COUNT[:2], "keep", *COUNT[:2]]) == [[0, 1], [1, 0], [0, 1]]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_a_cell_without_a_value_makes_no_item(client):
    steps = [{"a": 0}, {"b": 1}, {"a": 2}, {"a": 3}, {"a": 4}]
    assert items(client, [config(REF["a"][-2:])], steps) == [[2, 3], [3, 4]]
    assert items(client, [config(REF["a"][-3::2])], steps) == [[0, 2], [2, 4]]
    assert items(client, [config(REF["a"][-2])], steps) == [0, 2, 3]
    late = [{"a": 0}, {"a": 1, "b": 1}, {"a": 2, "b": 2}]
    assert items(client, [config([REF["a"][-1], REF["b"][-2:]])], late) == [[2, [1, 2]]]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_td_errors_become_priorities(client):
    priority = td_error(0.25, STEP, lambda step: step["b"])
    writer = client.structured_writer([config([REF["a"][-1], REF["b"][-2:]], priority=priority)])
    for i, error in enumerate([1.0, -2.0, 3.0, -5.0]):
        writer.append({"a": i, "b": np.float32(error), "c": None})
    # 0.25 * max + 0.75 * mean
    assert [priority for _, priority in drain(client, writer)] == [1.625, 2.625, 4.25]
    with pytest.raises(ValueError, match=r"'b' is NaN.*finite"):
        writer.append({"a": 4, "b": np.float32("nan"), "c": None})
    writer.append({"a": 4, "b": np.float32(1), "c": None})
    assert drain(client, writer) == [([4, [-5.0, 1.0]], 0.25 * 5 + 0.75 * 3)]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_a_constant_priority_is_every_items(client):
    with client.structured_writer([config(REF["a"][-1], priority=structured.constant_priority_fn(2.5))]) as writer:
        for step in COUNT[:2]:
            writer.append({**STEP, **step})
    assert [priority for _, priority in drain(client, writer)] == [2.5, 2.5]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_fields_that_no_config_refers_to_are_neither_read_nor_stored(client):
    writer = client.structured_writer([config(REF["a"][-1])])
    for i in range(3):
        writer.append({"a": np.int8(i), "b": object(), "c": np.zeros(1 << 16)})
    assert [data for data, _ in drain(client, writer)] == [[0], [1], [2]]
    assert client.info().size_bytes < 1 << 15


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_a_step_has_the_fields_that_the_configs_were_made_for(client):
    writer = client.structured_writer([config([REF["a"][-1], REF["b"][-1]])])
    with pytest.raises(reverie.SignatureError, match="a, b, c") as raised:
        writer.append({"a": 1, "b": 2, "d": 3})
    assert raised.value.path == "d"
    with pytest.raises(reverie.SignatureError, match=r"'b'.*None") as raised:
        writer.append({"a": 1, "c": 2})
    assert raised.value.path == "b"
    writer.append({"a": 1, "b": 2.0})  # No pattern refers to c.
    assert [data for data, _ in drain(client, writer)] == [[1, 2.0]]
    writer.append({"a": 1}, partial_step=True)
    with pytest.raises(ValueError, match="'a' was given twice"):
        writer.append({"b": 2.0, "a": 1})
    writer.append({"b": 2.5})
    with pytest.raises(reverie.SignatureError, match=r"'a'.*int64"):
        writer.append({"a": 1.5, "b": 2.5, "c": None})
    with pytest.raises(reverie.SignatureError, match=r"\[2\]"):
        writer.append({"a": 1, "b": np.zeros(2), "c": None})
    assert [data for data, _ in drain(client, writer)] == [[1, 2.5]]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_conditions_and_priorities_refuse_data_that_they_cannot_read(client):
    writer = client.structured_writer([config(REF["a"][-1], DATA["b"] == 1)])
    for value, got in ((1.0, "float64"), ("x", "str"), (np.zeros(2, np.int32), r"int32 \[2\]")):
        with pytest.raises(reverie.SignatureError, match=f"'b'.*{got}.*integer or bool"):
            writer.append({"a": 0, "b": value, "c": None})
    writer.append({"a": 1, "b": np.array([True]), "c": None})
    assert [data for data, _ in drain(client, writer)] == [[1]]
    writer = client.structured_writer([config(REF["b"][-1], priority=td_error(0.9, STEP, lambda step: step["b"]))])
    with pytest.raises(reverie.SignatureError, match=r"'b'.*float16.*td_error"):
        writer.append({**STEP, "b": np.float16(1)})


def test_configs_are_refused_where_the_server_cannot_take_their_items(connect):
    prioritized = Table("t", selectors.Prioritized(0.6), selectors.Fifo(), 10, rate_limiters.MinSize(1))
    client = connect(prioritized.replace(signature={"x": reverie.TensorSpec((2,), np.int64)}))
    with pytest.raises(reverie.UnknownTableError, match="'nope'"):
        client.structured_writer([config(REF["a"][-1], table="nope")])
    with pytest.raises(ValueError, match="-1"):
        client.structured_writer([config(REF["a"][-1], priority=structured.constant_priority_fn(-1))])
    with pytest.raises(ValueError, match="at least one config"):
        client.structured_writer([])
    with pytest.raises(TypeError, match="create_config"):
        client.structured_writer([REF["a"][-1]])
    other = structured.create_reference_step({"a": None, "z": None})
    with pytest.raises(ValueError, match="one step structure"):
        client.structured_writer([config({"x": REF["a"][-2:]}), config({"x": other["a"][-2:]})])
    writer = client.structured_writer([config({"x": REF["a"][-3:]})])
    for step in COUNT[:2]:
        writer.append({**STEP, **step})
    with pytest.raises(reverie.SignatureError, match="'x'"):
        writer.append({**STEP, "a": 3})


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_flush_waits_and_a_closed_writer_refuses(client):
    writer = client.structured_writer([config(REF["a"][-1], table="q")])
    for step in COUNT[:3]:
        writer.append({**STEP, **step})
    writer.flush(block_until_num_items=2, timeout_ms=30_000)
    assert writer.num_in_flight == 2
    with pytest.raises(reverie.DeadlineExceededError, match="table 'q'"):
        writer.flush(timeout_ms=20)
    with pytest.raises(reverie.DeadlineExceededError, match="table 'q'"):
        writer.end_episode(timeout_ms=20)
    writer.close()
    writer.close()
    for call in (lambda: writer.append(STEP), writer.end_episode):
        with pytest.raises(reverie.ClosedError):
            call()
    assert client.sample_batch("q", 3, timeout=200).data.tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(writer)


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_append_waits_where_too_much_is_in_flight(client):
    writer = client.structured_writer([config(REF["a"][-1], table="q")], max_in_flight_bytes=8, timeout=0.02)
    writer.append({**STEP, "a": 0})
    writer.flush(timeout=200)  # The queue is full with it; what follows waits there.
    writer.append({**STEP, "a": 1})
    with pytest.raises(reverie.DeadlineExceededError, match="table 'q'"):
        writer.append({**STEP, "a": 2})


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_overlapping_items_share_their_bytes(client):
    noise = np.random.default_rng(0).normal(size=(200, 1000)).astype(np.float32)
    with client.structured_writer([config(REF["a"][-8:], table="u")]) as writer:
        for cell in noise:
            writer.append({**STEP, "a": cell})
    info = client.info()
    assert info.tables["u"].current_size == 193
    # 200 steps of 4 kB; apart, the items would take eight times as much.
    assert 200 * 4000 <= info.size_bytes < 1.3 * 200 * 4000
