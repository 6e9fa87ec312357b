"""Small environments with goals, on which learning fails without hindsight: `her` of agents.

Import the module to register them, or name it with the id: `reverie.agents.goal_tasks:ReverieBitFlips-v0`.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Goals = NDArray[Any]


class BitFlips(gymnasium.Env[Any, Any]):
    """Bits, of which an action flips one, and a goal of as many bits (Andrychowicz et al. 2017, section 3.1).

    A step costs 1 unless it achieves the goal, which terminates; episodes are cut off after as many steps as bits. A
    random policy meets the goal of 12 bits in about one of 400 episodes.
    """

    def __init__(self, num_bits: int = 12) -> None:
        self._num_bits = num_bits
        bits = spaces.MultiBinary(num_bits)
        self.observation_space = spaces.Dict({"observation": bits, "achieved_goal": bits, "desired_goal": bits})
        self.action_space = spaces.Discrete(num_bits)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Goals], dict[str, Any]]:
        """Random bits and another random goal."""
        super().reset(seed=seed)
        self._steps = 0
        self._bits, self._goal = self.np_random.integers(0, 2, (2, self._num_bits), dtype=np.int8)
        if (self._bits == self._goal).all():
            self._goal[0] ^= 1
        return self._observation(), {}

    def step(self, action: int) -> tuple[dict[str, Goals], float, bool, bool, dict[str, Any]]:
        """Flip a bit."""
        self._steps += 1
        self._bits[action] ^= 1
        over = self.compute_terminated(self._bits, self._goal, {})
        reward = float(self.compute_reward(self._bits, self._goal, {}))
        return self._observation(), reward, over, not over and self._steps >= self._num_bits, {}

    def compute_reward(self, achieved_goal: Goals, desired_goal: Goals, info: Any) -> Goals:
        """0 where the goals are the same, else -1, of goals `[..., num_bits]`."""
        rewards: Goals = (achieved_goal == desired_goal).all(axis=-1) - np.float32(1)
        return rewards

    def compute_terminated(self, achieved_goal: Goals, desired_goal: Goals, info: Any) -> bool:
        """Whether the goals are the same."""
        return bool((achieved_goal == desired_goal).all())

    def _observation(self) -> dict[str, Goals]:
        return {"observation": self._bits.copy(), "achieved_goal": self._bits.copy(), "desired_goal": self._goal.copy()}


class Reach(gymnasium.Env[Any, Any]):
    """A point in a box of side 2 that an action moves by at most 0.2 along each axis, and a place to reach.

    A step costs 1 unless the point is within 0.1 of the place, which ends nothing; episodes have 30 steps.
    """

    RADIUS, STRIDE, STEPS = 0.1, 0.2, 30

    def __init__(self, num_axes: int = 3) -> None:
        place = spaces.Box(-1.0, 1.0, (num_axes,), np.float32)
        self.observation_space = spaces.Dict({"observation": place, "achieved_goal": place, "desired_goal": place})
        self.action_space = spaces.Box(-1.0, 1.0, (num_axes,), np.float32)
        self._num_axes = num_axes

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Goals], dict[str, Any]]:
        """A random point and a random place."""
        super().reset(seed=seed)
        self._steps = 0
        self._point, self._goal = self.np_random.uniform(-1, 1, (2, self._num_axes)).astype(np.float32)
        return self._observation(), {}

    def step(self, action: Goals) -> tuple[dict[str, Goals], float, bool, bool, dict[str, Any]]:
        """Move the point."""
        self._steps += 1
        moved = self._point + self.STRIDE * np.clip(action, -1, 1)
        self._point = np.clip(moved, -1, 1).astype(np.float32)
        reward = float(self.compute_reward(self._point, self._goal, {}))
        return self._observation(), reward, False, self._steps >= self.STEPS, {}

    def compute_reward(self, achieved_goal: Goals, desired_goal: Goals, info: Any) -> Goals:
        """0 within the radius, else -1, of places `[..., num_axes]`."""
        distance = np.linalg.norm(achieved_goal - desired_goal, axis=-1)
        rewards: Goals = (distance <= self.RADIUS) - np.float32(1)
        return rewards

    def _observation(self) -> dict[str, Goals]:
        point = self._point.copy()
        return {"observation": point, "achieved_goal": point.copy(), "desired_goal": self._goal.copy()}


BIT_FLIPS = f"{__name__}:ReverieBitFlips-v0"
REACH = f"{__name__}:ReverieReach-v0"
for _name in ("BitFlips", "Reach"):
    if f"Reverie{_name}-v0" not in gymnasium.registry:
        gymnasium.register(f"Reverie{_name}-v0", f"{__name__}:{_name}")
