"""Behaviour of all writers: the end of a `with` block, and no pickling."""

import copy
import pickle

import numpy as np
import pytest

import reverie
from reverie import structured

STEP = {"x": np.float32(1.0)}


def trajectory(client):
    writer = client.trajectory_writer(1, timeout=0.0)
    writer.append(STEP)
    writer.create_item("full", 1.0, {"x": writer.history["x"][-1:]})
    return writer


def by_patterns(client):
    pattern = structured.pattern_from_transform(STEP, lambda step: {"x": step["x"][-1:]})
    writer = client.structured_writer([structured.create_config(pattern, "full")], timeout=0.0)
    writer.append(STEP)
    return writer


def transitions(client):
    writer = client.transition_writer("full", timeout=0.0)
    for _ in range(2):
        writer.append(np.zeros(2), 0, 1.0, False, False)
    return writer


def sequences(client):
    writer = client.sequence_writer("full", 1, 1, timeout=0.0)
    writer.append(STEP)
    return writer


def episodes(client):
    writer = client.episode_writer("full", timeout=0.0)
    writer.append(STEP)
    writer._end()
    return writer


def of_many(client):
    writer = client.sequence_writer("full", 1, 1, num_envs=2, timeout=0.0)
    writer.append({"x": np.zeros(2, np.float32)})
    return writer


def older(client):
    writer = client.writer(1, timeout=0.0)
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


def test_leaving_the_block_by_an_error_of_the_program_still_waits(writer):
    with pytest.raises(reverie.DeadlineExceededError), writer:
        raise RuntimeError("the environment broke")


def test_leaving_the_block_by_an_error_of_the_replay_does_not_wait(writer):
    error = reverie.ClosedError("the table was closed", name="full")
    with pytest.raises(reverie.ClosedError) as raised, writer:
        raise error
    assert raised.value is error
    assert error.__context__ is None


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_leaving_the_block_by_ctrl_c_or_an_exit_does_not_wait(writer, kind):
    end = kind()
    with pytest.raises(kind) as raised, writer:
        raise end
    assert raised.value is end
    assert end.__context__ is None


@pytest.mark.parametrize("take_along", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_writer_stays_in_its_process(writer, take_along):
    with pytest.raises(TypeError, match="cannot be pickled"):
        take_along(writer)
