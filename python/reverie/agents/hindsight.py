"""Hindsight experience replay (Andrychowicz et al. 2017): transitions with goals that their episode achieved.

An actor writes its transitions as ever. When an episode ends, each of its steps begins `her_k` more
items, with another desired goal in their observations and with the rewards of that goal. These are inserted during
the following steps, at most `her_k` for each step of an environment, so that the table's ratio holds at any moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from reverie._goals import PARTS
from reverie.agents import preset_choice
from reverie.agents.core import Preset
from reverie.agents.environments import EnvSpec, UnsupportedEnvironmentError, make_vector
from reverie.agents.goal_functions import EpisodeStep, GoalCheck, GoalFunctions, goal_functions
from reverie.agents.observations import ObservationLeaf, is_mixed

STRATEGIES = ("future", "final", "episode")


class HindsightConfig(Protocol):
    """The settings of relabelling."""

    @property
    def her(self) -> str:
        """The strategy; empty for none."""

    @property
    def her_k(self) -> int:
        """Items with another goal for each step."""

    @property
    def n_step(self) -> int:
        """Steps of an item."""

    @property
    def discount(self) -> float:
        """The discount of a step."""


def without_returns(preset: Preset, given: Collection[str]) -> Preset:
    """The preset without `normalise_rewards` if it is of an agent's defaults, and `her`, which refuses it, is set.

    `given` has the names of the settings that the user set: a `normalise_rewards` of the user's stays, and is refused.
    """
    is_default = preset.path.parent.name == preset_choice.DEFAULTS and "normalise_rewards" not in given
    if not (is_default and getattr(preset.config, "her", None) and preset.environment.normalise_rewards):
        return preset
    note = f"{preset.note}; rewards are not normalised, since her is set"
    return replace(preset, environment=replace(preset.environment, normalise_rewards=False), note=note)


class GoalRows:
    """The places of the goals in the rows of observations that tables have.

    Raises `UnsupportedEnvironmentError` for an environment without goals.
    """

    def __init__(self, spec: EnvSpec) -> None:
        found = {leaf.path[0]: leaf for leaf in spec.leaves if leaf.path}
        missing = [part for part in PARTS if part not in found]
        if missing:
            raise UnsupportedEnvironmentError(
                f"her is set, and observations of {spec.env_id} have no {missing[0]}: leave it out, or train in an"
                " environment whose observations are a Dict of observation, achieved_goal and desired_goal"
            )
        achieved, desired = (self._leaf(spec, part) for part in PARTS[1:])
        if (achieved.shape, achieved.dtype, achieved.starts) != (desired.shape, desired.dtype, desired.starts):
            raise UnsupportedEnvironmentError(
                f"achieved_goal of {spec.env_id} is {achieved.dtype} of shape {achieved.shape}, and desired_goal"
                f" {desired.dtype} of shape {desired.shape}: her needs both alike"
            )
        if spec.frame_stack is not None:
            raise UnsupportedEnvironmentError(f"frame_stack is {spec.frame_stack}, and her relabels single frames")
        if spec.settings.normalise_rewards:
            raise UnsupportedEnvironmentError(
                "normalise_rewards is true, and her computes rewards without their returns:"
                " set normalise_rewards=false, or leave her out"
            )
        self._goal, self._mixed = achieved, is_mixed(spec.leaves)
        self._achieved, self._desired = (self._place(spec, part) for part in (achieved, desired))

    @staticmethod
    def _leaf(spec: EnvSpec, part: str) -> ObservationLeaf:
        leaves = [leaf for leaf in spec.leaves if leaf.path[0] == part]
        if len(leaves) != 1 or leaves[0].path != (part,):
            raise UnsupportedEnvironmentError(f"{part} of {spec.env_id} is a nest, and her needs one array")
        return leaves[0]

    def _place(self, spec: EnvSpec, wanted: ObservationLeaf) -> slice:
        sizes = [leaf.num_bytes if self._mixed else leaf.count for leaf in spec.leaves]
        index = spec.leaves.index(wanted)
        start = sum(sizes[:index])
        return slice(start, start + sizes[index])

    def achieved(self, rows: NDArray[Any]) -> NDArray[Any]:
        """The achieved goals `[N, G]` of rows `[N, W]`, as rows have them."""
        goals: NDArray[Any] = rows[:, self._achieved]
        return goals

    def desired(self, rows: NDArray[Any]) -> NDArray[Any]:
        """The desired goals `[N, G]` of rows `[N, W]`, as rows have them."""
        goals: NDArray[Any] = rows[:, self._desired]
        return goals

    def with_goals(self, rows: NDArray[Any], goals: NDArray[Any]) -> NDArray[Any]:
        """Copies of rows `[N, W]` with other desired goals `[N, G]`."""
        copies = rows.copy()
        copies[:, self._desired] = goals
        return copies

    def original(self, goals: NDArray[Any]) -> NDArray[Any]:
        """Goals `[N, *shape]` as the environment has them, of the parts `[N, G]` of rows."""
        leaf = self._goal
        values = np.ascontiguousarray(goals).view(leaf.dtype) if self._mixed else goals
        shaped = values.reshape(len(goals), *leaf.shape)
        return shaped + np.array(leaf.starts, leaf.dtype).reshape(leaf.shape) if leaf.starts else shaped


def require_goals(spec: EnvSpec) -> None:
    """Raise `UnsupportedEnvironmentError` for an environment that cannot be relabelled.

    It is made and reset for this, and its goal functions are called with the goals of its first observation.
    """
    goals, envs = GoalRows(spec), make_vector(spec, 1)
    try:
        first = _first_rows(envs)
        functions = goal_functions(envs, spec.env_id)
        if first is not None:
            # Equal goals, as every substitute goal is in the step that achieved it; no item has the goal of a reset.
            desired = np.repeat(goals.original(goals.desired(first)), 2, axis=0)
            functions.rewards(desired, desired)
            functions.ends(desired, desired)
    finally:
        envs.close()


def _first_rows(envs: Any) -> NDArray[Any] | None:
    """The rows `[1, W]` of a reset; None if it raises, which the run reports with the seed and the step."""
    try:
        rows, _ = envs.reset(seed=0)
    except UnsupportedEnvironmentError:
        raise
    except Exception:
        return None
    return np.asarray(rows)


class Hindsight:
    """The relabelled items of one actor's episodes."""

    def __init__(self, spec: EnvSpec, config: HindsightConfig, num_envs: int, rng: np.random.Generator) -> None:
        self._rows, self._rng, self._check = GoalRows(spec), rng, GoalCheck(spec.env_id)
        self._strategy, self._k, self._n, self._gamma = config.her, config.her_k, config.n_step, config.discount
        self._open: list[list[EpisodeStep]] = [[] for _ in range(num_envs)]
        self._waiting: deque[dict[str, NDArray[Any]]] = deque()
        self._most = config.her_k * num_envs

    @property
    def num_waiting(self) -> int:
        """Items that were not taken yet: at most `her_k` for each step of the longest episode of each environment."""
        return sum(len(items["reward"]) for items in self._waiting)

    def add(self, env: int, step: EpisodeStep, *, ended: bool, functions: GoalFunctions) -> None:
        """Add a step of an environment; the last one of an episode makes its items.

        Raises `UnsupportedEnvironmentError` if `functions` differ from what the steps of episodes gave.
        """
        self._open[env].append(step)
        if ended:
            steps, self._open[env] = self._open[env], []
            self._waiting.append(self._items(steps, functions))

    def abandon(self) -> None:
        """Forget the steps of episodes that have not ended."""
        self._open = [[] for _ in self._open]

    def take(self) -> dict[str, NDArray[Any]] | None:
        """The next items by column, at most `her_k` for each environment; None if there are none."""
        taken, left = [], self._most
        while self._waiting and left:
            items = self._waiting.popleft()
            count = len(items["reward"])
            if count > left:
                self._waiting.appendleft({name: column[left:] for name, column in items.items()})
                items = {name: column[:left] for name, column in items.items()}
            taken.append(items)
            left -= min(count, left)
        if not taken:
            return None
        return {name: np.concatenate([items[name] for items in taken]) for name in taken[0]}

    def _items(self, steps: list[EpisodeStep], functions: GoalFunctions) -> dict[str, NDArray[Any]]:
        """`her_k` items for each step of an episode."""
        obs, actions, _, next_obs, terminated, versions = (np.stack(column) for column in zip(*steps, strict=True))
        length, rows = len(steps), self._rows
        self._check.add(steps, rows.original(rows.achieved(next_obs)), rows.original(rows.desired(next_obs)), functions)
        first = np.repeat(np.arange(length), self._k)
        goals = rows.achieved(next_obs)[self._chosen(first, length)]
        # The steps of each item [N, n]; those after the episode's last one repeat it, and are not counted.
        window = first[:, None] + np.arange(self._n)
        inside, window = window < length, np.minimum(window, length - 1)
        flat, each = window.reshape(-1), np.repeat(goals, self._n, axis=0)
        achieved, desired = rows.original(rows.achieved(next_obs)[flat]), rows.original(each)
        rewards = functions.rewards(achieved, desired).reshape(window.shape)
        judged = functions.ends(achieved, desired)
        ends = terminated[window] if judged is None else judged.reshape(window.shape)
        # A step counts if it is in the episode, and no step of the item before it has ended it.
        before = np.cumsum(ends & inside, axis=1) - (ends & inside)
        counts = inside & (before == 0)
        taken = counts.sum(axis=1)
        last = window[np.arange(len(first)), taken - 1]
        over = (ends & counts).any(axis=1)
        discounts = float(self._gamma) ** np.arange(self._n)
        return {
            "obs": rows.with_goals(obs[first], goals),
            "action": actions[first],
            "reward": (rewards * counts * discounts).sum(axis=1).astype(np.float32),
            "discount": np.where(over, 0.0, float(self._gamma) ** taken).astype(np.float32),
            "next_obs": rows.with_goals(next_obs[last], goals),
            "weights_version": versions[first],
        }

    def _chosen(self, first: NDArray[np.int64], length: int) -> NDArray[np.int64]:
        """The steps `[N]` whose achieved goals are the goals of items that begin at the steps `first` `[N]`."""
        match self._strategy:
            case "future":
                return self._rng.integers(first, length)
            case "final":
                return np.full(len(first), length - 1)
        return self._rng.integers(0, length, len(first))
