"""A replay buffer for the DQN and SAC of RLlib's new API stack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.metrics import NUM_ENV_STEPS_ADDED, NUM_ENV_STEPS_SAMPLED
from ray.rllib.utils.replay_buffers import prioritized_episode_buffer

from reverie import _checks, selectors
from reverie.client import Client
from reverie.integrations._replay_table import LocalTable, RemoteTable, check_prioritized
from reverie.integrations.rllib.episodes import SingleAgentEpisodeWriter
from reverie.tables import Compression

__all__ = ["PrioritizedEpisodeReplayBuffer"]

#: A server: an address, several, or a client.
Servers = str | Sequence[str] | Client
#: The smallest priority, RLlib's.
SMALLEST = 1e-12


class PrioritizedEpisodeReplayBuffer(prioritized_episode_buffer.PrioritizedEpisodeReplayBuffer):  # type: ignore[misc]
    """Prioritised replay (Schaul et al. 2016) for RLlib's DQN and SAC.

    It is chosen by its name, `"type": "reverie.integrations.rllib.PrioritizedEpisodeReplayBuffer"`, in the
    `replay_buffer_config` of RLlib's `DQNConfig` and of `reverie.integrations.rllib.SACConfig`.

    Samples are lists of episodes of one step, with the entries `weights` and `n_step` that RLlib's losses read. Each
    observation is stored once. An n-step transition at the end of an episode is shorter; RLlib's buffer never samples
    it. New transitions have the largest priority in the table. `alpha=0` draws uniformly.

    Args:
        capacity: the number of transitions; the oldest leave first. A server's table has its own `max_size`, which
            counts instead.
        alpha: the exponent of priorities; None means 0.6. A server's table has its own.
        beta: the exponent of the weights, which RLlib passes to `sample`.
        n_step: the algorithm's `n_step`, one number.
        server: None keeps the transitions in the algorithm's process. An address, several addresses, or a
            `reverie.Client` (for a token or TLS): on that server, which other processes can share.
        table: the table's name on the server.
        added_by: "algorithm" adds what the algorithm passes to `add`. "env_runners": nothing is added here, the env
            runners do so with `AddSamples`.
        compression: of the table in this process, see `reverie.Table`; None means "auto".
        seed: of the draws in this process; None means a random one.
        batch_size_B, batch_length_T, metrics_num_episodes_for_smoothing: as for RLlib's buffer.

    Raises:
        ValueError: for options that contradict each other, or a server's table whose sampler has no priorities.
        UnknownTableError: the server has no such table.
    """

    def __init__(
        self,
        capacity: int = 10_000,
        *,
        alpha: float | None = None,
        beta: float = 0.4,
        n_step: int | Sequence[int] = 1,
        server: Servers | None = None,
        table: str = "replay",
        added_by: Literal["algorithm", "env_runners"] = "algorithm",
        compression: Compression | None = None,
        seed: int | None = None,
        batch_size_B: int = 16,
        batch_length_T: int = 1,
        metrics_num_episodes_for_smoothing: int = 100,
    ) -> None:
        if added_by not in ("algorithm", "env_runners"):
            raise ValueError(f'added_by must be "algorithm" or "env_runners", got {added_by!r}')
        if added_by == "env_runners" and server is None:
            raise ValueError('added_by="env_runners" needs server=: env runners are other processes')
        if not 0.0 <= beta <= 1.0:
            raise ValueError(f"beta must be between 0 and 1, got {beta}")
        if isinstance(n_step, Sequence):
            raise ValueError(f"n_step must be one number, got {n_step}: a transition is stored with its steps")
        super().__init__(
            1,  # RLlib's segment trees are not used.
            batch_size_B=batch_size_B,
            batch_length_T=batch_length_T,
            metrics_num_episodes_for_smoothing=metrics_num_episodes_for_smoothing,
        )
        self.beta, self._added_by = beta, added_by
        if server is None:
            sampler = selectors.Prioritized(0.6 if alpha is None else alpha, seed=seed)
            self._table: LocalTable | RemoteTable = LocalTable(
                {
                    "name": table,
                    "sampler": sampler,
                    "remover": selectors.Fifo(),
                    "max_size": _checks.count("capacity", capacity, 1),
                    "compression": "auto" if compression is None else compression,
                }
            )
        else:
            given = {"alpha": alpha, "compression": compression, "seed": seed}
            for name in (name for name, value in given.items() if value is not None):
                raise ValueError(
                    f"{name} is an option of the table in this process; the table of the server has its own"
                )
            self._table = RemoteTable(server, table)
            check_prioritized(self._table)
        self.capacity = self._table.max_size
        self._writer = SingleAgentEpisodeWriter(self._table, n_step)
        self._keys: npt.NDArray[np.int64] = np.empty(0, np.int64)

    @property
    def client(self) -> Client:
        """The client of the buffer's table, for its figures and for calls that RLlib does not make."""
        return self._table.client

    def add(self, episodes: Any, weight: float | None = None) -> None:
        """Adds the steps of episodes, or of their next parts.

        Args:
            episodes: one `SingleAgentEpisode`, or a list.
            weight: must be None: new transitions have the largest priority in the table.

        Raises:
            ValueError: for a `weight`.
        """
        if weight is not None:
            raise ValueError(f"weight must be None, got {weight}: new transitions have the largest priority")
        episodes = [episodes] if isinstance(episodes, SingleAgentEpisode) else episodes
        if self._added_by == "env_runners":
            added = sum(len(episode) for episode in episodes)
        else:
            added = self._writer.write(episodes)
        self._num_timesteps_added += added
        self.metrics.log_value(NUM_ENV_STEPS_ADDED, added, reduce="sum", window=None)

    def sample(
        self,
        num_items: int | None = None,
        *,
        batch_size_B: int | None = None,
        batch_length_T: int | None = None,
        n_step: int | None = None,
        beta: float | None = None,
        gamma: float = 0.99,
        to_numpy: bool = False,
        **rest: Any,
    ) -> list[SingleAgentEpisode]:
        """Draws transitions with replacement, by their priorities.

        Args:
            num_items, batch_size_B: the number of transitions; one of them, or the constructor's.
            batch_length_T: at most 1: recurrent modules are not supported.
            n_step: the constructor's.
            beta: of the weights; None takes the constructor's.
            gamma: the discount factor of n-step returns.
            to_numpy: makes the lists in the episodes arrays.
            rest: `lookback`, `min_batch_length_T` and what else RLlib passes for recurrent modules; all 0 or False.

        Returns:
            episodes of one step. A reward is the return of `extra_model_outputs["n_step"]` steps. `terminated` is that
            of the last of them; `truncated` is False, since nothing that RLlib learns depends on it.

        Raises:
            ValueError: for another `n_step` than the constructor's, or sequences; and where the buffer is in this
                process and has no transition yet.
        """
        self._check_sample(num_items, batch_size_B, batch_length_T, n_step, rest)
        count = num_items or batch_size_B or self.batch_size_B
        batch = self._table.sample(count, None if self._writer.n_step == 1 else "pad")
        weights = batch.weights(self.beta if beta is None else beta, normalise="table")
        returns, steps = self._returns(batch, gamma)
        data, self._keys = batch.data, batch.info.key
        self.sampled_timesteps += count
        self.metrics.log_value(NUM_ENV_STEPS_SAMPLED, count, reduce="sum", window=None)
        episodes = [
            SingleAgentEpisode(
                observations=[_row(data["observation"], row), _row(data["next_observation"], row)],
                actions=[data["action"][row]],
                rewards=[returns[row]],
                terminated=bool(data["done"][row]),
                truncated=False,
                extra_model_outputs={"weights": [weights[row]], "n_step": [int(steps[row])]},
                len_lookback_buffer=0,
            )
            for row in range(count)
        ]
        return [episode.to_numpy() for episode in episodes] if to_numpy else episodes

    def update_priorities(self, priorities: npt.ArrayLike, module_id: Any = None) -> None:
        """Sets the priorities of the transitions that were sampled last.

        Args:
            priorities: absolute TD errors `[N]`, in the order of the sample. Transitions that are gone are ignored.
            module_id: RLlib's; a buffer of one agent has one module.

        Raises:
            ValueError: for another number than was sampled last.
        """
        values = np.maximum(np.abs(np.asarray(priorities, np.float64)).reshape(-1), SMALLEST)
        if len(values) != len(self._keys):
            raise ValueError(f"there are {len(values)} priorities, and {len(self._keys)} transitions were sampled last")
        self._table.update_priorities(self._keys, values)

    def __len__(self) -> int:
        return self.get_num_timesteps()

    def get_num_timesteps(self, module_id: Any = None) -> int:
        """The number of transitions in the table. Waits for those that are on their way."""
        self._writer.flush()
        return self.client.server_info()[self._table.name].current_size

    def get_num_episodes(self, module_id: Any = None) -> int:
        """The number of trajectories, begun or ended, of which the table has steps."""
        self._writer.flush()
        return self.client.server_info()[self._table.name].num_episodes

    def get_num_episodes_evicted(self, module_id: Any = None) -> int:
        """The number of trajectories of which no step is in the table any more."""
        return self.client.server_info()[self._table.name].num_deleted_episodes

    def get_state(self) -> dict[str, Any]:
        """The files of a checkpoint of the table, by name; none of a table on a server, which takes its own.

        Transitions of n steps that are not complete are not in it.
        """
        self._writer.flush()
        counts = {"_num_timesteps_added": self._num_timesteps_added, "sampled_timesteps": self.sampled_timesteps}
        return {"checkpoint": self._table.checkpoint(), **counts}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Replaces the transitions by those of a checkpoint; those on a server stay."""
        self._table = self._table.restored(state["checkpoint"])
        self._writer = SingleAgentEpisodeWriter(self._table, self._writer.n_step)
        self._num_timesteps_added, self.sampled_timesteps = state["_num_timesteps_added"], state["sampled_timesteps"]

    def _returns(self, batch: Any, gamma: float) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """The return and the number of steps of each transition, `[B]`."""
        rewards = batch.data["reward"]
        if self._writer.n_step == 1:
            return rewards, np.ones(len(rewards), np.int64)
        mask = batch.mask["reward"] if isinstance(batch.mask, dict) else batch.mask
        here = np.ones(rewards.shape, np.bool_) if mask is None else mask
        powers = np.float32(gamma) ** np.arange(rewards.shape[1], dtype=np.float32)
        return (rewards * powers * here).sum(axis=1), here.sum(axis=1)

    def _check_sample(self, num_items: Any, rows: Any, length: Any, n_step: Any, rest: Mapping[str, Any]) -> None:
        if num_items is not None and rows is not None:
            raise ValueError("sample takes num_items or batch_size_B, not both")
        sequences = {"batch_length_T": (length or 0) > 1, **{name: rest.get(name) for name in _RECURRENT}}
        for name in (name for name, given in sequences.items() if given):
            raise ValueError(f"{name} is for recurrent modules, which this buffer does not support")
        if n_step is not None and n_step != self._writer.n_step:
            raise ValueError(
                f"the algorithm's n_step is {n_step}, and the buffer's {self._writer.n_step}: set n_step in "
                "replay_buffer_config, too"
            )


#: The arguments that RLlib passes for recurrent modules.
_RECURRENT = ("lookback", "min_batch_length_T", "include_infos", "include_extra_model_outputs")


def _row(columns: Any, row: int) -> Any:
    """The observation of one transition."""
    if isinstance(columns, Mapping):
        return {name: _row(part, row) for name, part in columns.items()}
    return columns[row]
