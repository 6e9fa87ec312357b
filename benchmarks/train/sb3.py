"""One Stable-Baselines3 DQN run on CartPole-v1, judged as ours is; the last line of stdout is the result as JSON.

Settings: rl-baselines3-zoo, hyperparams/dqn.yml, CartPole-v1. Nothing else is changed, the 50,000 steps over which its
exploration is laid out included.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import gymnasium
import stable_baselines3
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback

from reverie.runners.reports.evaluation import Evaluator, confirmation_seeds, screening_seeds

TARGET = 475.0
EVALUATE_EVERY = 1_000
ZOO: dict[str, Any] = {
    "policy": "MlpPolicy",
    "learning_rate": 2.3e-3,
    "batch_size": 64,
    "buffer_size": 100_000,
    "learning_starts": 1_000,
    "gamma": 0.99,
    "target_update_interval": 10,
    "train_freq": 256,
    "gradient_steps": 128,
    "exploration_fraction": 0.16,
    "exploration_final_eps": 0.04,
    "policy_kwargs": {"net_arch": [256, 256]},
}


class Judge(BaseCallback):
    """The greedy evaluator of our runner, every 1,000 environment steps."""

    def __init__(self, *, until_max_steps: bool) -> None:
        super().__init__()
        self.until_max_steps = until_max_steps
        self.evaluator = Evaluator("CartPole-v1", 20)
        self.curve: list[tuple[int, float, float, float | None]] = []
        self.began = 0.0

    def _on_training_start(self) -> None:
        self.began = time.perf_counter()

    def _on_step(self) -> bool:
        if self.num_timesteps % EVALUATE_EVERY:
            return True
        first = self.mean_return(screening_seeds(10))
        second = self.mean_return(confirmation_seeds(20)) if first >= TARGET else None
        self.curve.append((self.num_timesteps, time.perf_counter() - self.began, first, second))
        return self.until_max_steps or second is None or second < TARGET

    def mean_return(self, seeds: tuple[int, ...]) -> float:
        return self.evaluator.evaluate(lambda obs: self.model.predict(obs, deterministic=True)[0], seeds).mean_return


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--until-max-steps", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = DQN(env=gymnasium.make("CartPole-v1"), seed=options.seed, device="cpu", **ZOO)
    judge = Judge(until_max_steps=options.until_max_steps)
    model.learn(options.steps, callback=judge)
    seconds = time.perf_counter() - judge.began
    print(
        json.dumps(
            {
                "seed": options.seed,
                "version": stable_baselines3.__version__,
                "target": TARGET,
                "env_steps": model.num_timesteps,
                "seconds": seconds,
                "mean_return": judge.mean_return(confirmation_seeds(20)),
                "trained_samples": model._n_updates * ZOO["batch_size"],
                "curve": judge.curve,
            }
        )
    )


if __name__ == "__main__":
    main()
