"""Stable-Baselines3's SAC on a walker of MuJoCo: `python -m workers.walkers_sb3 HalfCheetah-v5 SEED STEPS [FOLDER]`.

Settings of its zoo (rl-baselines3-zoo, `sac.yml`, Hopper and HalfCheetah: `learning_starts` 10,000, otherwise the
library's). Every 10,000 steps the mean return of ten greedy episodes, on the seeds that Reverie's evaluations have; at
the end that of a hundred others. Prints one JSON object.

With a folder the run is saved in it after each evaluation, and goes on from there if it was interrupted: with the
model, the replay buffer and the generators of random numbers, and with a new episode.
"""

from __future__ import annotations

import json
import pickle
import random
import shutil
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import stable_baselines3
import torch
from stable_baselines3 import SAC

EVERY, SCREENING, SCORING = 10_000, range(10_000, 10_010), range(30_000, 30_100)
"""Steps between two evaluations, and seeds of Reverie's."""
LEARNING_STARTS = 10_000


@dataclass
class Progress:
    """Measurements of a run so far, over all its processes. Seconds are without their starts."""

    curve: list[list[float]] = field(default_factory=list)
    seconds: float = 0.0
    seconds_of_evaluations: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def steps(self) -> int:
        """Environment steps that were made."""
        return int(self.curve[-1][0]) if self.curve else 0


def greedy_return(model: SAC, env_id: str, seeds: range) -> float:
    """The mean return of one episode for each seed."""
    env, returns = gym.make(env_id), []
    for seed in seeds:
        observation, _ = env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            action, _ = model.predict(observation, deterministic=True)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    env.close()
    return float(np.mean(returns))


def train(env_id: str, seed: int, steps: int, folder: Path | None, every: int = EVERY) -> tuple[SAC, Progress]:
    """Train to `steps`, from the newest state in the folder where it has one."""
    saved = folder and _newest(folder)
    model, progress = _load(saved, env_id) if saved else (_new(env_id, seed), Progress())
    before, cpu_before = time.perf_counter(), time.process_time()
    for done in range(progress.steps + every, steps + 1, every):
        model.learn(every, reset_num_timesteps=done == every)
        began = time.perf_counter()
        progress.curve.append([done, greedy_return(model, env_id, SCREENING)])
        now, cpu = time.perf_counter(), time.process_time()
        progress.seconds_of_evaluations += now - began
        progress.seconds += now - before
        progress.cpu_seconds += cpu - cpu_before
        before, cpu_before = now, cpu
        print(f"{done:,} steps, {progress.seconds:.0f} s: {progress.curve[-1][1]:.1f}", file=sys.stderr, flush=True)
        if folder:
            _save(folder, model, progress)
            before, cpu_before = time.perf_counter(), time.process_time()
    return model, progress


def _new(env_id: str, seed: int) -> SAC:
    return SAC("MlpPolicy", env_id, seed=seed, device="cpu", learning_starts=LEARNING_STARTS)


def _save(folder: Path, model: SAC, progress: Progress) -> None:
    """Whole, or not at all: a state has its name when everything is in it, and older ones go after that."""
    older, part = list(folder.glob("*-steps")), folder / "part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    model.save(part / "model")
    model.save_replay_buffer(part / "replay")
    numbers = (random.getstate(), np.random.get_state(), torch.get_rng_state())  # noqa: NPY002 the library draws there
    (part / "numbers").write_bytes(pickle.dumps(numbers))
    (part / "progress.json").write_text(json.dumps(asdict(progress)))
    part.rename(folder / f"{progress.steps}-steps")
    for state in older:
        shutil.rmtree(state)


def _newest(folder: Path) -> Path | None:
    return max(folder.glob("*-steps"), key=lambda saved: int(saved.name.partition("-")[0]), default=None)


def _load(saved: Path, env_id: str) -> tuple[SAC, Progress]:
    model = SAC.load(saved / "model", env=gym.make(env_id), device="cpu")
    model.load_replay_buffer(saved / "replay")
    progress = Progress(**json.loads((saved / "progress.json").read_text()))
    # Loading seeds everything as at the start. The environment continues with another seed, for other first states.
    model.env.seed(model.seed + progress.steps)
    python, numpy, torchs = pickle.loads((saved / "numbers").read_bytes())
    random.setstate(python)
    np.random.set_state(numpy)  # noqa: NPY002
    torch.set_rng_state(torchs)
    return model, progress


def main() -> None:
    """Train SAC on a walker of MuJoCo, and print its figures as one JSON object."""
    env_id, seed, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    folder = Path(sys.argv[4]) if len(sys.argv) > 4 else None
    torch.set_num_threads(1)
    model, progress = train(env_id, seed, steps, folder)
    cpu_before = time.process_time()
    last = greedy_return(model, env_id, SCORING)
    found: dict[str, Any] = {
        "env_steps": progress.steps,
        "updates": model._n_updates,
        "seconds": round(progress.seconds, 1),
        "seconds_of_evaluations": round(progress.seconds_of_evaluations, 1),
        "mean_return": last,
        "num_episodes": len(SCORING),
        "cpu_seconds": round(progress.cpu_seconds + time.process_time() - cpu_before, 1),
        "curve": progress.curve,
        "library": f"stable-baselines3 {stable_baselines3.__version__}",
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
