"""Vectors of environments for tests: numbered observations in every autoreset mode, and nested ones."""

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

MODES = ("NEXT_STEP", "SAME_STEP", "DISABLED")


class Counting(VectorEnv):
    """Observations are [seed of the environment + 1000 * episode, step]; environment i has episodes of 2 + i steps.

    Even episodes terminate, odd ones are truncated. The reward is the step after the action. One memory serves all
    observations. An action of a reset is never looked at; others must be of the space, in its dtype.
    """

    def __init__(self, num_envs, mode):
        self.num_envs, self.mode, self.closed_times = num_envs, AutoresetMode[mode], 0
        self.metadata = {"autoreset_mode": self.mode}
        self.single_observation_space = spaces.Box(-1e6, 1e6, (2,), np.float32)
        self.single_action_space = spaces.Discrete(2, dtype=np.int32)
        self.observation_space = spaces.Box(-1e6, 1e6, (num_envs, 2), np.float32)
        self.action_space = spaces.MultiDiscrete([2] * num_envs, dtype=np.int32)
        self.lengths = 2 + np.arange(num_envs)
        self.obs, self.over = np.zeros((num_envs, 2), np.float32), np.zeros(num_envs, bool)

    def reset(self, *, seed=None, options=None):
        if options is not None:
            self._begin(options["reset_mask"])
            self.over &= ~options["reset_mask"]
            return self.obs, {}
        self.seeds = (0 if seed is None else seed) + np.arange(self.num_envs)
        self.obs[:, 0], self.obs[:, 1], self.over[:] = self.seeds, 0, False
        return self.obs, {}

    def _begin(self, which):
        self.obs[which, 0] += 1000
        self.obs[which, 1] = 0

    def step(self, actions):
        assert actions.dtype == np.int32
        assert self.action_space.contains(actions)
        assert self.mode is AutoresetMode.NEXT_STEP or not self.over.any()
        resets = self.over.copy()
        self.obs[~resets, 1] += 1
        self._begin(resets)
        over, info = (self.obs[:, 1] == self.lengths) & ~resets, {}
        even = self.obs[:, 0] // 1000 % 2 == 0
        reward = np.where(resets, 0, self.obs[:, 1]).astype(np.float32)
        if self.mode is AutoresetMode.SAME_STEP:
            info = {"final_obs": np.array([row.copy() if o else None for row, o in zip(self.obs, over)], object)}  # noqa: B905
            self._begin(over)
        else:
            self.over = over
        return self.obs, reward, over & even, over & ~even, info


def of_mode(mode):
    return f"{__name__}:Counting(mode={mode!r})"


def next_step(num_envs):
    return Counting(num_envs, "NEXT_STEP")


NEST = spaces.Dict({"at": spaces.Box(-1, 1, (2,), np.float64), "key": spaces.Discrete(3, start=4)})


class Nested(gymnasium.Env):
    observation_space, action_space = NEST, spaces.Box(-2, 2, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return {"at": np.array([0.0, 0.5]), "key": np.int64(4)}, {}

    def step(self, action):
        self.t += 1
        return {"at": np.array([self.t / 8, 0.5]), "key": np.int64(4 + self.t % 3)}, 1.0, False, self.t == 4, {}
