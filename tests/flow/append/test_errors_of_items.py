"""Errors of items in `append`: the step was written, the others go on, and no episode is cut or joined."""

import contextlib
import os
import signal
import threading

import numpy as np
import pytest

import reverie
from reverie import Table, rate_limiters, selectors, structured

pytestmark = pytest.mark.one_table_only("a server's bytes, and tables that delete sampled items")

BYTES = 400_000


def fifo(name, **options):
    return Table(name, selectors.Fifo(), selectors.Fifo(), 1000, rate_limiters.MinSize(1), **options)


def cell(*numbers):
    """Rows that no compression makes small, which begin with these numbers."""
    rows = np.random.default_rng(0).random((len(numbers), 2000), np.float32)
    rows[:, 0] = numbers
    return rows


@pytest.fixture
def server(connect):
    """A client, and a function that leaves the server no bytes until the next call of it."""
    client = connect(fifo("t"), fifo("other"), max_bytes=BYTES)
    full = []

    def fill():
        if full:
            client.reset("other")
            return
        full.append(True)
        random = np.random.default_rng(1)
        with contextlib.suppress(reverie.ResourceExhaustedError):
            for _ in range(100):
                client.insert_batch("other", {"z": random.random((1, 5000))}, timeout=200)
            pytest.fail("the server always has bytes left")

    return client, fill


def write_through_an_outage(fill, write, most=400):
    """Calls `write(step)`, from the fifth step on without bytes until an error was raised twice; returns the errors."""
    errors, step = [], 0
    while step < most and len(errors) < 2:
        if step == 4:
            fill()
        try:
            write(step)
        except reverie.ResourceExhaustedError as error:
            errors.append(error)
        step += 1
    fill()
    for later in range(step, step + 9):
        try:
            write(later)
        except reverie.ResourceExhaustedError as error:
            errors.append(error)
    return errors, step + 9


def all_say_that_the_step_was_written(errors):
    assert len(errors) >= 2
    for error in errors:
        assert error.step_written
        assert "the step was written: go on with the next one" in error.__notes__


def drained(writer):
    """Waits for the items, of which some may have failed."""
    while True:
        try:
            return writer.flush(timeout=200)
        except reverie.ResourceExhaustedError:
            continue


def sequences(client, table="t"):
    found = client.get(table, client.query(table).key, ragged="values")
    return [rows[:, 0].tolist() for rows in np.split(found.data["x"], np.cumsum(found.lengths)[:-1])]


def test_sequences_after_an_outage_begin_where_they_would_have_begun_without_it(server):
    client, fill = server
    writer = client.sequence_writer("t", 2, 2)
    errors, written = write_through_an_outage(fill, lambda step: writer.append({"x": cell(step)[0]}))
    all_say_that_the_step_was_written(errors)
    assert writer.episode_steps == written
    drained(writer)
    items = sequences(client)
    assert items[:2] == [[0, 1], [2, 3]]
    assert all(item == [item[0], item[0] + 1] and item[0] % 2 == 0 for item in items)
    assert items[-1][0] >= written - 3


def test_padding_whose_append_met_an_error_is_counted_and_so_is_its_step(server):
    client, fill = server
    writer = client.sequence_writer("t", 1, 1, 1)

    def write(step):
        try:
            writer.append({"x": cell(step + 1)[0]})
        finally:
            writer._end()

    errors, written = write_through_an_outage(fill, write)
    all_say_that_the_step_was_written(errors)
    drained(writer)
    items = sequences(client)
    assert items[:3] == [[0, 1], [0, 2], [0, 3]]
    assert all(item == [0, item[1]] for item in items)
    assert items[-1] == [0, written]


@pytest.mark.parametrize("kind", ["episodes", "sequences"])
def test_episodes_of_all_environments_end_where_one_has_an_error(server, kind):
    client, fill = server
    if kind == "episodes":
        writer = client.episode_writer("t", num_envs=2, autoreset="disabled")
    else:
        writer = client.sequence_writer("t", 2, 2, num_envs=2, autoreset="disabled")
    ends = np.ones(2, bool)
    errors, written = write_through_an_outage(
        fill, lambda step: writer.append({"x": cell(step, -step)}, ended=ends if step % 2 else ~ends)
    )
    all_say_that_the_step_was_written(errors)
    assert writer.episode_steps.tolist() == [written % 2] * 2
    for one in writer.writers:
        drained(one)
    items = sequences(client)
    assert all(abs(item[0]) % 2 == 0 and abs(item[1]) == abs(item[0]) + 1 and len(item) == 2 for item in items)
    assert {item[1] > 0 for item in items} == {True, False}


def test_a_transition_whose_append_raised_is_not_written_again(server):
    client, fill = server
    writer = client.transition_writer("t", n_step=1)
    errors, written = write_through_an_outage(fill, lambda step: writer.append(cell(step)[0], step, 1.0, False, False))
    all_say_that_the_step_was_written(errors)
    drained(writer)
    data = client.get("t", client.query("t").key).data
    assert np.array_equal(data["next_obs"][:, 0], data["obs"][:, 0] + 1)
    assert data["next_obs"][-1, 0] == written - 1
    with pytest.raises(ValueError) as refused:
        writer.append(cell(0)[0], 0, np.nan, False, False)
    assert not hasattr(refused.value, "step_written")


def test_each_error_of_a_trajectory_writer_reports_whether_the_step_was_written(server):
    client, fill = server
    writer = client.trajectory_writer(1)
    errors, own = [], []
    for step in range(400):
        if step == 4:
            fill()
        try:
            writer.append({"x": cell(step)[0]})
        except reverie.ResourceExhaustedError as error:
            errors.append(error)
        assert writer.episode_steps == step + 1
        if len(errors) == 2:
            break
        try:
            writer.create_item("t", 1.0, {"x": writer.history["x"][-1:]})
        except reverie.ResourceExhaustedError as error:  # of this item, in this process
            own.append(error)
            break
    assert errors or own
    assert all(error.step_written for error in errors)
    assert not any(error.step_written for error in own)
    with pytest.raises(reverie.SignatureError) as refused:
        writer.append({"x": np.zeros(3, np.int8)})
    assert not refused.value.step_written


def test_the_steps_of_a_sequence_are_all_appended_where_an_item_before_failed(server):
    client, fill = server
    writer = client.writer(4)

    def write(step):
        try:
            writer.append_sequence({"x": cell(2 * step, 2 * step + 1)})
        finally:
            writer.create_item("t", 2 if step == 0 else 4, 1.0)

    write_through_an_outage(fill, write)
    drained(writer)
    items = sequences(client)
    assert all(np.array_equal(np.diff(item), np.ones(len(item) - 1)) for item in items)


def test_an_item_that_one_table_refuses_keeps_no_item_from_the_others(connect):
    client = connect(fifo("a", max_bytes=5000), fifo("b"), fifo("c", max_bytes=5000))
    row = structured.create_reference_step({"x": None, "i": None})
    often = [structured.Condition.step_index() % 3 == 1]
    writer = client.structured_writer(
        [
            structured.create_config({"x": row["x"][-1]}, "a", conditions=often),
            structured.create_config({"i": row["i"][-1]}, "b"),
            structured.create_config({"x": row["x"][-1]}, "c", conditions=often),
        ]
    )
    errors = []
    for step in range(9):
        try:
            writer.append({"x": cell(step)[0], "i": np.int64(step)})
        except reverie.ResourceExhaustedError as error:
            errors.append(error)
    drained(writer)
    assert client.get("b", client.query("b").key).data["i"].tolist() == list(range(9))
    assert len(errors) == 3
    for error in errors:
        assert error.step_written
        others = [note for note in error.__notes__ if note.startswith("table 'c' has no item of it, either: ")]
        assert len(others) == 1


def test_ctrl_c_in_an_append_that_waits_loses_no_step(connect, until):
    client = connect(Table.queue("q", 1))
    writer = client.sequence_writer("q", 2, 2, max_in_flight_bytes=1)
    for step in range(3):
        writer.append({"x": np.full(1, step, np.float32)})

    def interrupt():
        until(lambda: client.why("q").inserts)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt) as interrupted:
        writer.append({"x": np.full(1, 3, np.float32)})
    thread.join()
    assert interrupted.value.step_written
    got = [client.sample_batch("q", 2, timeout=200).data["x"][:, :, 0].tolist()]
    for step in range(4, 6):
        writer.append({"x": np.full(1, step, np.float32)})
    got.append(client.sample_batch("q", 1, timeout=200).data["x"][:, :, 0].tolist())
    assert got == [[[0, 1], [2, 3]], [[4, 5]]]


def test_a_note_names_the_environments_whose_step_was_refused():
    with reverie.Server([reverie.Table.queue("t", 100)], listen=False) as server:
        writer = server.client().sequence_writer("t", length=2, period=1, num_envs=3, autoreset="disabled")
        writer.append({"a": np.zeros(3), "b": np.zeros((3, 2))}, where=[False, True, False])
        with pytest.raises(reverie.SignatureError) as error:
            writer.append({"a": np.zeros(3), "b": np.zeros((3, 5))})
        assert error.value.step_written
        assert any("the step of environment 1 was refused" in note for note in error.value.__notes__)
        writer.close()
