"""Gymnasium environments for agents: their description, early checks, and vectors of them."""

from __future__ import annotations

import difflib
import math
import traceback
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from reverie.agents import names
from reverie.agents.env_settings import DEFAULTS, EnvSettings
from reverie.agents.named_parts import PartError, load_part


class UnknownEnvironmentError(ValueError):
    """No environment of this id is registered. `.env_id`, `.nearest` (ids that look like it)."""

    def __init__(self, env_id: str, reason: str, nearest: tuple[str, ...]) -> None:
        self.env_id, self.nearest = env_id, nearest
        named = ":" in env_id  # the module is not the registry's
        lists = "" if named else "; `gymnasium.pprint_registry()` lists them"
        hint = f"; did you mean {' or '.join(nearest)}?" if nearest else lists
        super().__init__(f"no environment {env_id!r}: {reason}{hint}")


class UnsupportedEnvironmentError(ValueError):
    """The environment exists, but this agent cannot play it. The text names what would fit."""


@dataclass(frozen=True)
class EnvSpec:
    """The properties of an environment that an agent needs before it makes one."""

    env_id: str
    obs_shape: tuple[int, ...]
    obs_dtype: str
    num_actions: int | None
    """None if the actions are not discrete; `action_space` describes them."""
    action_space: str
    reward_threshold: float | None
    """The return at which Gymnasium counts the environment as solved."""
    action_low: tuple[float, ...] = ()
    """Bounds of continuous actions of shape `[A]`; empty for any others."""
    action_high: tuple[float, ...] = ()
    frame_stack: int | None = None
    """Number of frames that observations stack along the first axis; environments return only the newest frame."""
    reward_bound: float | None = None
    """Rewards are clipped to `[-reward_bound, reward_bound]` for learning; returns use unclipped rewards."""
    settings: EnvSettings = DEFAULTS
    """How the environment is made."""

    @property
    def num_inputs(self) -> int:
        """Numbers in an observation."""
        return math.prod(self.obs_shape)

    @property
    def has_images(self) -> bool:
        """Whether observations are images."""
        return self.frame_stack is not None or len(self.obs_shape) >= 3

    @property
    def obs_bytes(self) -> int:
        """Bytes of an observation."""
        return self.num_inputs * np.dtype(self.obs_dtype).itemsize

    @property
    def stored_bytes(self) -> int:
        """Bytes of a step's observations in a table, each frame stored once: an upper estimate."""
        return 2 * self.obs_bytes if self.frame_stack is None else self.obs_bytes // self.frame_stack

    @property
    def action_size(self) -> int:
        """Numbers in a continuous action; 0 for discrete ones."""
        return len(self.action_low)

    @property
    def action_bytes(self) -> int:
        """Bytes of an action in a table: float32 for every number, int64 for a discrete one."""
        return 4 * self.action_size or 8


def describe(env_id: str, settings: EnvSettings | None = None) -> EnvSpec:
    """Look the environment up and make it once, with the wrappers and limits of `settings`.

    Raises `UnknownEnvironmentError` if the id is unknown, has no version or a missing one, or names a module that
    cannot be imported; `UnsupportedEnvironmentError` if a package that the environment needs is missing, if making it
    raises, or if no agent here supports its observations or actions; and TypeError if `env_id` is not a str.
    """
    settings = DEFAULTS if settings is None else settings
    from reverie.agents import atari

    require_id(env_id)
    versioned = {known: known.rpartition("-v") for known in gymnasium.registry}
    versions = [known for known, (name, _, version) in versioned.items() if name == env_id and version.isdecimal()]
    if versions and env_id not in gymnasium.registry:  # a run's name and its presets are for one version
        newest = max(versions, key=lambda known: int(versioned[known][2]))
        raise UnknownEnvironmentError(env_id, "its id has no version", (newest,))
    if atari.is_game(env_id):
        return atari.describe(env_id, settings)
    try:
        env = make_one(env_id, settings)
    except UnsupportedEnvironmentError:
        raise
    except gymnasium.error.DependencyNotInstalled as error:
        raise UnsupportedEnvironmentError(f"{env_id} needs a package that is not installed: {error}") from error
    except gymnasium.error.NameNotFound as error:  # Gymnasium suggests names too, but worse ones
        reason = "the name is not registered"
        raise UnknownEnvironmentError(env_id, reason, nearest_environments(env_id)) from error
    except gymnasium.error.Error as error:
        raise UnknownEnvironmentError(env_id, _lower(error), nearest_environments(env_id)) from error
    except Exception as error:
        raise _not_made(env_id, error) from error
    try:
        space, actions = env.observation_space, env.action_space
        if not isinstance(space, gymnasium.spaces.Box):
            raise UnsupportedEnvironmentError(
                f"observations of {env_id} are {space}; agents here take one array (a Box): wrap the environment with"
                " gymnasium.wrappers.FlattenObservation"
            )
        if not space.shape:
            raise UnsupportedEnvironmentError(
                f"observations of {env_id} are single numbers, {space}; agents here take arrays with an axis: wrap the"
                " environment with gymnasium.wrappers.ReshapeObservation and the shape (1,)"
            )
        if isinstance(actions, gymnasium.spaces.Discrete) and actions.start != 0:
            raise UnsupportedEnvironmentError(f"actions of {env_id} start at {actions.start}; they must start at 0")
        threshold = env.spec.reward_threshold if env.spec is not None else None
        box = actions if isinstance(actions, gymnasium.spaces.Box) and len(actions.shape) == 1 else None
        bounded = box if box is not None and box.is_bounded() else None
        return EnvSpec(
            env_id=env_id,
            obs_shape=tuple(space.shape),
            obs_dtype=np.dtype(space.dtype).name,
            num_actions=int(actions.n) if isinstance(actions, gymnasium.spaces.Discrete) else None,
            action_space=str(actions),
            reward_threshold=threshold,
            action_low=() if bounded is None else tuple(bounded.low.tolist()),
            action_high=() if bounded is None else tuple(bounded.high.tolist()),
            settings=settings,
        )
    finally:
        env.close()


def require_id(env_id: object) -> None:
    """Raise TypeError unless this is a text."""
    if not isinstance(env_id, str):
        raise TypeError(
            f"env_id is a {type(env_id).__name__}, and must be the id of a registered environment: every role of a run"
            " makes its own; gymnasium.register(id, entry_point=...) takes anything that makes one"
        )


def _not_made(env_id: str, error: Exception) -> ValueError:
    """The error for an environment that raised when it was made or imported, with file and line."""
    module, colon, _ = env_id.rpartition(":")
    if colon and isinstance(error, ModuleNotFoundError):
        cause = error.__cause__ or error
        reason = f"its module {module} cannot be imported ({_lower(cause)})"
        return UnknownEnvironmentError(env_id, f"{reason}: install it, or add its folder to PYTHONPATH", ())
    last = traceback.extract_tb(error.__traceback__)[-1]
    return UnsupportedEnvironmentError(
        f"{env_id} cannot be made: {type(error).__name__}: {error} ({last.filename}, line {last.lineno})"
    )


def require_discrete(spec: EnvSpec, agent: str, *, frames: bool = False) -> None:
    """Raise `UnsupportedEnvironmentError` for an environment that an agent with discrete actions cannot play.

    `frames`: whether the agent can play stacks of frames.
    """
    if spec.num_actions is None:
        raise UnsupportedEnvironmentError(
            f"actions of {spec.env_id} are {spec.action_space}: {agent} picks one of a set (Discrete); continuous"
            f" actions need {', '.join(names('continuous'))}. CartPole-v1, Acrobot-v1 and MountainCar-v0 have discrete"
            " actions"
        )
    if not (frames and spec.frame_stack):
        _require_flat(spec, agent, "CartPole-v1")


def require_continuous(spec: EnvSpec, agent: str) -> None:
    """Raise `UnsupportedEnvironmentError` for an environment that an agent with bounded vectors cannot play."""
    if spec.num_actions is not None:
        raise UnsupportedEnvironmentError(
            f"actions of {spec.env_id} are {spec.action_space}: {agent} gives vectors of numbers (a Box); discrete"
            f" actions need {', '.join(names('discrete'))}. Pendulum-v1 and MountainCarContinuous-v0 have continuous"
            " actions"
        )
    if not spec.action_low:
        raise UnsupportedEnvironmentError(
            f"actions of {spec.env_id} are {spec.action_space}: {agent} gives vectors [A] within bounds; wrap the"
            " environment with gymnasium.wrappers.TransformAction and a Box that has bounds and one axis"
        )
    _require_flat(spec, agent, "Pendulum-v1")


def _require_flat(spec: EnvSpec, agent: str, fitting: str) -> None:
    if len(spec.obs_shape) >= 3:
        raise UnsupportedEnvironmentError(
            f"observations of {spec.env_id} are images of shape {spec.obs_shape}: {agent} takes flat ones, such as"
            f" those of {fitting}; Atari games (ALE/Pong-v5) are for dqn and apex-dqn"
        )


def make_one(
    env: EnvSpec | str, settings: EnvSettings | None = None, *, render: bool = False
) -> gymnasium.Env[Any, Any]:
    """One environment, for the evaluator: that of a spec, or of an id with `settings`.

    With `render` its `render()` returns pictures `[H, W, 3]` uint8.
    """
    from reverie.agents import atari

    env_id, settings = _id_and_settings(env, settings)
    if atari.is_game(env_id):
        return atari.Game(env_id, settings)
    # Environments without a `render_mode` raise for None, too.
    options: dict[str, Any] = {"render_mode": "rgb_array"} if render else {}
    if settings.time_limit is not None:
        options["max_episode_steps"] = settings.time_limit
    made: gymnasium.Env[Any, Any] = gymnasium.make(env_id, disable_env_checker=True, **options)
    for reference in settings.wrappers:
        made = _wrapped(env_id, made, reference)
    return made


def _id_and_settings(env: EnvSpec | str, settings: EnvSettings | None) -> tuple[str, EnvSettings]:
    if isinstance(env, EnvSpec):
        return env.env_id, env.settings
    return env, DEFAULTS if settings is None else settings


def _wrapped(env_id: str, env: gymnasium.Env[Any, Any], reference: str) -> gymnasium.Env[Any, Any]:
    try:
        wrapped = load_part(reference)(env)
    except PartError as error:
        env.close()
        raise UnsupportedEnvironmentError(f"wrapper {error}") from error
    except Exception as error:
        env.close()
        raise UnsupportedEnvironmentError(
            f"wrapper {reference!r} cannot wrap {env_id}: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(wrapped, gymnasium.Env):
        env.close()
        raise UnsupportedEnvironmentError(
            f"wrapper {reference!r} returns a {type(wrapped).__name__}, and must return a gymnasium.Env"
        )
    return wrapped


def make_vector(env: EnvSpec | str, num_envs: int) -> Any:
    """`num_envs` environments, stepped one after the other in this thread, under NEXT_STEP autoreset.

    A step that ends an episode returns its true last observation; the next step of that environment ignores the action
    and returns the first observation of a new episode (Gymnasium >= 1.0). For Atari games, an `atari.GameVector`.
    """
    from reverie.agents import atari

    env_id, settings = _id_and_settings(env, None)
    if atari.is_game(env_id):
        return atari.GameVector(env_id, num_envs, settings)
    return SyncVectorEnv([lambda: make_one(env)] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


def nearest_environments(env_id: str) -> tuple[str, ...]:
    """Registered ids similar to this one."""
    module, colon, name = env_id.rpartition(":")
    same_namespace = [known for known in gymnasium.registry if ("/" in known) == ("/" in name)]
    return tuple(module + colon + near for near in difflib.get_close_matches(name, same_namespace, n=3, cutoff=0.6))


def _lower(error: BaseException) -> str:
    text = str(error).strip().rstrip(".")
    return text[:1].lower() + text[1:]
