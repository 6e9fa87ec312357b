"""Stable-Baselines3's SAC on a walker of MuJoCo: `python -m workers.walkers_sb3 HalfCheetah-v5 SEED STEPS`.

Settings of its zoo (rl-baselines3-zoo, `sac.yml`, Hopper and HalfCheetah: `learning_starts` 10,000, otherwise the
library's). Every 10,000 steps the mean return of ten greedy episodes, on the seeds that Reverie's evaluations have; at
the end that of a hundred others. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import time

import gymnasium as gym
import numpy as np
import stable_baselines3
import torch
from stable_baselines3 import SAC

EVERY, SCREENING, SCORING = 10_000, range(10_000, 10_010), range(30_000, 30_100)
"""Steps between two evaluations, and seeds of Reverie's."""


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


def main() -> None:
    """See the module's docstring."""
    env_id, seed, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    model = SAC("MlpPolicy", env_id, seed=seed, device="cpu", learning_starts=10_000)
    start, cpu, curve, evaluating = time.perf_counter(), time.process_time(), [], 0.0
    for done in range(EVERY, steps + 1, EVERY):
        model.learn(EVERY, reset_num_timesteps=done == EVERY)
        began = time.perf_counter()
        curve.append([done, greedy_return(model, env_id, SCREENING)])
        evaluating += time.perf_counter() - began
        print(f"{done:,} steps, {time.perf_counter() - start:.0f} s: {curve[-1][1]:.1f}", file=sys.stderr, flush=True)
    seconds = time.perf_counter() - start
    last = greedy_return(model, env_id, SCORING)
    print(
        json.dumps(
            {
                "env_steps": steps,
                "updates": model._n_updates,
                "seconds": round(seconds, 1),
                "seconds_of_evaluations": round(evaluating, 1),
                "mean_return": last,
                "num_episodes": len(SCORING),
                "cpu_seconds": round(time.process_time() - cpu, 1),
                "curve": curve,
                "library": f"stable-baselines3 {stable_baselines3.__version__}",
            }
        )
    )


if __name__ == "__main__":
    main()
