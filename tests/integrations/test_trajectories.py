"""Trajectories of the integrations' buffers: what an error within a step leaves of them."""

from __future__ import annotations

import numpy as np
import pytest

import reverie
from reverie.integrations._replay_table import LocalTable
from reverie.integrations._trajectories import FrameStack, Trajectory


class Failing:
    """A writer, one of whose calls raises: before its step is there, or behind it, as where too much is in flight."""

    def __init__(self, writer, name, calls, there):
        self._writer, self._name, self._calls, self._there = writer, name, calls, there

    def __getattr__(self, name):
        found = getattr(self._writer, name)
        if name != self._name:
            return found

        def call(*args):
            self._calls -= 1
            if self._calls == 0 and not self._there:
                raise reverie.DeadlineExceededError("too much was in flight")
            found(*args)
            if self._calls == 0:
                raise reverie.DeadlineExceededError("too much was in flight")

        return call


@pytest.mark.parametrize("frames", [1, 2])
@pytest.mark.parametrize("n_steps", [1, 3])
@pytest.mark.parametrize("there", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize(("name", "calls"), [("append", 1), ("append", 3), ("create_item", 1)])
@pytest.mark.parametrize("known", [False, True], ids=["compared", "in parts"])
def test_after_an_error_within_a_step_the_next_ones_have_their_own_observations(
    frames, n_steps, there, name, calls, known
):
    options = {"sampler": reverie.selectors.Uniform(seed=0), "remover": reverie.selectors.Fifo(), "max_size": 100}
    table = LocalTable({"name": "replay", **options})
    stack = FrameStack(frames, 0, (frames, 1))
    trajectory = Trajectory(table, n_steps, stack, 1.0)

    def observed(number):
        return np.arange(number, number + frames, dtype=np.float32)[:, None]

    def add(number, *, first=False, last=False):
        rest = {"action": np.int64(number), "reward": np.float32(1.0), "done": np.float32(0.0)}
        flags = {"follows": known and not first, "followed": known and not last}
        trajectory.add(observed(number), observed(number + 1), rest, False, **flags)

    add(0, first=True)
    add(1, last=True)
    writer = trajectory._writer
    trajectory._writer = Failing(writer, name, calls, there)
    reached = 2
    with pytest.raises(reverie.DeadlineExceededError):  # noqa: PT012 (which of the steps raises depends on the call)
        while reached < 6:
            add(reached, first=reached == 2)
            reached += 1
    trajectory._writer = writer
    for number in range(2, 9):
        add(number, first=number == 2, last=number == 8)
    trajectory.cut()
    trajectory.flush()
    batch = table.sample(300, "pad")
    begins = batch.data["action"]
    steps = np.ones(300) if n_steps == 1 else (batch.data["reward"] != 0).sum(axis=1)
    seen, following = (batch.data[key].reshape(300, -1) for key in ("observation", "next_observation"))
    assert {*range(2, 9)} <= {*begins.tolist()}
    assert (seen == begins[:, None] + np.arange(frames)).all()
    assert (following == (begins + steps)[:, None] + np.arange(frames)).all()
