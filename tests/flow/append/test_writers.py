"""Behaviour of all writers: the end of a `with` block, and no pickling."""

import copy
import pickle

import numpy as np
import pytest

import reverie
from reverie import structured

STEP = {"x": np.float32(1.0)}


def trajectory(client, timeout=0.0):
    writer = client.trajectory_writer(1, timeout=timeout)
    writer.append(STEP)
    writer.create_item("full", 1.0, {"x": writer.history["x"][-1:]})
    return writer


def by_patterns(client, timeout=0.0):
    pattern = structured.pattern_from_transform(STEP, lambda step: {"x": step["x"][-1:]})
    writer = client.structured_writer([structured.create_config(pattern, "full")], timeout=timeout)
    writer.append(STEP)
    return writer


def transitions(client, timeout=0.0):
    writer = client.transition_writer("full", timeout=timeout)
    for _ in range(2):
        writer.append(np.zeros(2), 0, 1.0, False, False)
    return writer


def sequences(client, timeout=0.0):
    writer = client.sequence_writer("full", 1, 1, timeout=timeout)
    writer.append(STEP)
    return writer


def episodes(client, timeout=0.0):
    writer = client.episode_writer("full", timeout=timeout)
    writer.append(STEP)
    writer._end()
    return writer


def of_many(client, timeout=0.0):
    writer = client.sequence_writer("full", 1, 1, num_envs=2, timeout=timeout)
    writer.append({"x": np.zeros(2, np.float32)})
    return writer


def older(client, timeout=0.0):
    writer = client.writer(1, timeout=timeout)
    writer.append(STEP)
    writer.create_item("full", 1, 1.0)
    return writer


@pytest.fixture(params=[trajectory, by_patterns, transitions, sequences, episodes, of_many, older])
def writer(request):
    """Each writer, with an item in flight to a table that has no room for it."""
    client = reverie.Server([reverie.Table.queue("full", 1)], listen=False).client()
    client.insert(STEP, {"full": 1.0})
    writer = request.param(client)
    assert writer.num_in_flight
    return writer


def test_leaving_the_block_waits_for_the_items(writer):
    with pytest.raises(reverie.DeadlineExceededError), writer as entered:
        assert entered is writer


def test_an_error_of_the_program_that_leaves_the_block_notes_which_items_are_not_in_their_tables(writer):
    error = RuntimeError("the environment broke")
    with pytest.raises(RuntimeError) as raised, writer:
        raise error
    assert raised.value is error
    (note,) = error.__notes__
    assert note.startswith("not all items of the writer that this error leaves are in their tables: ")
    assert "'full'" in note


@pytest.mark.parametrize("make", [trajectory, by_patterns, transitions, sequences, episodes, of_many, older])
@pytest.mark.parametrize(("default", "given", "waits"), [(None, None, 5.0), (None, 9.0, None), (9.0, None, None)])
def test_after_an_error_of_the_program_a_block_without_a_timeout_waits_5_seconds(
    make, default, given, waits, monkeypatch
):
    asked = []
    client = reverie.Server([reverie.Table.queue("full", 10)], listen=False).client(timeout=default)
    writer = make(client, given)
    method = "close" if make is transitions else "flush"
    monkeypatch.setattr(type(writer), method, lambda writer, *, timeout: asked.append(timeout))
    with pytest.raises(RuntimeError), writer:
        raise RuntimeError("the environment broke")
    assert asked == [waits]


def test_leaving_the_block_by_an_error_of_the_replay_does_not_wait(writer):
    error = reverie.ClosedError("the table was closed", name="full")
    with pytest.raises(reverie.ClosedError) as raised, writer:
        raise error
    assert raised.value is error
    assert error.__context__ is None
    assert not hasattr(error, "__notes__"), "of a wait"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_leaving_the_block_by_ctrl_c_or_an_exit_does_not_wait(writer, kind):
    end = kind()
    with pytest.raises(kind) as raised, writer:
        raise end
    assert raised.value is end
    assert end.__context__ is None
    assert not hasattr(end, "__notes__"), "of a wait"


@pytest.mark.parametrize("take_along", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_writer_stays_in_its_process(writer, take_along):
    with pytest.raises(TypeError, match="cannot be pickled"):
        take_along(writer)
