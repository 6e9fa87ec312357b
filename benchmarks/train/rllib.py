"""One RLlib DQN run (new stack) on CartPole-v1, judged as ours is; the last line of stdout is the result as JSON.

Settings: RLlib's own tuned example for this environment (dueling, double, prioritised, n from 2 to 5), with the
environment in the learner's process. An iteration is the 1,000 environment steps after which every contender is judged.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
import ray
import torch
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

from reverie.runners.reports.evaluation import Evaluator, confirmation_seeds, screening_seeds

TARGET = 475.0
EVALUATE_EVERY = 1_000


def build(seed: int) -> Any:
    config = (
        DQNConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0)
        .learners(num_learners=0)
        .training(
            lr=5e-4,
            train_batch_size_per_learner=32,
            n_step=(2, 5),
            double_q=True,
            dueling=True,
            epsilon=[(0, 1.0), (10_000, 0.02)],
            replay_buffer_config={
                "type": "PrioritizedEpisodeReplayBuffer",
                "capacity": 50_000,
                "alpha": 0.6,
                "beta": 0.4,
            },
        )
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_hiddens=[256],
                fcnet_activation="tanh",
                fcnet_bias_initializer="zeros_",
                head_fcnet_hiddens=[256],
                head_fcnet_bias_initializer="zeros_",
            )
        )
        .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=EVALUATE_EVERY)
        .debugging(seed=seed, log_level="ERROR")
    )
    return config.build_algo()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--until-max-steps", action="store_true")
    options = parser.parse_args()
    ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    algorithm = build(options.seed)
    torch.set_num_threads(options.threads)
    evaluator = Evaluator("CartPole-v1", 20)

    def act(obs: Any) -> Any:
        with torch.no_grad():
            batch = {"obs": torch.from_numpy(np.asarray(obs, np.float32))}
            return algorithm.get_module().forward_inference(batch)["actions"].numpy()

    def mean_return(seeds: tuple[int, ...]) -> float:
        return evaluator.evaluate(act, seeds).mean_return

    curve: list[tuple[int, float, float, float | None]] = []
    began, steps, trained = time.perf_counter(), 0, 0
    while steps < options.steps:
        result = algorithm.train()
        steps = int(result["env_runners"]["num_env_steps_sampled_lifetime"])
        if "learners" in result:
            trained = int(result["learners"]["__all_modules__"]["num_env_steps_trained_lifetime"])
        first = mean_return(screening_seeds(10))
        second = mean_return(confirmation_seeds(20)) if first >= TARGET else None
        curve.append((steps, time.perf_counter() - began, first, second))
        if second is not None and second >= TARGET and not options.until_max_steps:
            break
    seconds = time.perf_counter() - began
    print(
        json.dumps(
            {
                "seed": options.seed,
                "version": ray.__version__,
                "target": TARGET,
                "env_steps": steps,
                "seconds": seconds,
                "mean_return": mean_return(confirmation_seeds(20)),
                "trained_samples": trained,
                "curve": curve,
            }
        )
    )
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    main()
