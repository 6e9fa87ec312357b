"""Short runs whose roles are processes, for the tests of this folder."""

import dataclasses
import multiprocessing
import multiprocessing.connection
import os
import signal
import tempfile
from pathlib import Path

from reverie import agents
from reverie.agents.core import RunSettings
from reverie.runners import train as train_run

SHORT = RunSettings(
    target_return=10_000.0,  # more than there is: a slow machine must not solve it before the test is over
    max_env_steps=1_600,
    evaluate_every=400,
    checkpoint_every=700,
    screening_episodes=2,
    confirmation_episodes=3,
)
WATCHDOG = 600.0
# For what ends by what happens in it: however far the actors are by then, it is not over.
ENDLESS = dataclasses.replace(SHORT, max_env_steps=10**9)


def left_by(supervisor):
    """Folders of weights of a supervisor's runs."""
    return [
        path
        for place in ("/dev/shm", tempfile.gettempdir())
        for path in Path(place).glob(f"reverie-run-{supervisor}-*")
    ]


def train(name="dqn", *, run=SHORT, config=None, **options):
    events = []
    callback = options.pop("on_event", lambda event: None)
    agent = agents.find(name)
    if config is None:
        config = dataclasses.replace(agent.load_preset("CartPole-v1").config)

    def on_event(event):
        events.append(event)
        callback(event)

    return train_run(
        agent, "CartPole-v1", runner="process", run=run, config=config, on_event=on_event, **options
    ), events


def small(name="apex-dqn", **changes):
    """Starts to learn early, so that short runs see all of it."""
    config = agents.find(name).load_preset("CartPole-v1").config
    return dataclasses.replace(config, **{"learning_starts": 200, "samples_per_insert": 8.0, **changes})


def kill(role):
    """End a role's process, as the kernel would."""
    _signal(role, signal.SIGKILL)


def stop(role):
    """Let a role's process stand still."""
    _signal(role, signal.SIGSTOP)


def continue_(role):
    """Let a process that stands still go on."""
    _signal(role, signal.SIGCONT)


def _signal(role, number):
    (one,) = [child for child in multiprocessing.active_children() if child.name == f"reverie {role}"]
    os.kill(one.pid, number)


def of_kind(events, kind):
    return [event for event in events if isinstance(event, kind)]
