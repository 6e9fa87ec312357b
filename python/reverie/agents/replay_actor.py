"""The base class of actors that write transitions to a replay table, and what they choose for a step."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from typing import Any, Literal, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from reverie.agents.atari import EpisodeEnds, LifeStacks
from reverie.agents.core import ActorArguments, Policy, WeightSource
from reverie.agents.env_actor import EnvActor
from reverie.agents.environments import EnvSpec
from reverie.agents.goal_functions import EpisodeStep, goal_functions
from reverie.agents.hindsight import Hindsight
from reverie.agents.inputs import reward_deviation
from reverie.agents.replay import HindsightSettings, ReplaySettings
from reverie.errors import DeadlineExceededError


class ActionChoice(NamedTuple):
    """An actor's choice of actions for observations `[N, ...]`."""

    actions: NDArray[Any]
    """Actions in the form for the learner, `[N]` or `[N, A]`."""
    env_actions: NDArray[Any]
    """Actions in the form for the environment."""
    q_taken: NDArray[np.float32] | None = None
    """q(s, a), if the actor computes it for first priorities; then `bootstrap_value` is set, too."""
    bootstrap_value: NDArray[np.float32] | None = None
    """The value of the observations, for items that end in them."""
    unit: float = 1.0
    """The unit of the values, in which first priorities are bounded: the deviation of normalised rewards."""

    def scaled(self, factor: float) -> ActionChoice:
        """The same choice with its values times `factor`, which is their unit."""
        if factor == 1.0 or self.q_taken is None or self.bootstrap_value is None:
            return self
        unit = np.float32(factor)
        return self._replace(q_taken=self.q_taken * unit, bootstrap_value=self.bootstrap_value * unit, unit=factor)


class ReplayActor(EnvActor):
    """Writes n-step items into the replay table. Subclasses choose the actions.

    The reset step after an episode's end is handled like any other: the true last observation passes through the
    network, so that a truncated episode bootstraps from it. Stacks of frames, and vectors that reset in the same step,
    have no reset step: if an episode was truncated, the value of its last observation is computed separately.
    """

    NEWEST_FRAMES = True

    def __init__(
        self,
        spec: EnvSpec,
        config: ReplaySettings,
        client: Any,
        weights: WeightSource,
        policy: Policy,
        *,
        priority_eps: float = 0.0,
        priority_clip: float = 0.0,
        priority: float | Literal["max"] = 1.0,
        **role: Unpack[ActorArguments],
    ) -> None:
        frames = spec.frame_stack is not None
        self._lives = LifeStacks(config.envs_per_actor, spec.obs_shape, spec.obs_dtype) if frames else None
        super().__init__(spec, config, weights, **role)
        self._acting_policy, self._weights_period = policy, config.weights_period
        self._discount = config.discount
        self._max_in_flight = 2 * config.inserts_per_act
        self._hindsight: Hindsight | None = None
        if isinstance(config, HindsightSettings) and config.her:
            goal_functions(self._envs, spec.env_id)  # raises where it has none
            self._hindsight = Hindsight(spec, config, self.num_envs, self._rng)
        self._client, self._table, self._new_priority = client, config.table_of(role["index"]), priority
        self._writer = client.transition_writer(
            self._table,
            n_step=config.n_step,
            discount=config.discount,
            num_envs=self.num_envs,
            autoreset="same_step" if self._same_step else "next_step",
            **({"frame_stack": spec.frame_stack} if frames else {}),
            priority_eps=priority_eps,
            priority_clip=priority_clip or None,
            priority=priority,
        )

    def _begin(self, seed: int) -> None:
        super()._begin(seed)
        if self._lives is not None:
            self._lives.begin(self._obs)

    @abstractmethod
    def _choose(self, obs: NDArray[Any]) -> ActionChoice:
        """Actions for all environments, exploration included."""

    def _values(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Values `[N]` of observations from the acting network; implemented by subclasses that set `q_taken`."""
        raise NotImplementedError

    def act(self) -> int:
        """Take one step in every environment, when the table's limiter allows it; the number of steps of episodes."""
        obs = self._obs
        with self._watch("act"):
            if self._weights_are_due(self._weights_period):
                self._pull(self._acting_policy)
            self._acts += 1
            choice = self._choose(obs if self._lives is None else self._lives.seen)
            deviation = self._reward_deviation(choice)
            choice = choice.scaled(deviation)
        with self._watch("env step"):
            stepped = self._step(choice.env_actions)
        if stepped is None:
            if self._hindsight is not None:
                self._hindsight.abandon()
            self._end_in(obs, choice)
            return 0
        _, reward, terminated, truncated = stepped
        ended, last = self._ends(terminated, truncated, choice, deviation)
        self._append(obs, choice, reward, ended, truncated, **last)
        if self._hindsight is not None:
            with self._watch("append"):
                self._relabel(self._hindsight, obs, choice.actions, reward, terminated, terminated | truncated)
        return self._count(reward, terminated | truncated)

    def _end_in(self, obs: NDArray[Any], choice: ActionChoice) -> None:
        """End all episodes in `obs`, the observations before the step that raised; the writer drops that step.

        The last complete step of each environment ends in them, also one after which it was to be reset.
        """
        none, value = np.zeros(self.num_envs, dtype=bool), choice.bootstrap_value
        last = {"final_obs": obs, "final_value": value} if self._same_step else {}  # which no end reads
        try:
            self._append(obs, choice, np.zeros(self.num_envs), none, none, **last)
        finally:
            self._writer.end_episodes(bootstrap_value=value)

    def _append(
        self,
        obs: NDArray[Any],
        choice: ActionChoice,
        reward: NDArray[Any],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        **last: Any,
    ) -> None:
        """Write a step of every environment; `last` are the writer's arguments for the ends of training episodes."""
        values: dict[str, Any] = {"q_taken": choice.q_taken, "bootstrap_value": choice.bootstrap_value}
        if choice.unit != 1.0:
            values["priority_unit"] = choice.unit
        returns = self._returns_column(reward, self._discount, terminated | truncated)
        values["extras"] = {"weights_version": self._version, **returns}
        with self._watch("append"):
            self._writer.append(obs, choice.actions, self._bounded(reward), terminated, truncated, **values, **last)

    def _relabel(
        self,
        hindsight: Hindsight,
        obs: NDArray[Any],
        actions: NDArray[Any],
        reward: NDArray[Any],
        terminated: NDArray[np.bool_],
        ended: NDArray[np.bool_],
    ) -> None:
        """Add the steps of the episodes, and insert the next items with other goals."""
        after = self._info["final_obs"] if self._same_step else self._obs
        functions = goal_functions(self._envs, self._spec.env_id)
        for i in np.flatnonzero(~self._resets):
            step = EpisodeStep(
                obs[i], actions[i], float(reward[i]), after[i], bool(terminated[i]), int(self._version[i])
            )
            hindsight.add(int(i), step, ended=bool(ended[i]), functions=functions)
        items = hindsight.take()
        if items is not None:
            items["reward"] = self._bounded(items["reward"])
            self._client.insert_batch(self._table, items, self._new_priority, wait=False)

    def _ends(
        self, terminated: NDArray[np.bool_], truncated: NDArray[np.bool_], choice: ActionChoice, deviation: float
    ) -> tuple[NDArray[np.bool_], dict[str, Any]]:
        """The ends of training episodes, and the writer's arguments for them."""
        if not self._same_step:
            return terminated, {}
        if self._lives is None:
            ends = EpisodeEnds(terminated, self._info["final_obs"], self._info["final_obs"][truncated])
        else:
            ends = self._lives.step(self._obs, terminated, truncated, self._info)
        if choice.q_taken is None:
            return ends.terminated, {"final_obs": ends.final_obs}
        values = np.zeros(self.num_envs, dtype=np.float32)
        if truncated.any():
            with self._watch("act"):
                values[truncated] = self._values(ends.truncated_stacks) * deviation
        return ends.terminated, {"final_obs": ends.final_obs, "final_value": values}

    def _reward_deviation(self, choice: ActionChoice) -> float:
        """The unit of the values of a choice: first priorities are in that of the rewards."""
        if choice.q_taken is None or not self._spec.settings.normalise_rewards:
            return 1.0
        return reward_deviation(self._acting_policy.module)

    def settle(self, timeout: float | None = None) -> None:
        """Wait until at most the items of two steps are unconfirmed."""
        with self._watch("wait for the table"):
            self._writer.flush(self._max_in_flight, timeout=timeout)
            if self._hindsight is not None:
                self._client.flush(timeout)

    def close(self) -> None:
        """Close the environments and the writer.

        Tails of episodes that the table does not accept at once are discarded: a closing actor must not wait for a
        learner that has ended.
        """
        super().close()
        with suppress(DeadlineExceededError):
            self._writer.close(timeout=0)
