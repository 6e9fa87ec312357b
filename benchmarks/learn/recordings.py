"""Data sets for the agents that train from them: a policy of another agent, trained and recorded by `reverie`."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SEED = 0
"""Seed of the run whose policy is recorded."""


class RecordingError(RuntimeError):
    """A data set could not be made; what the command said is in the text."""


@dataclass(frozen=True)
class Recording:
    """A policy that is trained to its target or for at most `trained` steps, and then plays."""

    agent: str
    env_id: str
    trained: int
    random_actions: float
    steps: int = 10_000

    def commands(self, run: str, path: str) -> tuple[list[str], list[str]]:
        """The arguments of the two `reverie` commands."""
        train = ["train", self.agent, "--env", self.env_id, "--seed", str(SEED), "--max-steps", str(self.trained)]
        record = ["data", "record", run, path, "--steps", str(self.steps)]
        return [*train, "--out", run, "--no-tensorboard", "--json"], [
            *record,
            *("--random-actions", str(self.random_actions), "--json"),
        ]


RECORDINGS = {
    "pendulum-noisy": Recording("sac", "Pendulum-v1", 8_000, 0.3),
    "pendulum-narrow": Recording("sac", "Pendulum-v1", 8_000, 0.0),
    "cartpole-narrow": Recording("dqn", "CartPole-v1", 100_000, 0.05),
}
"""Data sets by name. The noisy one has many actions in each state, the narrow ones hardly any but the policy's."""


def recorded(name: str, folder: Path) -> dict[str, Any]:
    """The data set, made in `folder` where it is missing: its path, and what is kept of it with the result of a run.

    Blocks. Raises `RecordingError`. One process at a time may make it.
    """
    path, about, recording = folder / f"{name}.parquet", folder / f"{name}.json", RECORDINGS[name]
    words = [shlex.join(["reverie", *one]) for one in recording.commands("RUN", f"{name}.parquet")]
    known = json.loads(about.read_text()) if about.exists() else None
    if known is None or known["commands"] != words:
        folder.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        train, record = recording.commands(str(folder / name), str(path))
        _reverie([*train, "--overwrite"], (0, 1))
        found = json.loads(_reverie(record, (0,)).splitlines()[-1])
        known = {"name": name, "commands": words, **{key: found[key] for key in ("steps", "episodes", "mean_return")}}
        draft = about.with_suffix(".part")
        draft.write_text(json.dumps(known))
        draft.replace(about)
    return {"path": str(path), **known}


def _reverie(arguments: list[str], codes: tuple[int, ...]) -> str:
    command = [sys.executable, "-c", "from reverie.cli import main; main()", *arguments]
    done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    if done.returncode not in codes:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise RecordingError(f"{shlex.join(arguments)}: exit code {done.returncode}: {said}")
    return done.stdout
