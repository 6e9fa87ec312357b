"""RLlib's DQN (new stack, dueling, double, prioritised, n-step) on Pong; the last line of stdout is the result as JSON.

Batches of 512 with `training_intensity` 8, its fastest of those that were tried; environments in the driver's process.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import ale_py
import gymnasium
import ray
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.wrappers.atari_wrappers import wrap_atari_for_new_api_stack
from ray.tune.registry import register_env

BATCH, LEARNING_STARTS, INTENSITY = 512, 2_000, 8.0


def make_env(config: dict[str, Any]) -> Any:
    gymnasium.register_envs(ale_py)
    return wrap_atari_for_new_api_stack(gymnasium.make("ALE/Pong-v5", frameskip=1), framestack=4, dim=84)


def steps_of(result: dict[str, Any]) -> int:
    return int(result["env_runners"]["num_env_steps_sampled_lifetime"])


def trained_of(result: dict[str, Any]) -> int:
    return int(result["learners"]["__all_modules__"]["num_env_steps_trained_lifetime"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    register_env("pong", make_env)
    config = (
        DQNConfig()
        .environment("pong")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .learners(num_learners=0)
        .training(
            lr=1e-4,
            train_batch_size_per_learner=BATCH,
            training_intensity=INTENSITY,
            num_steps_sampled_before_learning_starts=LEARNING_STARTS,
            target_network_update_freq=8_000,
            n_step=3,
            double_q=True,
            dueling=True,
            replay_buffer_config={
                "type": "PrioritizedEpisodeReplayBuffer",
                "capacity": 20_000,
                "alpha": 0.6,
                "beta": 0.4,
            },
        )
        .rl_module(
            model_config=DefaultModelConfig(
                conv_filters=[[32, 8, 4], [64, 4, 2], [64, 3, 1]],
                conv_activation="relu",
                head_fcnet_hiddens=[512],
                head_fcnet_activation="relu",
            )
        )
        .reporting(min_time_s_per_iteration=2, min_sample_timesteps_per_iteration=1)
    )
    algorithm = config.build_algo()
    result = algorithm.train()
    while "learners" not in result or steps_of(result) < LEARNING_STARTS + BATCH:
        result = algorithm.train()
    began, steps, trained = time.perf_counter(), steps_of(result), trained_of(result)
    while time.perf_counter() - began < options.seconds:
        result = algorithm.train()
    seconds = time.perf_counter() - began
    print(
        json.dumps(
            {
                "version": ray.__version__,
                "what": f"dueling, {BATCH}, prioritised, n = 3",
                "env_steps_per_second": (steps_of(result) - steps) / seconds,
                "samples_per_second": (trained_of(result) - trained) / seconds,
            }
        )
    )
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    main()
