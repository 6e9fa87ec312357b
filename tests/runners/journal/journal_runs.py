"""Runs with a journal that end as by a kill, and what their journals have."""

import dataclasses
import shutil

import numpy as np
import pytest

import reverie
from reverie import agents
from reverie.agents.core import RunSettings
from reverie.agents.environments import describe
from reverie.runners import train
from reverie.runners.checkpoints import actor_counts

DQN = agents.find("dqn")
CONFIG = dataclasses.replace(DQN.load_preset("CartPole-v1").config, learning_starts=200, samples_per_insert=8.0)
RUN = RunSettings(
    target_return=None,
    max_env_steps=600,
    evaluate_every=10**9,
    checkpoint_every=10**9,
    screening_episodes=1,
    confirmation_episodes=1,
    compile="off",
    replay_journal="run",
)


def train_here(folder, *, run=RUN, config=CONFIG, agent=DQN, stop_after=None, **options):
    """A run in this process, which stops after so many steps as a kill would end it: without a checkpoint."""
    steps = []

    def stop():
        return stop_after is not None and bool(steps) and steps[-1] >= stop_after

    return train(agent, "CartPole-v1", run=run, config=config, folder=folder, should_stop=stop, **options)


class Killed(Exception):
    """Ends a run as a kill does: nothing is saved."""


def killed_at(folder, env_steps, monkeypatch, **options):
    """Train until so many steps and end as by a kill; returns what the table had and the folder of its journal."""
    monkeypatch.setattr(actor_counts, "SECONDS", 0.0)
    monkeypatch.setattr("reverie.runners.local.PROGRESS_SECONDS", 0.0)
    found = []

    def on_event(event):
        steps = getattr(event, "env_steps", 0)
        if type(event).__name__ == "Progress" and steps >= env_steps:
            found.append((steps, event.updates))
            raise Killed

    with pytest.raises(Killed):
        train_here(folder, on_event=on_event, **options)
    return found[0]


def read_journal(folder, to, agent=DQN, config=CONFIG):
    """The tables of a copy of a journal: their counts, and the observations of all items, as bytes."""
    shutil.copytree(folder, to)
    tables = agent.make_tables(describe("CartPole-v1"), config, seed=0)
    with reverie.Server(tables, journal=reverie.Journal(to), listen=False) as server:
        client, info = server.client(), server.tables[0].info
        keys = client.query("replay", limit=10**6).key
        rows = client.get("replay", keys).data["obs"] if len(keys) else np.zeros((0, 4), np.float32)
        return info, {row.tobytes() for row in rows}
