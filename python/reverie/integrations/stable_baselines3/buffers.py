"""Replay buffers for the off-policy algorithms of Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3.common import buffers as sb3
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples
from stable_baselines3.common.vec_env import VecNormalize

from reverie import _checks, selectors
from reverie.client import Client
from reverie.integrations._replay_table import LocalTable, RemoteTable, check_alone, check_prioritized
from reverie.integrations._trajectories import FrameStack, Trajectory
from reverie.integrations.stable_baselines3.samples import PrioritizedSamples
from reverie.tables import Compression
from reverie.types import Batch

__all__ = ["DictReplayBuffer", "PrioritizedReplayBuffer", "ReplayBuffer"]

#: A server: an address, several, or a client.
Servers = str | Sequence[str] | Client


class ReplayBuffer(sb3.ReplayBuffer):
    """A replay buffer of Reverie as `replay_buffer_class` of an off-policy algorithm.

    It takes the arguments of SB3's class, in the same order, and samples the same tuples. Each observation is stored
    once, also as the next observation of the step before it, with either value of `optimize_memory_usage`, and timeouts
    are handled with both. With `n_steps`, a transition can be sampled when its steps are complete or its episode ended.

    Args:
        buffer_size: the number of transitions of all environments; the oldest leave first. A server's table has its own
            `max_size`, which counts instead.
        observation_space, action_space: the environment's.
        device: the device of sampled tensors.
        n_envs: the number of environments that step together.
        optimize_memory_usage: accepted for SB3's sake: observations are stored once in either case.
        handle_timeout_termination: sampled `dones` are 0 where an episode ended by its time limit.
        n_steps: the number of steps of a transition, as in SB3's `NStepReplayBuffer`.
        gamma: the discount factor of n-step returns, the model's; needed with `n_steps`. Samples then have `discounts`.
        frame_stack: observations are stacks of this number of frames, and each frame is stored once. Observations that
            do not continue the stack of the step before are stored whole.
        stack_axis: the axis of the observation along which frames follow each other; 0 for stacked images as SB3's
            policies see them, `[4, 84, 84]`.
        server: None keeps the transitions in this process. An address, several addresses, or a `reverie.Client` (for a
            token or TLS): on that server, which other processes can share.
        table: the table's name on the server.
        compression: of the table in this process, see `reverie.Table`; None means "auto".
        seed: of the draws in this process; None takes PyTorch's initial seed, which the model's `seed` sets.

    Raises:
        ValueError: for observation spaces of another class, options that contradict each other, or options of the table
            in this process together with `server`.
        UnknownTableError: the server has no such table.
    """

    #: The priority of new transitions.
    _priority: float | Literal["max"] = 1.0
    #: The reason why nothing can be sampled yet, and what to do.
    _empty = (
        "no complete transition yet; raise learning_starts of the model (a transition of n steps is complete n steps "
        "later)"
    )

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        n_steps: int = 1,
        gamma: float | None = None,
        frame_stack: int = 1,
        stack_axis: int = 0,
        server: Servers | None = None,
        table: str = "replay",
        compression: Compression | None = None,
        seed: int | None = None,
    ) -> None:
        # SB3's ReplayBuffer would allocate its arrays.
        sb3.BaseBuffer.__init__(self, buffer_size, observation_space, action_space, device, n_envs=n_envs)
        self._check_space()
        self.optimize_memory_usage, self.handle_timeout_termination = optimize_memory_usage, handle_timeout_termination
        self.n_steps, self.gamma = _checks.count("n_steps", n_steps, 1), gamma
        if self.n_steps > 1 and gamma is None:
            raise ValueError(f"n_steps={n_steps} needs gamma, the discount factor of the model")
        has_parts = isinstance(observation_space, spaces.Dict)
        if frame_stack > 1 and has_parts:
            raise ValueError("frame_stack is for observations that are one array, not for Dict spaces")
        self._stack = FrameStack(frame_stack, stack_axis, () if has_parts else self.obs_shape)
        if server is None:
            self._table: LocalTable | RemoteTable = LocalTable(
                {
                    "name": table,
                    "sampler": self._sampler(torch.initial_seed() % 2**64 if seed is None else seed),
                    "remover": selectors.Fifo(),
                    "max_size": max(buffer_size // n_envs, 1) * n_envs,
                    "compression": "auto" if compression is None else compression,
                },
                self._empty,
            )
        else:
            check_alone(seed=seed, compression=compression)
            self._table = self._remote(RemoteTable(server, table))
        self.buffer_size = max(self._table.max_size // n_envs, 1)
        self._trajectories = self._new_trajectories()

    @property
    def client(self) -> Client:
        """The client of the buffer's table, for its figures and for calls that SB3 does not make."""
        return self._table.client

    @property
    def dones(self) -> _Ends:  # type: ignore[override]
        """Marks of SB3 for the ends of trajectories that another `learn` does not continue."""
        return _Ends(self._trajectories)

    def add(
        self,
        obs: Any,
        next_obs: Any,
        action: npt.NDArray[Any],
        reward: npt.NDArray[Any],
        done: npt.NDArray[Any],
        infos: list[dict[str, Any]],
    ) -> None:
        """Adds a step of every environment.

        Args:
            obs, next_obs: `[n_envs, ...]`; where an episode ended, `next_obs` has its last observation.
            action, reward, done: `[n_envs, ...]`.
            infos: of each environment; `TimeLimit.truncated` is read.
        """
        obs, next_obs = self._cast(obs, self.observation_space), self._cast(next_obs, self.observation_space)
        action = np.asarray(action).reshape(self.n_envs, self.action_dim)
        action = action.astype(self._maybe_cast_dtype(self.action_space.dtype), copy=False)
        done, reward = np.asarray(done, np.bool_), np.asarray(reward, np.float32)
        timeout = np.zeros(self.n_envs, np.bool_)
        if self.handle_timeout_termination:
            timeout[:] = [info.get("TimeLimit.truncated", False) for info in infos]
        terminal, ended = (done & ~timeout).astype(np.float32), done | timeout
        for env, trajectory in enumerate(self._trajectories):
            rest = {"action": action[env], "reward": reward[env], "done": terminal[env], **self._extras(infos[env])}
            trajectory.add(_row(obs, env), _row(next_obs, env), rest, bool(ended[env]))
        self.pos += 1
        if self.pos == self.buffer_size:
            self.full, self.pos = True, 0

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> ReplayBufferSamples | DictReplayBufferSamples:  # type: ignore[override]
        """Draws transitions with replacement.

        Args:
            batch_size: the number of transitions.
            env: normalises observations and rewards.

        Raises:
            ValueError: the buffer is in this process, and has no transition yet.
        """
        columns = self._tensors(self._table.sample(batch_size, None if self.n_steps == 1 else "pad"), env)
        kind = DictReplayBufferSamples if isinstance(self.observation_space, spaces.Dict) else ReplayBufferSamples
        return kind(**columns)

    def size(self) -> int:
        """The number of steps of all environments whose transitions are in the table."""
        for trajectory in self._trajectories:
            trajectory.flush()
        return self.client.server_info()[self._table.name].current_size // self.n_envs

    def reset(self) -> None:
        """Drops all transitions; on a server also those of other processes."""
        super().reset()
        # New writers: what the old ones have sent is in the table, and dropped with it.
        for trajectory in self._trajectories:
            trajectory.flush()
        self._trajectories = self._new_trajectories()
        self.client.reset(self._table.name)

    def _check_space(self) -> None:
        if isinstance(self.observation_space, spaces.Dict):
            raise ValueError("ReplayBuffer is for observations that are one array; DictReplayBuffer is for Dict spaces")

    def _sampler(self, seed: int) -> selectors.Selector:
        """The sampler of the table in this process."""
        return selectors.Uniform(seed=seed)

    def _remote(self, table: RemoteTable) -> RemoteTable:
        """Checks the table of a server."""
        return table

    def _extras(self, info: dict[str, Any]) -> dict[str, Any]:
        """Further columns of a step."""
        return {}

    def _new_trajectories(self) -> Sequence[Trajectory]:
        return [Trajectory(self._table, self.n_steps, self._stack, self._priority) for _ in range(self.n_envs)]

    def _cast(self, observation: Any, space: spaces.Space[Any]) -> Any:
        """Observations of all environments with the dtypes of the space and the shapes that SB3's networks take."""
        if isinstance(space, spaces.Dict):
            return {name: self._cast(observation[name], part) for name, part in space.spaces.items()}
        array = np.asarray(observation, space.dtype)
        return array.reshape(self.n_envs, 1) if isinstance(space, spaces.Discrete) else array

    def _tensors(self, batch: Batch, env: VecNormalize | None) -> dict[str, Any]:
        """The fields of SB3's samples."""
        data = batch.data
        rewards, discounts = self._returns(data["reward"], batch.mask, env)
        return {
            "observations": self._observations(data["observation"], env),
            "actions": self._tensor(data["action"]),
            "next_observations": self._observations(data["next_observation"], env),
            "dones": self._tensor(data["done"].reshape(-1, 1)),
            "rewards": self._tensor(rewards),
            "discounts": None if discounts is None else self._tensor(discounts),
        }

    def _returns(
        self, rewards: npt.NDArray[np.float32], mask: Any, env: VecNormalize | None
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32] | None]:
        """The return and the discount of each transition, `[B, 1]`; no discount where the model has it.

        Each reward is normalised by itself: VecNormalize clips it.
        """
        if self.n_steps == 1:
            single: npt.NDArray[np.float32] = self._normalize_reward(rewards.reshape(-1, 1), env)
            return single, None if self.gamma is None else np.full(single.shape, self.gamma, np.float32)
        assert self.gamma is not None
        here = np.ones(rewards.shape, np.bool_) if mask is None else mask["reward"] if isinstance(mask, dict) else mask
        powers = np.float32(self.gamma) ** np.arange(rewards.shape[1], dtype=np.float32)
        returns = (self._normalize_reward(rewards, env) * powers * here).sum(axis=1, keepdims=True)
        return returns, np.float32(self.gamma) ** here.sum(axis=1, keepdims=True).astype(np.float32)

    def _observations(self, stored: Any, env: VecNormalize | None) -> Any:
        """Stored observations as normalised tensors."""
        joined = stored if self._stack.length == 1 else self._stack.join(stored)
        normalised = self._normalize_obs(joined, env)
        if isinstance(normalised, dict):
            return {name: self._tensor(part) for name, part in normalised.items()}
        return self._tensor(normalised)

    def _tensor(self, array: npt.NDArray[Any]) -> torch.Tensor:
        # A batch's arrays belong to the caller: they need no copy on the CPU.
        return self.to_torch(array, copy=False)

    def __getstate__(self) -> dict[str, Any]:
        for trajectory in self._trajectories:
            trajectory.flush()
        # Writers are of this process; the next observations begin new trajectories.
        return {name: value for name, value in self.__dict__.items() if name != "_trajectories"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._trajectories = self._new_trajectories()


class DictReplayBuffer(ReplayBuffer):
    """`ReplayBuffer` for environments with Dict observations."""

    def _check_space(self) -> None:
        if not isinstance(self.observation_space, spaces.Dict):
            raise ValueError(f"DictReplayBuffer is for Dict spaces, got {self.observation_space}; use ReplayBuffer")


class PrioritizedReplayBuffer(ReplayBuffer):
    """Prioritised replay (Schaul et al. 2016), for array and Dict observations.

    Samples are `PrioritizedSamples`, with importance weights and keys. New transitions get the largest priority in the
    table. `PrioritizedDQN` and `PrioritizedSAC` use the weights and update the priorities; other algorithms do neither.

    Args:
        alpha: the exponent of priorities, 0 for uniform draws; None means 0.6. A server's table has its own.
        beta: how much of the bias the weights correct, from 0 to 1, where `sample` is not given one.
        priority_eps: added to TD errors, so that no priority is 0.
        args, options: as for `ReplayBuffer`.

    Raises:
        ValueError: also for a server's table whose sampler has no priorities.
    """

    _priority = "max"

    def __init__(
        self, *args: Any, alpha: float | None = None, beta: float = 0.4, priority_eps: float = 1e-6, **options: Any
    ) -> None:
        if options.get("server") is not None:
            check_alone(alpha=alpha)
        self.alpha, self.beta, self.priority_eps = alpha, beta, priority_eps
        super().__init__(*args, **options)

    def sample(  # type: ignore[override]
        self, batch_size: int, env: VecNormalize | None = None, *, beta: float | None = None
    ) -> PrioritizedSamples:
        """Draws transitions by their priorities.

        Args:
            batch_size: the number of transitions.
            env: normalises observations and rewards.
            beta: of the weights; None takes the constructor's.

        Raises:
            ValueError: the buffer is in this process, and has no transition yet.
        """
        batch = self._table.sample(batch_size, None if self.n_steps == 1 else "pad")
        weights = batch.weights(self.beta if beta is None else beta).astype(np.float32).reshape(-1, 1)
        return PrioritizedSamples(**self._tensors(batch, env), weights=self._tensor(weights), keys=batch.info.key)

    def update_priorities(self, keys: npt.NDArray[np.int64], td_errors: npt.ArrayLike) -> None:
        """Sets the priorities of transitions to the absolute TD errors, plus `priority_eps`.

        Args:
            keys: of the transitions, `PrioritizedSamples.keys`; those of transitions that are gone are ignored.
            td_errors: `[N]` or `[N, 1]`.
        """
        priorities = np.abs(np.asarray(td_errors, np.float64)).reshape(-1) + self.priority_eps
        self._table.update_priorities(keys, priorities)

    def _check_space(self) -> None:
        """Takes every space."""

    def _sampler(self, seed: int) -> selectors.Selector:
        return selectors.Prioritized(0.6 if self.alpha is None else self.alpha, seed=seed)

    def _remote(self, table: RemoteTable) -> RemoteTable:
        check_prioritized(table)
        return table


class _Ends:
    """Stands for SB3's array of ends, where its algorithms write one value: at a new `learn`, for the newest step."""

    def __init__(self, trajectories: Sequence[Trajectory]) -> None:
        self._trajectories = trajectories

    def __setitem__(self, step: Any, ended: Any) -> None:
        """Ends the trajectories. Their last steps stay as they are: no terminal state is invented."""
        for trajectory in self._trajectories:
            trajectory.cut()


def _row(observations: Any, env: int) -> Any:
    """The observation of one environment."""
    if isinstance(observations, dict):
        return {name: _row(part, env) for name, part in observations.items()}
    return observations[env]
