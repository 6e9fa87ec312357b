"""Episodes of RLlib as items: n-step transitions that share observations."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from reverie import _checks
from reverie.integrations._replay_table import LocalTable, RemoteTable
from reverie.integrations._trajectories import FrameStack, Trajectory

__all__ = ["SingleAgentEpisodeWriter"]

#: Episodes that may be open at a time. RLlib reports the end of an episode, but not that an env runner was restarted.
MAX_OPEN = 4096


class SingleAgentEpisodeWriter:
    """Writes the steps of `SingleAgentEpisode`s, which arrive in parts, as transitions with the largest priority.

    Args:
        table: where the items go.
        n_step: the number of steps of a transition, fewer at the end of an episode.
    """

    def __init__(self, table: LocalTable | RemoteTable, n_step: int) -> None:
        self._table, self.n_step = table, _checks.count("n_step", n_step, 1)
        #: By the id of the episode, the least recently continued first.
        self._open: OrderedDict[str, Trajectory] = OrderedDict()
        self._free: list[Trajectory] = []

    def write(self, episodes: Iterable[Any]) -> int:
        """Writes parts of episodes; the number of steps. On a server they are sent in the background.

        Raises:
            TypeError: for an episode of several agents, or observations that are neither an array nor a dict of arrays.
        """
        return sum(self._write(episode) for episode in episodes)

    def flush(self) -> None:
        """Waits until all items are in the table. The newest `n_step - 1` steps of an open episode make none yet."""
        for trajectory in (*self._open.values(), *self._free):
            trajectory.flush()

    def _write(self, episode: Any) -> int:
        if not hasattr(episode, "get_observations") or hasattr(episode, "agent_episodes"):
            raise TypeError(f"a replay buffer of Reverie takes SingleAgentEpisodes, got a {type(episode).__name__}")
        trajectory = self._trajectory(episode.id_)
        count = len(episode)
        # One call for all steps: RLlib's buffers of an episode take microseconds for each.
        observations = _rows(episode.get_observations(slice(0, count + 1)), count + 1)
        actions = _rows(episode.get_actions(slice(0, count)), count)
        rewards = np.asarray(episode.get_rewards(slice(0, count)), np.float32)
        for step in range(count):
            last = step == count - 1
            trajectory.add(
                _arrays(observations[step]),
                _arrays(observations[step + 1]),
                {
                    "action": np.asarray(actions[step]),
                    "reward": rewards[step],
                    "done": np.float32(last and episode.is_terminated),
                },
                bool(last and episode.is_done),
                follows=step > 0,
                followed=not last,
            )
        if episode.is_done:
            self._free.append(self._open.pop(episode.id_))
        return count

    def _trajectory(self, episode: str) -> Trajectory:
        """The trajectory of an episode. One that was not continued for longest ends where too many are open."""
        trajectory = self._open.pop(episode, None)
        if trajectory is None and self._free:
            trajectory = self._free.pop()
        elif trajectory is None and len(self._open) >= MAX_OPEN:
            trajectory = self._open.popitem(last=False)[1]
            trajectory.cut()
        elif trajectory is None:
            trajectory = Trajectory(self._table, self.n_step, FrameStack(), "max")
        self._open[episode] = trajectory
        return trajectory


def _rows(columns: Any, count: int) -> Sequence[Any]:
    """One observation, or one action, for each step of a part, which RLlib keeps as a list or as arrays."""
    if isinstance(columns, Mapping):
        parts = {name: _rows(part, count) for name, part in columns.items()}
        return [{name: part[row] for name, part in parts.items()} for row in range(count)]
    if isinstance(columns, tuple):
        return list(zip(*(_rows(part, count) for part in columns), strict=True))
    return columns  # type: ignore[no-any-return]


def _arrays(observation: Any) -> Any:
    """An observation as an array, or a dict of arrays."""
    if isinstance(observation, Mapping):
        return {name: _arrays(part) for name, part in observation.items()}
    if isinstance(observation, (tuple, list)):
        raise TypeError(
            "a replay buffer of Reverie takes observations that are an array or a dict of arrays, and got a "
            f"{type(observation).__name__}; flatten them in an env-to-module connector that writes to episodes"
        )
    return np.asarray(observation)
