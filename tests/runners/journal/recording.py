"""An agent for runs that are killed: DQN whose actors write down what the table has acknowledged."""

import dataclasses
import os
from pathlib import Path

import numpy as np

from reverie.agents.dqn import agent as dqn


class RecordingActor:
    """An actor that waits for the table after each act, and then appends the observations of items to a file."""

    def __init__(self, actor, index):
        self._actor = actor
        self._file = os.open(Path(os.environ["RECORDED"]) / f"actor-{index}", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        self._before = np.zeros((0, 4), np.float32)

    def act(self):
        of_steps = self._actor._obs[~self._actor._resets].astype(np.float32)
        stepped = self._actor.act()
        self._actor._writer.flush()
        # The item of a step is in the table once the step after it is.
        os.write(self._file, self._before.tobytes())
        self._before = of_steps
        return stepped

    def __getattr__(self, name):
        return getattr(self._actor, name)


def make_actor(*arguments, index, **options):
    return RecordingActor(dqn.make_actor(*arguments, index=index, **options), index)


agent = dataclasses.replace(dqn, name="recording", make_actor=make_actor)
