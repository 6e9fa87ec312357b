"""Gymnasium environments for agents: their description, early checks, and vectors of them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import FrameStackObservation, TimeLimit

from reverie.agents import env_plugins
from reverie.agents.action_dtypes import ActionsOfSpace, own_dtype
from reverie.agents.env_errors import UnknownEnvironmentError as UnknownEnvironmentError
from reverie.agents.env_errors import UnsupportedEnvironmentError as UnsupportedEnvironmentError
from reverie.agents.env_ids import id_and_options, id_of, maker_of, nearest_environments, why_unknown, without_options
from reverie.agents.env_settings import DEFAULTS, EnvSettings
from reverie.agents.env_spec import EnvSpec as EnvSpec
from reverie.agents.error_places import is_of_call, place_of
from reverie.agents.first_step import FirstStepChecked
from reverie.agents.named_parts import PartError, load_part
from reverie.agents.observations import (
    AsRows,
    MarkedRows,
    ObservationLeaf,
    UnsupportedSpaceError,
    image_note,
    leaves_of,
    look_like_rows,
    row_form,
)
from reverie.agents.vectors import FrameVector, OneOfVector, OwnVector, source_of
from reverie.agents.wrapper_checks import require_shared_statistics
from reverie.agents.wrappers import flat_space


def describe(env: str | Callable[..., Any], settings: EnvSettings | None = None) -> EnvSpec:
    """Look the environment up and make it once, with the wrappers and limits of `settings`.

    `env` is an id, with literal options of `gymnasium.make` if it has any (`FrozenLake-v1(is_slippery=False)`), or a
    class or function that makes environments, or vectors of them (`vectors.VectorFactory`).

    Raises `UnknownEnvironmentError` if the id is unknown, has no version or a missing one, or names a module that
    cannot be imported; `UnsupportedEnvironmentError` if a package that the environment needs is missing, if making it
    raises, if no agent here supports its observations or actions, or if those of the environment for evaluations, which
    is made too, differ; and TypeError for an `env` of another type.
    """
    settings = DEFAULTS if settings is None else settings
    env_id = id_of(env)
    spec = _described(env_id, settings)
    if not settings.evaluation_env and settings.evaluation_wrappers is None:
        return spec
    evaluated = _described(settings.evaluation_env or env_id, settings.for_evaluation())
    _require_same_spaces(spec, evaluated)
    return replace(spec, reward_threshold=evaluated.reward_threshold)


def _require_same_spaces(spec: EnvSpec, evaluated: EnvSpec) -> None:
    """Raise `UnsupportedEnvironmentError` if a policy of `spec` cannot play the environment for evaluations."""
    found = evaluated.difference(spec)
    if found is not None:
        raise UnsupportedEnvironmentError(
            f"{found.subject} {found.this} in {evaluated.env_id} for evaluations, and {found.other} in {spec.env_id},"
            " where actors learn: change evaluation_env or evaluation_wrappers, so that both have the same spaces"
        )


def _described(env_id: str, settings: EnvSettings) -> EnvSpec:
    from reverie.agents import atari

    name = without_options(env_id)
    env_plugins.register_for(name)
    versioned = {known: known.rpartition("-v") for known in gymnasium.registry}
    versions = [known for known, (own, _, version) in versioned.items() if own == name and version.isdecimal()]
    if versions and name not in gymnasium.registry:  # a run's name and its presets are for one version
        newest = max(versions, key=lambda known: int(versioned[known][2]))
        raise UnknownEnvironmentError(env_id, "its id has no version", (newest,))
    if atari.is_game(env_id):
        if name != env_id:
            raise UnsupportedEnvironmentError(f"{env_id} has options, and Atari games take none here: name {name}")
        return atari.describe(env_id, settings)
    made = _made(env_id, settings)
    try:
        return _description(env_id, made, settings)
    finally:
        made.close()


def _made(env_id: str, settings: EnvSettings) -> gymnasium.Env[Any, Any]:
    """The environment with its wrappers; what goes wrong is raised as the error for users."""
    try:
        return _wrapped(env_id, settings)
    except (UnknownEnvironmentError, UnsupportedEnvironmentError):
        raise
    except gymnasium.error.DependencyNotInstalled as error:
        raise UnsupportedEnvironmentError(f"{env_id} needs a package that is not installed: {error}") from error
    except gymnasium.error.NameNotFound as error:  # Gymnasium suggests names too, but worse ones
        raise UnknownEnvironmentError(env_id, why_unknown(env_id), nearest_environments(env_id)) from error
    except gymnasium.error.Error as error:
        raise UnknownEnvironmentError(env_id, _lower(error), nearest_environments(env_id)) from error
    except Exception as error:
        raise _not_made(env_id, error) from error


def _description(env_id: str, env: gymnasium.Env[Any, Any], settings: EnvSettings) -> EnvSpec:
    leaves, actions = _leaves(env_id, env), env.action_space
    _require_actions(env_id, actions, in_vector=isinstance(env, OneOfVector))
    shape, dtype = row_form(leaves)
    if settings.frame_stack is not None:
        shape = (settings.frame_stack, *shape)
    if settings.normalise_observations and not any(leaf.kind == "numbers" for leaf in leaves):
        raise UnsupportedEnvironmentError(
            f"normalise_observations is true, and observations of {env_id} have no numbers to normalise: networks scale"
            " images by themselves; leave it out"
        )
    bounded = actions if isinstance(actions, spaces.Box) and len(actions.shape) == 1 and _is_bounded(actions) else None
    sizes = _action_sizes(actions)
    return EnvSpec(
        env_id=env_id,
        obs_shape=shape,
        obs_dtype=dtype,
        num_actions=int(actions.n) if isinstance(actions, spaces.Discrete) else math.prod(sizes) if sizes else None,
        action_space=str(actions),
        reward_threshold=_threshold(env),
        action_low=() if bounded is None else tuple(bounded.low.tolist()),
        action_high=() if bounded is None else tuple(bounded.high.tolist()),
        frame_stack=settings.frame_stack,
        settings=settings,
        leaves=() if _is_vector(leaves) else leaves,
        action_sizes=sizes,
        action_dtype=own_dtype(actions),
        # Layers of the user's own get arrays as they are.
        note="" if settings.network else image_note(env_id, getattr(env, "own_space", env.observation_space)),
    )


def _require_actions(env_id: str, actions: spaces.Space[Any], *, in_vector: bool) -> None:
    """Raise `UnsupportedEnvironmentError` for actions of a kind that no agent here gives.

    `in_vector`: of a vector of environments, which takes no wrapper of single ones.
    """
    if not (isinstance(actions, spaces.Discrete | spaces.Box) or _action_sizes(actions)):
        try:
            flat = type(flat_space(actions)).__name__
            remedy = f"{_wrapped_in(FLAT, in_vector)}, which makes a {flat} of them"
        except TypeError:
            transform = "vector.TransformAction(envs, function, space, single_space)"
            remedy = (
                "name in wrappers a function of yours that returns gymnasium.wrappers."
                f"{transform if in_vector else 'TransformAction(env, function, space)'} with such a space"
            )
        raise UnsupportedEnvironmentError(
            f"actions of {env_id} are {actions}, and agents here give Discrete, MultiDiscrete and MultiBinary with one"
            f" axis, and a Box of floats: {remedy}"
        )
    if isinstance(actions, spaces.Discrete | spaces.MultiDiscrete) and np.any(actions.start):
        raise UnsupportedEnvironmentError(
            f"actions of {env_id} start at {actions.start}; they must start at 0:"
            f" {_wrapped_in(FROM_ZERO, in_vector)}, which adds the start"
        )
    if isinstance(actions, spaces.Box) and np.dtype(actions.dtype).kind != "f":
        raise UnsupportedEnvironmentError(
            f"actions of {env_id} are {actions}, and agents here give floats for a Box: name a wrapper that converts"
            " them to MultiDiscrete, or to a Box of floats that it rounds"
        )


def _wrapped_in(reference: str, in_vector: bool) -> str:
    """The end of a message: how the user applies a wrapper of single environments."""
    if not in_vector:
        return f"name {reference} in wrappers"
    return f"let the factory of the vector wrap each environment in {reference.replace(':', '.')}"


def _is_bounded(box: spaces.Box) -> bool:
    """Whether the bounds, and their distances, are finite in float32, which actions are computed in."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(box.high.astype(np.float32) - box.low.astype(np.float32)).all())


def _threshold(env: gymnasium.Env[Any, Any]) -> float | None:
    if isinstance(env, OneOfVector):
        return env.reward_threshold
    return env.spec.reward_threshold if env.spec is not None else None


def _leaves(env_id: str, env: gymnasium.Env[Any, Any]) -> tuple[ObservationLeaf, ...]:
    if isinstance(env, OneOfVector):
        return env.leaves
    for name in ("observation_space", "action_space"):
        if getattr(env, name, None) is None:
            raise UnsupportedEnvironmentError(f"{env_id} has no {name}: set it in its class or its __init__")
    try:
        return leaves_of(env.observation_space)
    except UnsupportedSpaceError as error:
        raise UnsupportedEnvironmentError(f"observations of {env_id} cannot be read: {error}") from error


def _is_vector(leaves: tuple[ObservationLeaf, ...]) -> bool:
    """Whether the observation is one array of numbers, which needs no description and no conversion."""
    return len(leaves) == 1 and leaves[0].kind == "numbers" and leaves[0].path == () and leaves[0].shape != ()


def _action_sizes(actions: spaces.Space[Any]) -> tuple[int, ...]:
    """The choices for each part of a vector of choices; empty for other spaces."""
    if isinstance(actions, spaces.MultiDiscrete) and len(actions.shape) == 1:
        return tuple(map(int, actions.nvec))
    if isinstance(actions, spaces.MultiBinary) and len(actions.shape) == 1:
        return (2,) * int(actions.shape[0])
    return ()


def _not_made(env_id: str, error: Exception) -> ValueError:
    """The error for an environment that raised when it was made or imported, with file and line."""
    module, colon, _ = env_id.rpartition(":")
    if colon and module not in sys.modules and isinstance(error, ModuleNotFoundError):
        cause = error.__cause__ or error
        reason = f"its module {module} cannot be imported ({_lower(cause)})"
        return UnknownEnvironmentError(env_id, f"{reason}: install it, or add its folder to PYTHONPATH", ())
    if is_of_call(error):
        how = "its arguments follow its name in brackets, as literals"
        hint = "" if env_id.endswith(")") else f"; {how}: {env_id}(name=value)"
        return UnsupportedEnvironmentError(f"{env_id} cannot be made: TypeError: {error}{hint}")
    return UnsupportedEnvironmentError(f"{env_id} cannot be made: {place_of(error)}")


FLAT, FROM_ZERO = "reverie.agents.wrappers:FlatActions", "reverie.agents.wrappers:ActionsFromZero"
PICTURES = "rgb_array"
"""The mode in which `render()` of an environment returns pictures `[H, W, 3]` uint8."""


def make_one(env: EnvSpec | str, *, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """One environment, for the evaluator: that of a spec, or of an id as it is registered.

    Its observations are arrays of the spec's `obs_shape` and `obs_dtype`: nests are rows, frames are stacked.
    `render_mode` is one of Gymnasium's, such as `PICTURES`. Atari games and vectors of environments have pictures only:
    `UnsupportedEnvironmentError` for another.
    """
    from reverie.agents import atari

    env_id, settings = _id_and_settings(env)
    if atari.is_game(env_id):
        _require_pictures(env_id, render_mode)
        return atari.Game(env_id, settings)
    made = _with_arrays(env_id, settings, render_mode)
    if settings.frame_stack is not None:
        made = FrameStackObservation(made, settings.frame_stack)
    return MarkedRows(made) if isinstance(env, EnvSpec) and look_like_rows(env.leaves) else made


def make_vector(env: EnvSpec | str, num_envs: int, *, newest_frames: bool = False) -> Any:
    """`num_envs` environments, stepped one after the other in this thread, under NEXT_STEP autoreset.

    A step that ends an episode returns its true last observation; the next step of that environment ignores the action
    and returns the first observation of a new episode (Gymnasium >= 1.0). With `newest_frames`, environments whose
    observations are stacks return the newest frame only, under SAME_STEP autoreset: Atari games as an
    `atari.GameVector`, others as a `vectors.FrameVector`. An id that names a vector gives an `OwnVector`.
    """
    from reverie.agents import atari

    env_id, settings = _id_and_settings(env)
    own = source_of(env_id, settings)
    if own is not None:
        return OwnVector(own, num_envs)
    if newest_frames and atari.is_game(env_id):
        return atari.GameVector(env_id, num_envs, settings)
    if newest_frames and settings.frame_stack is not None:
        return FrameVector(
            SyncVectorEnv([lambda: _with_arrays(env_id, settings)] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
        )
    return SyncVectorEnv([lambda: make_one(env)] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


def _id_and_settings(env: EnvSpec | str) -> tuple[str, EnvSettings]:
    return (env.env_id, env.settings) if isinstance(env, EnvSpec) else (env, DEFAULTS)


def _require_pictures(env_id: str, render_mode: str | None) -> None:
    if render_mode not in (None, PICTURES):
        raise UnsupportedEnvironmentError(f"render_mode is {render_mode!r}, and {env_id} is drawn in {PICTURES!r} only")


def _with_arrays(env_id: str, settings: EnvSettings, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """The environment with its wrappers, whose observations are arrays without a stack."""
    try:
        env = _wrapped(env_id, settings, render_mode)
    except gymnasium.error.NameNotFound as error:
        raise UnknownEnvironmentError(
            env_id,
            "the name is not registered in this process, and each process of a run registers environments by importing"
            f" their module: register it at the top of a module, and name it as module:{env_id}",
            (),
            listed=False,
        ) from error
    leaves = _leaves(env_id, env)
    if isinstance(env, OneOfVector):  # its observations are rows
        return env
    env = FirstStepChecked(env, env_id, leaves, partial(_wrapped, env_id, settings))
    env = ActionsOfSpace(env) if own_dtype(env.action_space) else env
    shape, dtype = row_form(leaves)
    space = env.observation_space
    kept = isinstance(space, spaces.Box) and space.shape == shape and np.dtype(space.dtype) == dtype
    return env if kept and np.dtype(dtype).kind == "f" else AsRows(env, leaves)


def _wrapped(env_id: str, settings: EnvSettings, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """The environment with its own time limit and wrappers."""
    own = source_of(env_id, settings)
    if own is not None:
        _require_pictures(env_id, render_mode)
        return OneOfVector(own, render=render_mode is not None)
    env = _registered_or_named(env_id, settings.time_limit, render_mode)
    try:
        for reference in settings.wrappers:
            env = _wrap(env_id, env, reference)
        require_shared_statistics(env_id, env)
    except UnsupportedEnvironmentError:
        env.close()
        raise
    return env


def _registered_or_named(env_id: str, time_limit: int | None, render_mode: str | None) -> gymnasium.Env[Any, Any]:
    """The environment that Gymnasium makes of an id, or the class or function that the id names."""
    maker = maker_of(env_id)
    # Environments without a `render_mode` raise for None, too.
    mode = {} if render_mode is None else {"render_mode": render_mode}
    if maker is None:
        name, options = id_and_options(env_id)
        limit = {} if time_limit is None else {"max_episode_steps": time_limit}
        return gymnasium.make(name, disable_env_checker=True, **{**options, **mode, **limit})
    if mode and not maker.takes("render_mode"):
        raise UnsupportedEnvironmentError(f"{env_id} draws no pictures: it needs a parameter render_mode")
    takes_limit = time_limit is not None and "max_episode_steps" in maker.parameters
    env: Any = maker.make(**mode, **({"max_episode_steps": time_limit} if takes_limit else {}))
    if not isinstance(env, gymnasium.Env):
        raise UnsupportedEnvironmentError(
            f"{env_id} returns a {type(env).__name__}, and must return a gymnasium.Env: {_instead_of(env)}"
        )
    if time_limit is None or takes_limit:
        return env
    own = None if env.spec is None else env.spec.max_episode_steps
    if own is not None and own < time_limit:
        env.close()
        raise UnsupportedEnvironmentError(
            f"time_limit is {time_limit}, and {env_id} has a limit of {own} steps of its own: leave that out, or give"
            " the function a parameter max_episode_steps"
        )
    return TimeLimit(env, time_limit)


def _instead_of(made: Any) -> str:
    """The remedy for an object that is not an environment of Gymnasium."""
    if isinstance(made, VectorEnv):
        return "a function of vectors has a parameter num_envs"
    if hasattr(made, "possible_agents"):  # as environments of PettingZoo have
        return "environments of several agents are not supported; give one that is for a single agent"
    return "give a class that derives from it, or a function that returns one"


def _wrap(env_id: str, env: gymnasium.Env[Any, Any], reference: str) -> gymnasium.Env[Any, Any]:
    try:
        wrapped = load_part(reference)(env)
    except PartError as error:
        raise UnsupportedEnvironmentError(f"wrapper {error}") from error
    except Exception as error:
        raise UnsupportedEnvironmentError(
            f"wrapper {reference!r} cannot wrap {env_id}: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(wrapped, gymnasium.Env):
        raise UnsupportedEnvironmentError(
            f"wrapper {reference!r} returns a {type(wrapped).__name__}, and must return a gymnasium.Env"
        )
    return wrapped


def _lower(error: BaseException) -> str:
    text = str(error).strip().rstrip(".")
    return text[:1].lower() + text[1:]
