"""Writes real Pong frames `[count, 84, 84]` uint8 to a .npy file: `pong.py PATH COUNT`. Random actions, seed 0."""

from __future__ import annotations

import os
import sys

import numpy as np
from ale_py.vector_env import AtariVectorEnv

path, count = sys.argv[1], int(sys.argv[2])
env = AtariVectorEnv("pong", num_envs=1, stack_num=1, num_threads=1)
rng = np.random.default_rng(0)
obs, _ = env.reset(seed=0)
frames = np.empty((count, 84, 84), dtype=np.uint8)
for k in range(count):
    frames[k] = obs[0, 0]
    obs, *_ = env.step(rng.integers(0, 6, 1))
np.save(path + ".part.npy", frames)
os.replace(path + ".part.npy", path)
