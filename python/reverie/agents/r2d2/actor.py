"""An actor: environments with a recurrent state each, the newest weights, and sequences with their priorities."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from reverie.agents.core import ActorArguments, WeightSource
from reverie.agents.discrete import EpsilonGreedyExploration
from reverie.agents.env_actor import EnvActor
from reverie.agents.environments import EnvSpec
from reverie.agents.inputs import in_deviations, reward_deviation
from reverie.agents.r2d2.config import R2d2Config
from reverie.agents.r2d2.loss import sequence_priorities, td_errors, unrescale
from reverie.agents.r2d2.networks import GreedyPolicy
from reverie.errors import DeadlineExceededError

Row = dict[str, Any]


class Sequences:
    """Makes the items of one environment: overlapping sequences of its episodes, which share their steps' bytes.

    An item has `config.rows` rows of `obs`, `last_action`, `action`, `reward`, `discount` and `mask`, the recurrent
    `state` `[2, H]` before its first row, and the `weights_version` of its first step to learn from. `mask` is false at
    padding: before an episode's first step, and from its last observation on, which repeats. A step's `state` is stored
    only where a sequence begins.
    """

    def __init__(self, client: Any, table: str, config: R2d2Config) -> None:
        self._config, self._table = config, table
        self._writer = client.trajectory_writer(config.rows + 1, chunk_length=config.sequence_period)
        # A chunk for each state: those that no sequence refers to are freed, and not kept by the steps around them.
        self._writer.configure("state", num_keep_alive_refs=config.rows + 1, max_chunk_length=1)
        self._figures: deque[tuple[float, float, float, float]] = deque(maxlen=config.sequence_length + 1)
        """Q-value of the action, value, reward and discount of the newest steps."""
        self._steps = 0
        self.deviation = 1.0
        """The number that the learner divides rewards by: q-values are in this unit, and priorities in the rewards'."""

    def append(self, row: Row, state: NDArray[np.float32], q_taken: float, value: float) -> None:
        """Add a step; `state` is from before it. Sends the sequence that can bootstrap from its observation."""
        config, step = self._config, self._steps
        if step == 0 and config.burn_in:
            zeros = {name: np.zeros_like(one) for name, one in row.items()}
            self._append(zeros | {"mask": np.bool_(False)}, np.zeros_like(state))
        begins = (step + config.burn_in) % config.sequence_period == 0
        self._append(row | {"mask": np.bool_(True)}, state if begins else None)
        self._steps += 1
        self._figures.append((q_taken, value, float(row["reward"]), float(row["discount"])))
        first = step - config.sequence_length
        if first >= 0 and first % config.sequence_period == 0:
            self._send(first, step)

    def end(self, row: Row, value: float) -> None:
        """End the episode with its last observation, of which `value` is the value. Sends the steps that are left."""
        config, last = self._config, self._steps
        self._append(row | {"mask": np.bool_(False)}, None)
        self._figures.append((0.0, value, 0.0, 0.0))
        first = last - config.sequence_length
        # The first multiple of the period from which a sequence reaches the end.
        self._send(max(0, -(-first // config.sequence_period) * config.sequence_period), last)
        self.abandon()

    def abandon(self) -> None:
        """End the episode without the steps that are in no sequence yet."""
        self._figures.clear()
        self._steps = 0
        self._writer._end_episode(True)

    def flush(self, left: int, timeout: float | None) -> None:
        """Wait until at most `left` sequences are unconfirmed."""
        self._writer.flush(left, timeout=timeout)

    def close(self) -> None:
        """Close the writer. Sequences that the table does not accept at once are discarded."""
        self._writer.close()

    def _append(self, row: Row, state: NDArray[np.float32] | None) -> None:
        # A deadline leaves the step written, and `flush` reports that the table is late.
        if state is not None:  # in an append of its own, so that it shares no chunk with the other columns
            with suppress(DeadlineExceededError):
                self._writer.append({"state": state}, partial_step=True)
        with suppress(DeadlineExceededError):
            self._writer.append(row)

    def _send(self, first: int, last: int) -> None:
        """Send the sequence that learns from the steps `first` to `last - 1` at most, which is the newest row."""
        config, history = self._config, self._writer.history
        padding = min(1, config.burn_in)
        rows = np.arange(first - config.burn_in, first + config.sequence_length + 1)
        indices = (np.clip(rows, -padding, last) + padding).tolist()
        trajectory = {name: history[name][indices] for name in history if name not in ("state", "weights_version")}
        trajectory["state"] = history["state"][indices[0]]
        trajectory["weights_version"] = history["weights_version"][first + padding]
        self._writer.create_item(self._table, self._priority(last - first + 1), trajectory)

    def _priority(self, rows: int) -> float:
        """The priority of a sequence that ends with the newest row, as the learner's loss computes it."""
        config = self._config
        figures: Any = np.array(list(self._figures)[-rows:], np.float32)
        q_taken, v, r_t, discount_t = figures.T[:, None]
        r_t = in_deviations(r_t[:, :-1], self.deviation)
        mask = np.ones(r_t.shape, np.bool_)
        with np.errstate(all="ignore"):  # q-values that are not finite give such priorities, without a warning
            errors = td_errors(
                q_taken[:, :-1],
                r_t,
                discount_t[:, :-1],
                unrescale(v, config.rescale_epsilon),
                mask,
                n_step=config.n_step,
                rescale_epsilon=config.rescale_epsilon,
            )
            eta, eps, clip = config.priority_eta, config.priority_eps, config.priority_clip
            (priority,) = sequence_priorities(errors, mask, eta=eta, eps=eps, clip=clip)
        return float(priority) * self.deviation


class Actor(EnvActor):
    """Explores by its own rungs of Ape-X's ladder, and sends sequences with the priorities of its own q-values.

    The state of an environment is that of its episode: steps with older weights are part of it, as section 3 studies.
    """

    def __init__(
        self, spec: EnvSpec, config: R2d2Config, client: Any, weights: WeightSource, **role: Unpack[ActorArguments]
    ) -> None:
        self._policy = GreedyPolicy(spec, config)
        super().__init__(spec, config, weights, **role)
        n = config.envs_per_actor
        self.epsilons = config.rungs_of(role["index"])
        self._config = config
        self._exploration = EpsilonGreedyExploration(n, spec.num_actions or 0, config.random_hold)
        self._sequences = [Sequences(client, config.table_of(role["index"]), config) for _ in range(n)]

    def _begin(self, seed: int) -> None:
        super()._begin(seed)
        self._state = self._policy.initial_state(self.num_envs)
        self._last_action = np.full(self.num_envs, -1)

    def act(self) -> int:
        """Take one step in every environment; returns the number of steps of episodes."""
        config, obs, state, resets = self._config, self._obs, self._state, self._resets
        with self._watch("act"):
            if self._weights_are_due(config.weights_period):
                self._take_weights()
            self._acts += 1
            q, memory = self._policy.q_and_memory(obs, state)
            epsilons = self.epsilons if config.has_several_envs else config.epsilon_alone(self.env_steps)
            actions = self._exploration.choose(self._rng, q.argmax(axis=1), epsilons, self._begins)
        with self._watch("env step"):
            stepped = self._step(self._policy.enumeration.to_env(actions))
        if stepped is None:
            for sequences in self._sequences:
                sequences.abandon()
            return 0
        after = self._policy.after(memory, actions)
        _, reward, terminated, truncated = stepped
        row = {
            "obs": obs,
            "last_action": self._last_action,
            "action": actions,
            "reward": self._bounded(reward),
            "discount": np.where(terminated, 0.0, config.discount).astype(np.float32),
            "weights_version": self._version,
            **self._returns_column(reward, config.discount, terminated | truncated),
        }
        ended = (terminated | truncated) & ~resets
        self._write(row, state, q, ended, after)
        fresh = ended | resets
        self._state = np.where(fresh[:, None], np.float32(0), after)
        self._last_action = np.where(fresh, -1, actions)
        return self._count(reward, terminated | truncated)

    def _take_weights(self) -> None:
        if self._pull(self._policy) and self._spec.settings.normalise_rewards:
            deviation = reward_deviation(self._policy.module)
            for sequences in self._sequences:
                sequences.deviation = deviation

    def _write(
        self, row: Row, state: NDArray[np.float32], q: NDArray[np.float32], ended: NDArray[np.bool_], after: Any
    ) -> None:
        """Write a step of each environment but those that were reset, and end episodes."""
        last = self._info["final_obs"] if self._same_step else self._obs
        values = np.zeros(self.num_envs, np.float32)
        cut = ended & (row["discount"] > 0)
        if cut.any():  # truncated: the value of the true last observation
            with self._watch("act"):
                values[cut] = self._policy.q_and_memory(last[cut], after[cut])[0].max(axis=1)
        memories = state[:, : 2 * self._config.lstm_units].reshape(self.num_envs, 2, -1)
        with self._watch("append"):
            for i in np.flatnonzero(~self._resets):
                here = {name: column[i] for name, column in row.items()}
                self._sequences[i].append(here, memories[i], float(q[i, row["action"][i]]), float(q[i].max()))
                if ended[i]:
                    end = {name: np.zeros_like(one) for name, one in here.items()}
                    end |= {"obs": last[i], "last_action": row["action"][i], "weights_version": self._version[i]}
                    self._sequences[i].end(end, float(values[i]))

    def settle(self, timeout: float | None = None) -> None:
        """Wait until at most the sequences of one step are unconfirmed."""
        with self._watch("wait for the table"):
            for sequences in self._sequences:
                sequences.flush(2, timeout)

    def close(self) -> None:
        """Close the environments and the writers. Steps of unfinished sequences are discarded."""
        super().close()
        for sequences in self._sequences:
            sequences.close()
