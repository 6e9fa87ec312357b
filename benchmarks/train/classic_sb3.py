"""One run of Stable-Baselines3 or SBX for `classic`; the last line of stdout is the result as JSON.

SBX (Raffin) has SB3's interface, and updates that JAX compiles.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from importlib.metadata import version
from typing import Any

import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

RELU = {"sb3": ("torch.nn", "ReLU"), "sbx": ("flax.linen", "relu")}
"""The activation of every network here, by library. The default of PPO would be another one."""
PACKAGES = {"sb3": ("stable_baselines3", "stable-baselines3"), "sbx": ("sbx", "sbx-rl")}
"""The imported module and the installed package of each library."""


class Clock(BaseCallback):
    """Notes the processor time at the end of the warm-up."""

    def __init__(self, warm_up: int) -> None:
        super().__init__()
        self.warm_up = warm_up
        self.began: tuple[int, int, float] | None = None

    def _on_step(self) -> bool:
        if self.began is None and self.num_timesteps >= self.warm_up:
            self.began = (self.num_timesteps, self.model._n_updates, time.process_time())
        return True


def settings(wanted: dict[str, Any]) -> dict[str, Any]:
    """Arguments of the algorithm."""
    module, name = RELU[wanted["library"]]
    relu = getattr(importlib.import_module(module), name)
    networks = {"net_arch": wanted["hidden"], "activation_fn": relu}
    own: dict[str, Any] = {"batch_size": wanted["batch"], "policy_kwargs": networks}
    if wanted["agent"] == "ppo":
        return {**own, "n_steps": wanted["unroll"], "n_epochs": wanted["epochs"], "learning_rate": 1e-3}
    own |= {"buffer_size": 50_000, "learning_starts": wanted["learning_starts"], "train_freq": 1}
    own["gradient_steps"] = max(1, wanted["num_envs"] // wanted["steps_per_update"])
    return own


def main() -> None:
    wanted = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    module, package = PACKAGES[wanted["library"]]
    algorithm = getattr(importlib.import_module(module), wanted["agent"].upper())
    env = make_vec_env(wanted["env"], n_envs=wanted["num_envs"], seed=0)
    device = {"device": "cpu"} if wanted["library"] == "sb3" else {}
    model = algorithm("MlpPolicy", env, seed=0, **settings(wanted), **device)
    clock = Clock(wanted["warm_up"])
    model.learn(wanted["warm_up"] + wanted["steps"], callback=clock)
    ended = time.process_time()
    assert clock.began is not None
    steps, updates, began = clock.began
    # PPO counts epochs, of which each has all minibatches.
    per_count = wanted["num_envs"] * wanted["unroll"] / wanted["batch"] if wanted["agent"] == "ppo" else 1
    print(
        json.dumps(
            {
                "version": version(package),
                "steps_per_second": (model.num_timesteps - steps) / (ended - began),
                "updates_per_step": (model._n_updates - updates) * per_count / (model.num_timesteps - steps),
            }
        )
    )


if __name__ == "__main__":
    main()
