"""Hindsight experience replay for the off-policy algorithms of Stable-Baselines3."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3.common.type_aliases import DictReplayBufferSamples
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from stable_baselines3.her import her_replay_buffer as sb3
from stable_baselines3.her.goal_selection_strategy import KEY_TO_GOAL_STRATEGY, GoalSelectionStrategy

from reverie import _checks
from reverie._goals import PARTS, rewards_of
from reverie.integrations.stable_baselines3 import infos as info_cells
from reverie.integrations.stable_baselines3.buffers import DictReplayBuffer, Servers
from reverie.integrations.stable_baselines3.episodes import GoalTrajectory
from reverie.tables import Compression
from reverie.types import Batch

__all__ = ["HerReplayBuffer"]

#: To let the table choose one goal of an item takes as long as to copy this many bytes of goals.
_CHOICE_BYTES = 1 << 14


class HerReplayBuffer(DictReplayBuffer, sb3.HerReplayBuffer):
    """Hindsight experience replay (Andrychowicz et al. 2017), for environments with goals.

    It takes the arguments of SB3's class, in the same order. A share of `1 - 1 / (n_sampled_goal + 1)` of each batch is
    virtual: the desired goal is one that the episode achieved, and the environment's `compute_reward` gives their
    reward. Goals are drawn when a batch is sampled. Each observation is stored once, and goals are references to
    observations.

    A transition can be sampled when its episode has ended. When the buffer is full, the oldest transitions leave one by
    one, and the rest of their episode stays.

    Args:
        buffer_size: the number of transitions of all environments. A server's table has its own `max_size`.
        observation_space: a Dict with `observation`, `achieved_goal` and `desired_goal`.
        action_space: the environment's.
        env: the environment, whose `compute_reward(achieved_goal, desired_goal, infos)` computes rewards of arrays.
        device, n_envs, optimize_memory_usage, handle_timeout_termination: as for `ReplayBuffer`.
        n_sampled_goal: the number of virtual transitions for each real one.
        goal_selection_strategy: "future" (a goal that the step or a later one achieved), "episode" or "final".
        copy_info_dict: stores the infos, and passes them to `compute_reward`; otherwise it is passed empty ones.
        info_bytes: the largest size of an info, as JSON.
        server, table, compression, seed: as for `ReplayBuffer`. All processes of a table use the same
            `goal_selection_strategy` and `copy_info_dict`.

    Raises:
        ValueError: as for `ReplayBuffer`; also for a space without goals, and for an unknown strategy.
        UnknownTableError: the server has no such table.
    """

    _trajectories: Sequence[GoalTrajectory]
    _empty = "no complete episode yet; raise learning_starts of the model above the steps of the longest episode"

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Dict,
        action_space: spaces.Space[Any],
        env: VecEnv,
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        n_sampled_goal: int = 4,
        goal_selection_strategy: GoalSelectionStrategy | str = "future",
        copy_info_dict: bool = False,
        *,
        info_bytes: int = 1024,
        server: Servers | None = None,
        table: str = "replay",
        compression: Compression | None = None,
        seed: int | None = None,
    ) -> None:
        self.env = env
        self.n_sampled_goal = _checks.count("n_sampled_goal", n_sampled_goal, 0)
        self.her_ratio = 1 - 1.0 / (self.n_sampled_goal + 1)
        self.goal_selection_strategy = _strategy(goal_selection_strategy)
        self.copy_info_dict, self.info_bytes = copy_info_dict, _checks.count("info_bytes", info_bytes, 2)
        # Chooses goals and the virtual ones among the transitions that the table draws.
        self._rng = np.random.default_rng(torch.initial_seed() % 2**64 if seed is None else seed)
        super().__init__(
            buffer_size,
            observation_space,
            action_space,
            device,
            n_envs,
            optimize_memory_usage,
            handle_timeout_termination,
            server=server,
            table=table,
            compression=compression,
            seed=seed,
        )

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> DictReplayBufferSamples:  # type: ignore[override]
        """Draws transitions with replacement, real and virtual ones in any order.

        Args:
            batch_size: the number of transitions.
            env: normalises observations and rewards, after the goals were replaced.

        Raises:
            ValueError: the buffer is in this process, and no episode has ended yet; or it was loaded, and has no
                environment (`set_env`).
        """
        batch, goals = self._draw(batch_size)
        # Draws of several servers are ordered by server, so the first rows are not a random choice.
        virtual = self._rng.permutation(batch_size)[: int(self.her_ratio * batch_size)]
        self._relabel(batch.data, goals, virtual)
        return DictReplayBufferSamples(**self._tensors(batch, env))

    def truncate_last_trajectory(self) -> None:
        """Ends the episodes of a loaded buffer. Their last steps stay as they are: no terminal state is invented.

        Without this call, an episode continues where the next observation is the last one that was stored.
        """
        if any(trajectory.num_open for trajectory in self._trajectories):
            warnings.warn(
                "the last episodes in the replay buffer are ended; to continue them, load it with "
                "truncate_last_traj=False",
                stacklevel=2,
            )
        for trajectory in self._trajectories:
            trajectory.cut()

    def _draw(self, batch_size: int) -> tuple[Batch, npt.NDArray[Any]]:
        """Transitions, and a goal `[B, ...]` for each."""
        if self.goal_selection_strategy == GoalSelectionStrategy.FINAL:
            batch = self._table.sample(batch_size, None)
            return batch, batch.data["goal"]
        goal = self.observation_space["achieved_goal"]
        longest = max(trajectory.longest for trajectory in self._trajectories)
        if longest * int(np.prod(goal.shape or (1,))) * np.dtype(goal.dtype).itemsize > _CHOICE_BYTES:
            batch = self._table.sample_cells(batch_size)
            return batch, batch.data["goal"][:, 0]
        # Goals are small: to read all of a transition, and to choose one here, is faster.
        batch = self._table.sample(batch_size, "values")
        lengths = batch.lengths["goal"] if isinstance(batch.lengths, dict) else batch.lengths
        chosen = np.cumsum(lengths) - lengths + self._rng.integers(0, lengths)
        return batch, batch.data["goal"][chosen]

    def _relabel(self, data: dict[str, Any], goals: npt.NDArray[Any], virtual: npt.NDArray[np.int64]) -> None:
        """Replaces the desired goals and the rewards of the virtual transitions, in place."""
        if not len(virtual):
            return
        achieved = data["next_observation"]["achieved_goal"][virtual]
        if self.env is None:
            raise ValueError("the replay buffer has no environment that computes rewards; call set_env(env) first")
        for observation in (data["observation"], data["next_observation"]):
            observation["desired_goal"][virtual] = goals[virtual]
        cells = data["info"][virtual] if self.copy_info_dict else None
        infos = [{}] * len(virtual) if cells is None else [info_cells.from_cell(cell) for cell in cells]
        desired = data["observation"]["desired_goal"][virtual]
        method = self.env.env_method

        def compute(*arguments: Any) -> Any:
            # All environments are alike, so the first one computes the rewards of all.
            return method("compute_reward", *arguments, indices=[0])[0]

        data["reward"][virtual] = rewards_of(compute, achieved, desired, infos)

    def _extras(self, info: dict[str, Any]) -> dict[str, Any]:
        return {"info": info_cells.to_cell(info, self.info_bytes)} if self.copy_info_dict else {}

    def _check_space(self) -> None:
        super()._check_space()
        missing = [name for name in PARTS if name not in self.observation_space.spaces]
        if missing:
            raise ValueError(f"HerReplayBuffer needs an environment with goals; its observations have no {missing}")
        achieved, desired = (self.observation_space[name] for name in PARTS[1:])
        if achieved.shape != desired.shape:
            raise ValueError(f"achieved_goal has the shape {achieved.shape}, and desired_goal {desired.shape}")

    def _new_trajectories(self) -> Sequence[GoalTrajectory]:
        capacity = max(self._table.max_size // self.n_envs, 1)
        strategy = self.goal_selection_strategy
        return [GoalTrajectory(self._table, capacity, strategy, self._priority) for _ in range(self.n_envs)]

    def __getstate__(self) -> dict[str, Any]:
        # Environments cannot be pickled. Episodes that have not ended are in no table yet.
        state = super().__getstate__()
        del state["env"]
        open_steps = [(trajectory.longest, trajectory.open_steps()) for trajectory in self._trajectories]
        return {**state, "_open_steps": open_steps}

    def __setstate__(self, state: dict[str, Any]) -> None:
        open_steps = state.pop("_open_steps")
        super().__setstate__(state)
        self.env = None
        for trajectory, (longest, steps) in zip(self._trajectories, open_steps, strict=True):
            trajectory.longest = longest
            if steps is not None:
                trajectory.restore(steps)


def _strategy(strategy: GoalSelectionStrategy | str) -> GoalSelectionStrategy:
    if isinstance(strategy, GoalSelectionStrategy):
        return strategy
    if strategy.lower() not in KEY_TO_GOAL_STRATEGY:
        raise ValueError(f"goal_selection_strategy must be one of {sorted(KEY_TO_GOAL_STRATEGY)}, got {strategy!r}")
    return KEY_TO_GOAL_STRATEGY[strategy.lower()]
