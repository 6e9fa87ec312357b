"""Stable-Baselines3's DQN on Pong with its zoo's Atari settings; the last line of stdout is the result as JSON.

Settings: rl-baselines3-zoo, hyperparams/dqn.yml, atari: batches of 32 every four steps are eight samples a step. The
replay is smaller (10,000): the zoo's takes 5 GB, and its size does not change the time of a step.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import ale_py
import gymnasium
import stable_baselines3
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack

BATCH, LEARNING_STARTS, WARM_UP = 32, 2_000, 200


class Clock(BaseCallback):
    """Ends the run when the seconds after the warm-up are over."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.limit, self.began, self.steps, self.updates, self.seconds = seconds, 0.0, 0, 0, 0.0

    def _on_step(self) -> bool:
        if self.num_timesteps < LEARNING_STARTS + WARM_UP:
            return True
        now = time.perf_counter()
        if not self.began:
            self.began, self.steps, self.updates = now, self.num_timesteps, self.model._n_updates
        self.seconds = now - self.began
        return self.seconds < self.limit


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    gymnasium.register_envs(ale_py)
    env: Any = VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=1, seed=0), n_stack=4)
    model = DQN(
        "CnnPolicy",
        env,
        learning_rate=1e-4,
        batch_size=BATCH,
        buffer_size=10_000,
        learning_starts=LEARNING_STARTS,
        target_update_interval=1_000,
        train_freq=4,
        gradient_steps=1,
        exploration_fraction=0.1,
        exploration_final_eps=0.01,
        seed=0,
        device="cpu",
    )
    clock = Clock(options.seconds)
    model.learn(10_000_000, callback=clock)
    print(
        json.dumps(
            {
                "version": stable_baselines3.__version__,
                "what": f"Nature 1.7 M, {BATCH}, uniform",
                "env_steps_per_second": (model.num_timesteps - clock.steps) / clock.seconds,
                "samples_per_second": (model._n_updates - clock.updates) * BATCH / clock.seconds,
            }
        )
    )


if __name__ == "__main__":
    main()
