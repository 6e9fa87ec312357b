"""Replay buffers for the off-policy algorithms of tianshou."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt
from tianshou.data import Batch, ReplayBufferManager, to_numpy

from reverie import _checks, rate_limiters, selectors
from reverie.client import Client
from reverie.errors import DeadlineExceededError
from reverie.integrations._replay_table import RemoteTable
from reverie.integrations._trajectories import FrameStack, copied
from reverie.integrations.tianshou.episodes import BufferEpisodes, are_numbers
from reverie.integrations.tianshou.windows import (
    STEP,
    StepWindows,
    batch_of,
    laid_out,
    nest_of,
    refuse_nan,
    row_of,
    rows_equal,
    set_rows,
    zeros_like_rows,
)
from reverie.server import Server
from reverie.tables import Compression, Table

__all__ = ["PrioritizedReplayBuffer", "ReplayBuffer"]

#: The columns of observations of an item; the last one only with several steps.
_OBSERVATIONS = ("obs", "obs_next", "obs_last")


class ReplayBuffer(ReplayBufferManager):  # type: ignore[misc]
    """A replay buffer of Reverie for tianshou's collectors and off-policy algorithms (DQN, SAC, TD3, DDPG and others).

    It takes the place of `VectorReplayBuffer`. Indices are those of the newest sample: `next`, `unfinished_index`,
    `rew`, `done` and `buffer[indices]` work on the windows that it drew, which is what n-step returns need. A collector
    also reads the episode that has just ended: it gets all columns but the observations. `info` and `policy` are not
    stored. Methods that need all transitions by index raise NotImplementedError: on-policy algorithms
    and `HERReplayBuffer` need them.

    Args:
        total_size: the number of transitions of all environments; a server's table has its own `max_size`.
        buffer_num: the number of environments.
        n_step: the `n_step_return_horizon` of the algorithm. A step can be sampled when as many followed it, or when
            its episode ended.
        frame_stack: observations are stacks of this number of frames, and each frame is stored once. Observations that
            do not continue the stack of the step before are stored whole.
        stack_axis: the axis of one environment's observation along which frames follow each other.
        stack_num, save_only_last_obs: tianshou's names for `frame_stack`, with the stack along the first axis; only
            together.
        ignore_obs_next: accepted for tianshou's sake: an observation is stored once in either case, and the last one of
            an episode is sampled as it was.
        server: None keeps the transitions in this process. An address, several, or a `reverie.Client`: on that server.
        table: the table's name on the server.
        compression: of the table in this process.
        seed: of the draws in this process.

    Raises:
        ValueError: for sizes below 1, options that contradict each other, or options
            of the table in this process together with `server`.
        UnknownTableError: the server has no such table.
    """

    #: The priority of new items.
    _priority: float | Literal["max"] = 1.0

    def __init__(
        self,
        total_size: int,
        buffer_num: int = 1,
        *,
        n_step: int = 1,
        frame_stack: int = 1,
        stack_axis: int = 0,
        stack_num: int = 1,
        save_only_last_obs: bool = False,
        ignore_obs_next: bool = False,
        server: str | Sequence[str] | Client | None = None,
        table: str = "replay",
        compression: Compression | None = None,
        seed: int | None = None,
    ) -> None:
        # tianshou's own __init__ makes a buffer for each environment.
        self.buffer_num = _checks.count("buffer_num", buffer_num, 1)
        self.n_step, self.table = _checks.count("n_step", n_step, 1), table
        self.stack_num, self._save_obs_next = 1, True
        self.options: dict[str, Any] = {}
        self._local = server is None
        if server is None:
            made = Table(
                table,
                self._sampler(seed),
                selectors.Fifo(),
                max_size=_checks.count("total_size", total_size, 1),
                rate_limiter=rate_limiters.MinSize(1),
                compression="auto" if compression is None else compression,
            )
            self.client = Server([made], listen=False).client()
        else:
            for name, value in (("compression", compression), ("seed", seed)):
                if value is not None:
                    raise ValueError(f"{name} is an option of the table in this process; the server's has its own")
            self.client = server if isinstance(server, Client) else Client(server)
        self._table = RemoteTable(self.client, table)  # Raises UnknownTableError.
        self.maxsize = self._table.max_size
        self._stack = FrameStack(*_stacked(frame_stack, stack_num, save_only_last_obs, stack_axis), None)
        self._begin()

    def _begin(self) -> None:
        num = self.buffer_num
        #: The windows of each environment, made at the first `add`, which shows the shape of observations.
        self._windows: list[StepWindows] = []
        #: The observation behind the newest step of each environment.
        self._newest: Any = None
        self._episodes, self._order = BufferEpisodes(num), list(range(num))
        self._observations: dict[str, Any] = {}
        self._meta, self._keys, self._lengths = Batch(), np.zeros(0, np.int64), np.zeros(0, np.int64)

    def _sampler(self, seed: int | None) -> selectors.Selector:
        return selectors.Uniform(seed=seed)

    def __len__(self) -> int:
        """The number of steps that can be sampled. Waits until those that were added are in the table."""
        for windows in self._windows:
            windows.flush()
        return self.client.server_info()[self.table].current_size

    def add(
        self, batch: Any, buffer_ids: npt.NDArray[np.int64] | list[int] | None = None
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
        """Adds a step of each environment in `buffer_ids`; None stands for all.

        Returns:
            for each of them the number of the step, the return and the length of the episode that it ended (else 0),
            and the number of the step at which its episode began.

        Raises:
            ValueError: for NaN in an observation or a reward, or an environment that is named twice.
        """
        ids = self._order if buffer_ids is None else np.asarray(buffer_ids).tolist()
        if len(set(ids)) < len(ids):
            raise ValueError(f"buffer_ids names an environment twice: {ids}")
        obs, obs_next = nest_of(batch.obs), nest_of(batch.obs_next)
        columns = {name: np.asarray(batch[name]) for name in STEP}
        columns["rew"] = columns["rew"].astype(np.float64)
        ends = (columns["terminated"] | columns["truncated"]).tolist()
        follows = self._follows(obs, ids)
        if not all(follows):
            refuse_nan("obs", obs)  # Otherwise they equal observations that were checked.
        refuse_nan("obs_next", obs_next)
        refuse_nan("rew", columns["rew"])
        if not self._windows:
            self._make_windows(row_of(obs, 0))
        found = []
        try:
            for row, env in enumerate(ids):
                rest = {name: column[row] for name, column in columns.items()}
                windows, ended, known = self._windows[env], ends[row], follows[row]
                if not known:
                    windows.cut()
                windows.add(row_of(obs, row), row_of(obs_next, row), rest, ended, follows=known, followed=True)
                found.append(self._episodes.add(env, rest, ended))
            self._remember(obs_next, ids)
        except BaseException:
            # Some environments have the step and some do not: the next step of each begins a trajectory of its own.
            self._newest = None
            self._episodes.begin_again()
            raise
        numbers, returns, lengths, starts = (np.array(column) for column in zip(*found, strict=True))
        return numbers, returns, lengths, starts

    def _make_windows(self, observation: Any) -> None:
        stack, table = self._stack.of(observation), self._table
        self._windows = [StepWindows(table, self.n_step, stack, self._priority) for _ in range(self.buffer_num)]

    def _follows(self, obs: Any, ids: list[int]) -> list[bool]:
        """Whether each environment continues an episode: its observation is the one after its step before."""
        if self._newest is None:
            return [False] * len(ids)
        newest = self._newest if ids == self._order else row_of(self._newest, ids)
        ended = self._episodes.ended
        return [same and not ended[env] for env, same in zip(ids, rows_equal(obs, newest).tolist(), strict=True)]

    def _remember(self, obs_next: Any, ids: list[int]) -> None:
        """Keeps the newest observation of each environment, for `_follows`: one copy for all."""
        if ids == self._order:
            self._newest = copied(obs_next)
        else:
            if self._newest is None:
                self._newest = zeros_like_rows(obs_next, self.buffer_num)
            set_rows(self._newest, np.array(ids), obs_next)

    def sample(self, batch_size: int | None) -> tuple[Any, npt.NDArray[np.int64]]:
        """Draws steps with replacement.

        Args:
            batch_size: the number of steps, at least 1.

        Returns:
            the steps, and their indices, which are valid until the next call.

        Raises:
            ValueError: for all steps (None or 0), or where the buffer is in this process and none is complete.
        """
        if not batch_size or batch_size < 0:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}: a sample of all steps is not supported")
        try:
            ragged: Any = None if self.n_step == 1 else "pad"
            drawn = self.client.sample_batch(
                self.table, batch_size, ragged=ragged, timeout=0.0 if self._local else None
            )
        except DeadlineExceededError as error:
            if not self._local:
                raise
            raise ValueError(
                "the replay buffer has no complete step yet; collect more steps before the update"
            ) from error
        n, data = self.n_step, dict(drawn.data)
        self._observations = {name: batch_of(self._joined(data.pop(name))) for name in _OBSERVATIONS if name in data}
        here = None if drawn.mask is None else _mask(drawn.mask, "rew")
        self._lengths = np.full(batch_size, data["rew"].shape[1] if n > 1 else 1) if here is None else here.sum(axis=1)
        columns = {name: laid_out(data[name], n) for name in STEP}
        columns["done"] = columns["terminated"] | columns["truncated"]
        self._meta, self._keys = batch_of(columns), drawn.info.key
        indices = np.arange(batch_size) * n
        return self._rows(indices, drawn), indices

    def _joined(self, stored: Any) -> Any:
        return stored if self._stack.length == 1 else self._stack.join(stored)

    def _rows(self, indices: npt.NDArray[np.int64], drawn: Any) -> Any:
        """The batch of a sample."""
        return self[indices]

    def next(self, index: int | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The index of the next step of the same window; that of its last step stays."""
        index = np.asarray(index)
        return index + (index % self.n_step + 1 < self._lengths[index // self.n_step])

    def prev(self, index: int | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The index of the step before in the same window; that of its first step stays."""
        index = np.asarray(index)
        return index - (index % self.n_step > 0)

    def unfinished_index(self) -> npt.NDArray[np.int64]:
        """The last steps of windows that do not end with their episode."""
        last = np.arange(len(self._lengths)) * self.n_step + self._lengths - 1
        return last[~self._meta.done[last]] if len(last) else last

    def get_buffer_indices(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """The numbers of steps from `start` to `stop`, which `add` gave, of an environment's newest episode."""
        return np.arange(start, stop)

    def __getitem__(self, index: Any) -> Any:
        """Steps of the newest sample; or, by the numbers that `add` gave, of the newest episode of an environment.

        A window of several steps gives the first one, and the last one without `obs`, as n-step updates read them.
        Arrays of all windows in their order are those that were drawn, without a copy.

        Raises:
            ValueError: for a step between them, or of an episode before the newest one.
        """
        if isinstance(index, slice):
            self._refuse()
        index = np.asarray(index)
        if are_numbers(index):
            return self._episodes[index]
        rows, place = (index, 0) if self.n_step == 1 else np.divmod(index, self.n_step)
        whole = rows.shape == self._keys.shape and bool((rows == np.arange(len(rows))).all())
        names = {"obs": "obs", "obs_next": "obs_next"}
        if np.any(place):
            if (place != self._lengths[rows] - 1).any():
                raise ValueError(
                    f"observations inside of a window were not drawn: n_step={self.n_step} of the buffer must be the "
                    "n_step_return_horizon of the algorithm"
                )
            names = {"obs_next": "obs_last"}
        found = {
            name: self._observations[drawn] if whole else self._observations[drawn][rows]
            for name, drawn in names.items()
        }
        columns = self._meta.__dict__
        if not (whole and self.n_step == 1):
            columns = {name: column[index] for name, column in columns.items()}
        return batch_of({**found, **columns, "info": Batch(), "policy": Batch()})

    def hasnull(self) -> bool:
        """False: `add` refuses NaN."""
        return False

    def reset(self, keep_statistics: bool = False) -> None:
        """Drops all steps; on a server also those of other processes."""
        for windows in self._windows:
            windows.cut()
            windows.flush()
        episodes = self._episodes
        self._begin()
        if keep_statistics:
            episodes.begin_again()
            self._episodes = episodes
        self.client.reset(self.table)

    def _refuse(self, *args: Any, **options: Any) -> NoReturn:
        raise NotImplementedError(
            "a replay buffer of Reverie has no index of all transitions, and is not a file: take samples, and "
            "checkpoints of its server"
        )

    sample_indices = save_hdf5 = set_batch = update = set_array_at_key = dropnull = _refuse
    isnull = __getstate__ = _refuse


class PrioritizedReplayBuffer(ReplayBuffer):
    """`ReplayBuffer` with priorities (Schaul et al. 2016): samples have `weight`, and updates become priorities.

    Args:
        alpha: the exponent of priorities; None means 0.6. A server's table has its own.
        beta: how much of the bias the weights correct.
        args, options: as for `ReplayBuffer`.

    Raises:
        ValueError: also for a server's table whose sampler has no priorities.
    """

    _priority = "max"

    def __init__(self, *args: Any, alpha: float | None = None, beta: float = 0.4, **options: Any) -> None:
        if alpha is not None and options.get("server") is not None:
            raise ValueError("alpha is an option of the table in this process; the server's has its own")
        self._alpha, self._beta = 0.6 if alpha is None else alpha, beta
        super().__init__(*args, **options)
        sampler = self.client.server_info()[self.table].sampler_options
        if not isinstance(sampler, selectors.Prioritized):
            raise ValueError(
                f"table '{self.table}' samples by {sampler!r}, and not by reverie.selectors.Prioritized(...)"
            )

    def _sampler(self, seed: int | None) -> selectors.Selector:
        return selectors.Prioritized(self._alpha, seed=seed)

    def _rows(self, indices: npt.NDArray[np.int64], drawn: Any) -> Any:
        batch = self[indices]
        batch.weight = drawn.weights(self._beta)
        return batch

    def update_weight(self, index: npt.NDArray[np.int64], new_weight: Any) -> None:
        """Sets the priorities of steps of the newest sample to the absolute values, plus a small number."""
        priorities = np.abs(np.asarray(to_numpy(new_weight), np.float64)).reshape(-1) + np.finfo(np.float32).eps
        keys = self._keys[np.asarray(index) // self.n_step]
        self.client.update_priorities(self.table, keys, priorities)

    def set_beta(self, beta: float) -> None:
        """Sets the exponent of the weights."""
        self._beta = beta


def _stacked(frame_stack: int, stack_num: int, save_only_last_obs: bool, stack_axis: int) -> tuple[int, int]:
    """The length and the axis of stacks, from options of both names."""
    if (stack_num, save_only_last_obs) == (1, False):
        return frame_stack, stack_axis
    if stack_num == 1 or not save_only_last_obs:
        raise ValueError(
            f"stack_num={stack_num} and save_only_last_obs={save_only_last_obs} are supported together only, for "
            "observations that are stacks of frames; frame_stack stands for both"
        )
    if frame_stack != 1 or stack_axis != 0:
        raise ValueError("pass frame_stack and stack_axis, or stack_num and save_only_last_obs, and not both")
    return stack_num, 0


def _mask(mask: Any, name: str) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = mask[name] if isinstance(mask, dict) else mask
    return found
