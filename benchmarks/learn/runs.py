"""One (row, seed): a `reverie train` in a process of its own, which can be interrupted, and what it left."""

from __future__ import annotations

import datetime
import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from reverie.runners import CheckpointError, checkpoints
from reverie.runners.reports import logs

from ..peers import ROOT, Peer, python_of
from ..report import machine
from .recordings import RecordingError, recorded
from .row import Row
from .scores import EPISODES

COMMAND = [sys.executable, "-c", "from reverie.cli import main; main()"]
SB3 = Peer("sb3-walkers", "walkers_sb3", ("stable-baselines3==2.9.2", "gymnasium[mujoco]==1.4.0", "mujoco==4.0.0"))
TRAINED = "trained.json"
"""The file in a run's folder with all its results except for the score."""
GRACE = 60.0
"""Seconds for a run that was asked to stop to write its checkpoint."""


class RunError(RuntimeError):
    """`reverie train` ended without a result; what it said is in the text."""


def run(row: Row, seed: int, folder: Path, seconds: float | None) -> dict[str, Any] | None:
    """Train, or go on where an earlier call was interrupted; None where `seconds` were up first.

    Blocks. Raises `RunError`.
    """
    if row.library != "reverie":
        return _of_another_library(row, seed, folder, seconds)
    begun, trained = time.monotonic(), folder / TRAINED
    if not trained.exists():
        try:
            found = _train(row, seed, folder, seconds)
        except RecordingError as error:
            raise RunError(f"{row.name}, seed {seed}: {error}") from error
        if found is None:
            return None
        written = trained.with_suffix(".part")
        written.write_text(json.dumps(found))
        written.replace(trained)  # if scoring is interrupted, the next call does not train on
    found = json.loads(trained.read_text())
    if found["command"] != (command := _command(row, seed)):
        raise RunError(f"{folder} has a run of `{found['command']}`, and the row is `{command}`: remove the folder")
    score = _score(folder, found["env_steps"], None if seconds is None else seconds - (time.monotonic() - begun))
    return None if score is None else {**found, "score": score}


def _train(row: Row, seed: int, folder: Path, seconds: float | None) -> dict[str, Any] | None:
    data = recorded(row.data, folder.parents[1] / "data-sets") if row.data else None
    arguments = row.arguments(seed, str(folder), *([] if data is None else [data["path"]]))
    if folder.exists():
        try:
            checkpoints.find(folder)
            arguments.append("--resume")
        except CheckpointError:  # interrupted before the first one
            shutil.rmtree(folder)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, said = process.communicate(timeout=seconds)
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=GRACE)
        if isinstance(error, KeyboardInterrupt):
            raise
        return None
    if process.returncode not in (0, 1) or not out:
        raise RunError(f"{row.name}, seed {seed}: exit code {process.returncode}: {_last_line(said)}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found = result(row, folder, json.loads(out.splitlines()[-1]), used, resumed="--resume" in arguments)
    about = {} if data is None else {"data": {name: value for name, value in data.items() if name != "path"}}
    return {**found, "command": _command(row, seed), **about}


def _command(row: Row, seed: int) -> str:
    return shlex.join(["reverie", *row.arguments(seed, "FOLDER")])


def _score(folder: Path, env_steps: int, seconds: float | None) -> dict[str, Any] | None:
    """The last weights on episodes that decided nothing, neither when the run ended nor which settings it has.

    None if `seconds` are up first. Raises `RunError`, also for a checkpoint that is not of the run's last step.
    """
    command = [*COMMAND, "eval", str(folder), "--episodes", str(EPISODES), "--json"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode or not done.stdout:
        raise RunError(f"{folder}: its last weights cannot be evaluated: {_last_line(done.stderr)}")
    found = json.loads(done.stdout.splitlines()[-1])
    if found["env_steps"] != env_steps:
        raise RunError(
            f"{folder}: its newest checkpoint is of {found['env_steps']:,} steps, and the run of {env_steps:,}"
        )
    return {"mean_return": found["mean_return"], "num_episodes": found["num_episodes"]}


def _of_another_library(row: Row, seed: int, folder: Path, seconds: float | None) -> dict[str, Any] | None:
    if row.settings:
        raise RunError(f"{row.name} is of {row.library}, which does not take {', '.join(row.settings)}")
    try:
        python = python_of(SB3)
    except subprocess.CalledProcessError as error:
        raise RunError(f"{row.name}: its environment cannot be made: {error}") from error
    command = [*(python, "-m", "workers.walkers_sb3", row.env_id), *map(str, (seed, row.by))]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    kept, place = [*command, str(folder.absolute())], ROOT / "benchmarks"
    try:
        done = subprocess.run(kept, cwd=place, env=environment, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode or not done.stdout:
        raise RunError(f"{row.name}, seed {seed}: exit code {done.returncode}: {_last_line(done.stderr)}")
    measured = json.loads(done.stdout.splitlines()[-1])
    known = {"row": row.name, "agent": row.agent, "env_id": row.env_id, "seed": seed, "settings": []}
    reached = {"target_return": row.reach, "confirmed": measured["mean_return"] >= row.reach}
    score = {name: measured[name] for name in ("mean_return", "num_episodes")}
    words = shlex.join(["python", *map(str, command[1:])])
    return {**known, **reached, **measured, **_circumstances(), "command": words, "score": score}


def result(row: Row, folder: Path, printed: dict[str, Any], cpu_seconds: float, *, resumed: bool) -> dict[str, Any]:
    """The results of a run except for its score: figures that it printed, its curve, and how it was made."""
    log = logs.read(folder)
    return {
        "row": row.name,
        **{key: value for key, value in printed.items() if key != "folder"},
        "settings": list(row.settings),
        # Measured in one process: unknown if the run was interrupted or has several.
        "cpu_seconds": None if resumed or row.runner != "local" else round(cpu_seconds, 1),
        "curve": [list(point) for point in zip(log.env_steps, log.returns, strict=True)],
        **_circumstances(),
    }


def curve_so_far(row: Row, folder: Path) -> list[list[float]]:
    """Environment steps and greedy returns of a run that was interrupted, as far as its folder has them."""
    if row.library != "reverie":
        states = sorted(folder.glob("*-steps/progress.json"), key=lambda path: int(path.parent.name.partition("-")[0]))
        return json.loads(states[-1].read_text())["curve"] if states else []
    try:
        log = logs.read(folder)
    except (logs.LogError, OSError):
        return []
    return [list(point) for point in zip(log.env_steps, log.returns, strict=True)]


def so_far(row: Row, seed: int, curve: list[list[float]]) -> dict[str, Any]:
    """The results of a run that was interrupted: its curve, and no score."""
    return {
        **{"row": row.name, "agent": row.agent, "env_id": row.env_id, "seed": seed, "settings": list(row.settings)},
        **{"env_steps": int(curve[-1][0]), "target_return": row.reach, "curve": curve},
        **_circumstances(),
    }


def _circumstances() -> dict[str, Any]:
    return {
        "version": version("reverie"),
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": machine(),
    }


def _commit() -> str:
    done = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1]
