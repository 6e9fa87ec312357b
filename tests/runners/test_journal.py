"""Runs with a journal: what a kill leaves, and how a resumed run continues."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import reverie
from reverie import agents
from reverie.agents.core import RunSettings
from reverie.agents.environments import describe
from reverie.runners import checkpoints, train
from reverie.runners.checkpoints import actor_counts, replays
from reverie.runners.reports import logs

# Some start processes, whose fork server is one for all of a worker.
pytestmark = pytest.mark.xdist_group("processes")

HERE = Path(__file__).parent
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
SETTINGS = ["learning_starts=200", "samples_per_insert=8", "checkpoint_every=400", "evaluate_every=1000000000"]
SETTINGS += ["screening_episodes=1", "confirmation_episodes=1", "compile=off", "batch_size=32"]


def train_here(folder, *, run=RUN, config=CONFIG, agent=DQN, stop_after=None, **options):
    """A run in this process, which stops after so many steps as a kill would end it: without a checkpoint."""
    steps = []

    def stop():
        return stop_after is not None and bool(steps) and steps[-1] >= stop_after

    return train(agent, "CartPole-v1", run=run, config=config, checkpoint_folder=folder, should_stop=stop, **options)


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


def recorded(folder):
    """The observations whose items were acknowledged, as bytes; the last may have been written in part."""
    whole = [file.read_bytes() for file in sorted(folder.glob("actor-*"))]
    return {one[start : start + 16] for one in whole for start in range(0, len(one) - 15, 16)}


def command(out, *more):
    flags = [flag for setting in SETTINGS for flag in ("--set", setting)]
    return [
        *(sys.executable, "-m", "reverie", "train", "recording:agent", "--env", "CartPole-v1", "--out", str(out)),
        *(
            "--config",
            str(DQN.presets / "CartPole-v1.toml"),
            "--no-tensorboard",
            "--no-check-memory",
            "-q",
            *flags,
            *more,
        ),
    ]


@pytest.mark.long
@pytest.mark.parametrize("runner", ["local", "process"])
def test_a_run_whose_processes_are_all_killed_continues_with_what_was_acknowledged(tmp_path, until, runner):
    out, notes = tmp_path / "run", tmp_path / "recorded"
    notes.mkdir()
    environment = {**os.environ, "RECORDED": str(notes)}

    def events(kind):
        return [line for line in logs._lines(out / logs.LOG) if line["event"] == kind] if out.exists() else []

    def far_enough():
        """Acknowledged steps that no checkpoint has, of which the file of counts has some."""
        assert child.poll() is None, (tmp_path / "first.log").read_text()
        found = checkpoints.checkpoint_files.all_in(out / "checkpoints")
        if not found or int(found[-1].name) < 400:
            return False
        counts = actor_counts.load(out / "checkpoints" / "replay-1") or []
        return sum(one["env_steps"] for one in counts) > int(found[-1].name) + 40

    options = ["--runner", runner, "--max-steps", "1000000000", "--journal"]
    with (tmp_path / "first.log").open("w") as log:
        child = subprocess.Popen(
            command(out, *options), cwd=HERE, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            until(far_enough)
        finally:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    saved = int(checkpoints.checkpoint_files.all_in(out / "checkpoints")[-1].name)
    acknowledged = recorded(notes)
    info, stored = read_journal(out / "checkpoints" / "replay-1", tmp_path / "copy")
    assert len(acknowledged) > saved
    assert acknowledged <= stored
    assert info.num_inserts == info.current_size >= len(acknowledged)

    goal = info.num_inserts + 600
    done = subprocess.run(
        command(out, "--runner", runner, "--max-steps", str(goal), "--journal", "--resume"),
        cwd=HERE,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 1, done.stderr  # the target is not reached in so few steps
    first, second = events("started")
    assert first["env_steps"] == 0
    assert saved + 40 < second["env_steps"] <= info.num_inserts + 8  # the steps after the checkpoint count
    after, stored_after = read_journal(out / "checkpoints" / "replay-1", tmp_path / "copy of the end")
    assert acknowledged | recorded(notes) <= stored_after
    assert stored <= stored_after
    assert after.num_inserts >= goal - 16  # items of the last steps, and of steps that an episode's end left out
    state = checkpoints.load(checkpoints.find(out))
    assert state["env_steps"] >= goal
    (draws,) = state[replays.DRAWS]
    given = state["learner"]["draws"]["given"]
    assert draws["lost"]["replay"] > 0
    if runner == "local":  # elsewhere the learner answers a little before the shard
        assert draws["samples"]["replay"] - draws["lost"]["replay"] == given
    # The learner made the updates again that were lost: it has the ratio of all inserts.
    assert given >= 8 * (after.num_inserts - 200) - 8 * 200
    assert [path.name for path in (out / "checkpoints").glob("replay-*")] == ["replay-1"]
