"""Episodes of a trained policy as a data set: what `iql`, `cql` and `cql-sac` train from, and an import reads."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from reverie import _checks, _native
from reverie.agents.actions import ActionEnumeration
from reverie.agents.continuous import ActionScale
from reverie.agents.environments import EnvSpec
from reverie.agents.observations import unpack
from reverie.agents.policies import TrainedPolicy
from reverie.integrations.datasets.exporting import Format, open_writer
from reverie.runners.reports.evaluation import Evaluation, Evaluator
from reverie.specs import TensorSpec

TOGETHER = 8
"""Environments that are played together."""
FIRST_SEED = 50_000
"""The first seed of the episodes, unless another is given: training and evaluations have others."""


@dataclass(frozen=True)
class RecordedEpisodes:
    """The outcome of `record_episodes`: the data set that was written."""

    path: Path
    format: str
    """"parquet", "minari" or "lerobot"."""
    episodes: Evaluation
    """The seeds of the episodes with their returns and lengths, in the order of the data set."""
    num_rows: int
    """Steps, and a last observation of each episode where the format has it."""
    seconds: float

    @property
    def num_steps(self) -> int:
        """Steps of all episodes."""
        return sum(self.episodes.lengths)


def record_episodes(
    policy: TrainedPolicy,
    path: Path | str,
    *,
    steps: int | None = None,
    episodes: int | None = None,
    greedy: bool = False,
    random_actions: float = 0.0,
    seed: int = FIRST_SEED,
    format: Format = "parquet",
    progress: Callable[[int, int], object] | None = None,
    **options: Any,
) -> RecordedEpisodes:
    """Play a policy in the environment that it was trained in, and write the episodes to a new file or folder.

    The columns are `obs` (as the environment with its wrappers returns it, nests as columns `obs/NAME`, frames
    stacked), `action` (as the environment takes it: int64, or float32), `reward` (float32, not clipped or scaled),
    `terminated` and `truncated`. Each episode has one more row with its last observation. Episodes of Atari end with
    the game and not with a life. A Parquet file names its environment and agent (`DatasetSource.details`).

    The same arguments give the same data set on the same kind of processor. Blocks until it is written. Up to 8
    episodes are in memory: an environment that never ends needs a `time_limit`.

    Args:
        policy: what `reverie.load_policy` returns.
        path: the file (Parquet) or folder, which must not exist. It has its name only once it is complete.
        steps: whole episodes are played until they have at least this number of steps.
        episodes: the number of episodes, in the place of `steps`.
        greedy: True takes the best actions. False draws them as `policy(observation, greedy=False)` does: agents whose
            actors have an epsilon each (Ape-X DQN, R2D2) draw with the smallest one, and noise is independent from step
            to step. For other actions there is `random_actions`.
        random_actions: the share of actions that are uniform ones in the place of the policy's, in [0, 1].
        seed: of the actions, and of the first episode; the next ones have `seed + 1`, `seed + 2` and so on. So seeds of
            two data sets must be further apart than the first one has episodes.
        format: "parquet", "minari" or "lerobot"; each needs its extra, such as `reverie[parquet]`.
        progress: called with the steps and the episodes that are written, after each one.
        options: of the format, see `reverie.integrations.datasets.export_table`.

    Raises:
        ValueError: for arguments out of their range, or a policy that only acts greedily. FileExistsError: something is
            at the path, or was written there meanwhile. DatasetError: the format cannot hold such episodes. OSError,
            ImportError.
        EnvironmentCrashedError: (of `reverie.agents.core`) the environment raised. No file is left then.
    """
    if (steps is None) == (episodes is None):
        raise ValueError("give either steps or episodes")
    if format not in get_args(Format):
        raise ValueError(f"format must be one of {', '.join(map(repr, get_args(Format)))}, got {format!r}")
    wanted_steps = 0 if steps is None else _checks.count("steps", steps, 1)
    wanted_episodes = 0 if episodes is None else _checks.count("episodes", episodes, 1)
    first_seed, path, started = _checks.count("seed", seed, 0), _checks.path("path", path), time.monotonic()
    share = _checks.number("random_actions", random_actions)
    if not 0 <= share <= 1:
        raise ValueError(f"random_actions is {share}, and must be a share from 0 to 1")
    if path.exists():
        raise FileExistsError(17, "exists already; name another file or folder", str(path))
    if options.get("environment", policy.spec.env_id) != policy.spec.env_id:
        raise ValueError(f"environment is {options['environment']!r}, and the policy plays {policy.spec.env_id}")
    if not greedy and not policy.recurrent and not hasattr(policy.policy, "sample"):
        raise ValueError(f"the policy of {policy.agent.name} has no `sample`, and so no exploration: give greedy=True")
    spec, rng = _as_in_training(policy.spec), np.random.default_rng(first_seed)
    player = _Player(policy, spec, rng, greedy=greedy, random_actions=share)
    path.parent.mkdir(parents=True, exist_ok=True)
    like = _row(spec)
    leaves, _ = _native.flatten(like)
    specs = [TensorSpec(leaf.shape, leaf.dtype) for leaf in leaves]
    together = min(TOGETHER, wanted_episodes or TOGETHER)
    parts: list[Evaluation] = []
    num_steps = num_episodes = 0
    with (
        open_writer(format, path, like, specs, "steps", options) as writer,
        closing(Evaluator(spec, together)) as evaluator,
    ):
        while num_steps < wanted_steps or num_episodes < wanted_episodes:
            first, kept = first_seed + num_episodes, 0
            if wanted_episodes:
                num = min(together, wanted_episodes - num_episodes)
            elif num_episodes == 0:  # which shows how long episodes are
                num = 1
            else:
                num = min(together, math.ceil((wanted_steps - num_steps) * num_episodes / num_steps))
            recorder = _Recorder()
            played = evaluator.evaluate(player, range(first, first + num), recorder=recorder)
            while kept < num and (num_steps < wanted_steps or num_episodes < wanted_episodes):
                writer.write_episode(_columns(spec, recorder.rows[kept]))
                num_steps, num_episodes, kept = num_steps + played.lengths[kept], num_episodes + 1, kept + 1
                if progress is not None:
                    progress(num_steps, num_episodes)
            parts.append(played.head(kept))
        recorded = Evaluation.joined(parts)
        if format == "parquet":
            writer.describe(
                {
                    "env": spec.env_id,
                    "agent": policy.agent.name,
                    "trained_steps": policy.run.env_steps,
                    "exploration": "none" if greedy else "the policy's",
                    "random_actions": share,
                    "first_seed": first_seed,
                    "mean_return": round(recorded.mean_return, 3),
                }
            )
    num_rows = num_steps + num_episodes - getattr(writer, "num_left_out", 0)
    return RecordedEpisodes(path, format, recorded, num_rows, time.monotonic() - started)


def _as_in_training(spec: EnvSpec) -> EnvSpec:
    """The description whose environments an evaluator makes as actors make theirs."""
    return replace(spec, settings=replace(spec.settings, evaluation_env="", evaluation_wrappers=None))


def _row(spec: EnvSpec) -> dict[str, Any]:
    """Zeros of the form of a row."""
    obs = np.zeros(spec.obs_shape, spec.obs_dtype)
    shape = (spec.action_size or len(spec.action_sizes),) if spec.num_actions is None or spec.action_sizes else ()
    kind = np.float32 if spec.num_actions is None else np.int64
    return {
        "obs": unpack(spec.leaves, obs) if spec.leaves else obs,
        "action": np.zeros(shape, kind),
        "reward": np.zeros((), np.float32),
        "terminated": np.zeros((), np.bool_),
        "truncated": np.zeros((), np.bool_),
    }


def _columns(spec: EnvSpec, rows: list[dict[str, Any]]) -> list[NDArray[Any]]:
    """The columns of an episode in the order of a file's: `[T, ...]`."""
    obs = np.stack([np.asarray(row["obs"], spec.obs_dtype) for row in rows])
    like = _row(spec)
    others = {name: zero for name, zero in like.items() if name != "obs"}
    stacked = {
        name: np.stack([np.asarray(row.get(name, zero), zero.dtype) for row in rows]) for name, zero in others.items()
    }
    leaves, _ = _native.flatten({"obs": unpack(spec.leaves, obs) if spec.leaves else obs, **stacked})
    return list(leaves)


class _Recorder:
    """Keeps the rows of episodes that are played together."""

    def __init__(self) -> None:
        self.rows: dict[int, list[dict[str, Any]]] = {}

    def begin(self, episode: int, obs: NDArray[Any]) -> None:
        """The first row, whose action follows."""
        self.rows[episode] = [{"obs": np.array(obs)}]

    def step(
        self, episode: int, action: NDArray[Any], reward: float, terminated: bool, truncated: bool, obs: NDArray[Any]
    ) -> None:
        """Complete the newest row, and begin the next one."""
        rows = self.rows[episode]
        rows[-1] |= {"action": np.array(action), "reward": reward, "terminated": terminated, "truncated": truncated}
        rows.append({"obs": np.array(obs)})


class _Player:
    """A policy whose actions explore, and of which a share is uniform."""

    def __init__(
        self,
        policy: TrainedPolicy,
        spec: EnvSpec,
        rng: np.random.Generator,
        *,
        greedy: bool,
        random_actions: float,
    ) -> None:
        self._policy, self._spec, self._rng = replace(policy, rng=rng), spec, rng
        self._greedy, self._share = greedy, random_actions
        self.recurrent, self.initial_state = policy.recurrent, policy.initial_state

    def __call__(self, observations: NDArray[Any]) -> NDArray[Any]:
        return self._some_uniform(self._policy(observations, greedy=self._greedy))

    def step(self, observations: NDArray[Any], state: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[np.float32]]:
        actions, after = self._policy.step(observations, state, greedy=self._greedy)
        return self._some_uniform(actions), after

    def _some_uniform(self, actions: NDArray[Any]) -> NDArray[Any]:
        if not self._share:
            return actions
        chosen = self._rng.random(len(actions)) < self._share
        actions = np.array(actions)
        actions[chosen] = self._uniform(len(actions))[chosen]
        return actions

    def _uniform(self, count: int) -> NDArray[Any]:
        """Uniform actions, as environments take them."""
        spec = self._spec
        if spec.num_actions is None:
            drawn = self._rng.uniform(-1.0, 1.0, (count, spec.action_size)).astype(np.float32)
            return ActionScale(spec).to_env(drawn)
        return ActionEnumeration(spec.action_sizes).to_env(self._rng.integers(spec.num_actions, size=count))
