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
from reverie.integrations.tianshou.windows import StepWindows, nest_of
from reverie.server import Server
from reverie.tables import Compression, Table

__all__ = ["PrioritizedReplayBuffer", "ReplayBuffer"]

_STEP = ("act", "rew", "terminated", "truncated")
#: The numbers of an environment's steps begin at a multiple of this; indices of a sample are smaller.
_STEPS = 1 << 40


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
        server: None keeps the transitions in this process. An address, several, or a `reverie.Client`: on that server.
        table: the table's name on the server.
        compression: of the table in this process.
        seed: of the draws in this process.

    Raises:
        ValueError: for sizes below 1, or options of the table in this process together with `server`.
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
            self.client.can_insert(table)  # Raises UnknownTableError.
        self.maxsize = self.client.server_info()[table].max_size
        self._begin()

    def _begin(self) -> None:
        num = self.buffer_num
        self._windows = [StepWindows(self.client, self.table, self.n_step, self._priority) for _ in range(num)]
        self._steps, self._ep_start = np.zeros(num, np.int64), np.zeros(num, np.int64)
        self._returns = np.zeros(num)
        #: The steps of the newest episode of each environment, without observations.
        self._episodes: list[list[dict[str, Any]]] = [[] for _ in range(num)]
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
            ValueError: for NaN in an observation or a reward.
        """
        ids = np.arange(self.buffer_num) if buffer_ids is None else np.asarray(buffer_ids)
        obs, obs_next = nest_of(batch.obs), nest_of(batch.obs_next)
        columns = {name: np.asarray(batch[name]) for name in _STEP}
        columns["rew"] = columns["rew"].astype(np.float64)
        for name, column in (("obs", obs), ("obs_next", obs_next), ("rew", columns["rew"])):
            _refuse_nan(name, column)
        ends = columns["terminated"] | columns["truncated"]
        found: list[tuple[int, float, int, int]] = []
        for row, env in enumerate(ids):
            rest = {name: column[row] for name, column in columns.items()}
            self._windows[env].add(_row(obs, row), _row(obs_next, row), rest)
            self._returns[env] += rest["rew"]
            number, start = (int(counts[env]) + _STEPS * (int(env) + 1) for counts in (self._steps, self._ep_start))
            if number == start:
                self._episodes[env].clear()
            self._episodes[env].append(rest)
            self._steps[env] += 1
            length = number + 1 - start
            found.append((number, float(self._returns[env]), length, start) if ends[row] else (number, 0.0, 0, start))
            if ends[row]:
                self._returns[env], self._ep_start[env] = 0.0, self._steps[env]
        numbers, returns, lengths, starts = (np.array(column) for column in zip(*found, strict=True))
        return numbers, returns, lengths, starts

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
            drawn = self.client.sample_batch(self.table, batch_size, ragged="pad", timeout=0.0 if self._local else None)
        except DeadlineExceededError as error:
            if not self._local:
                raise
            raise ValueError(
                "the replay buffer has no complete step yet; collect more steps before the update"
            ) from error
        n, data = self.n_step, dict(drawn.data)
        obs = data.pop("obs")
        here = np.ones(data["rew"].shape, np.bool_) if drawn.mask is None else _mask(drawn.mask, "rew")
        self._lengths, self._keys = here.sum(axis=1), drawn.info.key
        # All windows of a batch may be short ones.
        width = data["rew"].shape[1]
        columns = {name: _steps(column, 0, width, n) for name, column in data.items()}
        columns["done"] = columns["terminated"] | columns["truncated"]
        self._meta = Batch(obs=_batch(_steps(obs, 0, width, n)), obs_next=_batch(_steps(obs, 1, width, n)), **columns)
        indices = np.arange(batch_size) * n
        return self._rows(indices, drawn), indices

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
        """Steps of the newest sample; or, by the numbers that `add` gave, of the newest episode of an environment."""
        if not isinstance(index, np.ndarray) or not index.size or index.flat[0] < _STEPS:
            return super().__getitem__(index)
        env, first = int(index[0] // _STEPS) - 1, int(index[0] % _STEPS)
        steps, start = self._episodes[env], int(self._steps[env]) - len(self._episodes[env])
        if first < start:
            raise ValueError("these steps are of an episode before the newest one of their environment")
        chosen = [steps[number] for number in index % _STEPS - start]
        columns = {name: np.array([step[name] for step in chosen]) for name in _STEP}
        return Batch(**columns, done=columns["terminated"] | columns["truncated"])

    def hasnull(self) -> bool:
        """False: `add` refuses NaN."""
        return False

    def reset(self, keep_statistics: bool = False) -> None:
        """Drops all steps; on a server also those of other processes."""
        for windows in self._windows:
            windows.cut()
            windows.flush()
        returns, steps, starts, episodes = self._returns, self._steps, self._ep_start, self._episodes
        self._begin()
        if keep_statistics:
            self._returns, self._steps, self._ep_start, self._episodes = returns, steps, starts, episodes
        self.client.reset(self.table)

    def _refuse(self, *args: Any, **options: Any) -> NoReturn:
        raise NotImplementedError(
            "a replay buffer of Reverie has no index of all transitions, and is no file: take samples, and checkpoints "
            "of its server"
        )

    sample_indices = save_hdf5 = set_batch = update = set_array_at_key = dropnull = _refuse
    isnull = __getstate__ = _refuse


class PrioritizedReplayBuffer(ReplayBuffer):
    """`ReplayBuffer` with priorities (Schaul et al. 2016): samples have `weight`, and updates become priorities.

    Args:
        alpha: the exponent of priorities; None is 0.6. A server's table has its own.
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


def _row(value: Any, row: int) -> Any:
    return {name: _row(part, row) for name, part in value.items()} if isinstance(value, dict) else value[row]


def _batch(value: Any) -> Any:
    return Batch({name: _batch(part) for name, part in value.items()}) if isinstance(value, dict) else value


def _mask(mask: Any, name: str) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = mask[name] if isinstance(mask, dict) else mask
    return found


def _steps(column: Any, first: int, width: int, n: int) -> Any:
    """`width` cells of each row from `first` on, `[B * n, ...]`, with zeros behind them."""
    if isinstance(column, dict):
        return {name: _steps(part, first, width, n) for name, part in column.items()}
    cells = column[:, first : first + width]
    if width < n:
        cells = np.concatenate([cells, np.zeros((len(cells), n - width, *cells.shape[2:]), cells.dtype)], axis=1)
    return cells.reshape(-1, *cells.shape[2:])


def _refuse_nan(name: str, column: Any) -> None:
    if isinstance(column, dict):
        for part, values in column.items():
            _refuse_nan(f"{name}/{part}", values)
    elif column.dtype.kind == "f" and np.isnan(column).any():
        raise ValueError(f"column '{name}' has NaN; the step was not added")
