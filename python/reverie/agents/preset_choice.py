"""The choice of an environment's preset: its own file, the agent's defaults for its kind, or the nearest one.

An agent's folder has one file per environment, and may have `defaults/`, with settings for all other environments of a
kind: `KINDS` names the files. Other folders in it are presets with a name, such as "droq".
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reverie.agents.atari import is_game
from reverie.agents.core import Preset
from reverie.agents.env_settings import EnvSettings
from reverie.agents.environments import EnvSpec, describe
from reverie.agents.presets import PresetError, changed_environment, load

DEFAULT_REPLAY_BYTES = 4 * 2**30
"""The most memory that an environment without a preset gives to its replay buffer."""
DEFAULTS = "defaults"
KINDS = ("images", "discrete", "continuous")
"""Kinds of environments: images with any actions, and other observations with discrete or with continuous ones."""
NAMESPACES = ("ALE", "MinAtar")
"""Namespaces of ids whose environments show images. The preset of `ALE/Pong-v5` is the file `ALE_Pong-v5.toml`."""
WALKERS = ("Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "Swimmer", "Walker2d")
"""Environments of MuJoCo that share a preset: bodies that learn to move."""
COMMON = ("CartPole-v1", "Pendulum-v1")
"""Environments whose settings serve others of their kind best: they were tuned first, and learn in few steps."""


def for_environment(
    folder: Path,
    config_class: type[Any],
    env_id: str,
    path: Path | None = None,
    environment: Mapping[str, Any] = MappingProxyType({}),
    agent: str = "",
) -> Preset:
    """The preset of an environment in an agent's folder, or the one that `path` names, with changes of `[environment]`.

    An environment without one takes the agent's defaults for its kind, if the folder has them, else the settings of
    another environment of its kind. The target of another environment is never taken: it becomes Gymnasium's threshold,
    or None.
    Raises `PresetError`, and what `describe` raises for an environment that cannot be made.
    """
    if path is not None:
        named = _named(folder, env_id, Path(path))
        preset = _with_changes(load(named, config_class), environment, agent)
        if named.name == _file(folder, env_id).name or not named.resolve().is_relative_to(folder.resolve()):
            return preset
        spec = describe(env_id, preset.environment)
        preset = _with_own_target(preset, _words(named), spec)
        return dataclasses.replace(preset, config=_with_less_replay(preset.config, spec))
    own = _file(folder, env_id)
    if own.is_file():
        return _with_changes(load(own, config_class), environment, agent)
    spec = describe(env_id, changed_environment(folder, EnvSettings(), environment, agent))
    defaults = folder / DEFAULTS / f"{kind_of(spec)}.toml"
    if defaults.is_file() and not any(_are_related(one, spec.env_id) for one in _environments(folder)):
        file = defaults
    else:
        file = _file(folder, _nearest_of_kind(folder, spec))
    written = load(file, config_class)
    found = dataclasses.replace(written, environment=_fitting(written.environment, spec))
    preset = _with_own_target(found, _words(file), spec)
    raw = [name for name in ("observations", "rewards") if getattr(written.environment, f"normalise_{name}")]
    if spec.settings.network and raw:
        note = f"{preset.note}; {' and '.join(raw)} are not normalised, since network is set"
        preset = dataclasses.replace(preset, note=note)
    preset = _with_changes(preset, environment, agent)
    return dataclasses.replace(preset, config=_with_less_replay(preset.config, spec))


def _with_changes(preset: Preset, environment: Mapping[str, Any], agent: str) -> Preset:
    changed = changed_environment(preset.path, preset.environment, environment, agent)
    return dataclasses.replace(preset, environment=changed)


def kind_of(spec: EnvSpec) -> str:
    """The kind of an environment, one of `KINDS`."""
    if spec.has_images:
        return "images"
    return "discrete" if spec.num_actions is not None else "continuous"


def _words(path: Path) -> str:
    """A description of the file, for the preset's note."""
    if path.parent.name == DEFAULTS:
        actions = "" if path.stem == "images" else " actions"
        return f"its agent's defaults for {path.stem}{actions}"
    return f"the settings of the preset for {environment_of(path)}"


def _fitting(settings: EnvSettings, spec: EnvSpec) -> EnvSettings:
    """Settings that were not made for this environment, as it takes them.

    Without numbers there are none to normalise, and layers of the user's own read observations as they are.
    """
    own = bool(spec.settings.network)
    numbers = any(leaf.kind == "numbers" for leaf in spec.parts) and not own
    return dataclasses.replace(
        settings,
        normalise_observations=settings.normalise_observations and numbers,
        normalise_rewards=settings.normalise_rewards and not own,
    )


def _with_own_target(preset: Preset, what: str, spec: EnvSpec) -> Preset:
    target, other = spec.reward_threshold, spec.settings.evaluation_env
    whose = f"that of {other}" if other else "its own"
    aim = "it has no target and trains to its last step" if target is None else f"its target is {whose}, {target:g}"
    note = f"{spec.env_id} takes {what}; {aim}"
    return dataclasses.replace(preset, run=dataclasses.replace(preset.run, target_return=target), note=note)


def _with_less_replay(config: Any, spec: EnvSpec) -> Any:
    """The settings with a replay buffer that takes at most `DEFAULT_REPLAY_BYTES` for observations."""
    capacity = getattr(config, "capacity", None)
    most = max(1, DEFAULT_REPLAY_BYTES // spec.stored_bytes)
    if capacity is None or capacity <= most:
        return config
    starts = min(config.learning_starts, most)
    return dataclasses.replace(config, capacity=most, learning_starts=starts)


def _nearest_of_kind(folder: Path, spec: EnvSpec) -> str:
    """The environment with a preset that is nearest: of the same kind, then by its name, then the most common."""
    known = _environments(folder)
    if not known:
        raise PresetError(folder, "has no presets: write one, and name the file")
    alike = [one for one in known if _has_images(one) == spec.has_images] or known
    alike = [one for one in alike if _family(one) == _family(spec.env_id)] or [*filter(is_game, alike)] or alike
    bare = {_bare(one): one for one in alike}
    named = difflib.get_close_matches(_bare(spec.env_id), bare, n=1)
    return bare[named[0]] if named else next((one for one in COMMON if one in alike), alike[0])


def _are_related(one: str, other: str) -> bool:
    """Whether these are versions of one environment, or of one family, such as two games of Atari's."""
    return _bare(one) == _bare(other) or (_family(one) == _family(other) != "")


def _family(env_id: str) -> str:
    """The environments that share a preset: those of a namespace, or the walkers; empty for all others."""
    return "walkers" if _bare(env_id) in WALKERS else _namespace(env_id)


def _has_images(known: str) -> bool:
    return is_game(known) or _namespace(known) in NAMESPACES


def _namespace(env_id: str) -> str:
    """ "ALE" of `ALE/Pong-v5`; empty without one."""
    return _bare(env_id).rpartition("/")[0]


def _bare(env_id: str) -> str:
    """The name of an environment: without its version, its module, and the options of a vector."""
    return (env_id.rpartition("(")[0] or env_id).rpartition(":")[2].partition("-v")[0]


def _named(folder: Path, env_id: str, path: Path) -> Path:
    """The file that `path` names: a preset of the agent by its name, or the file itself.

    A name such as "droq" is a folder of presets. The environment's own is taken, else that of a related environment.
    """
    known = _variants(folder).get(str(path), [])
    nearest_first = sorted(known, key=lambda one: _bare(one) != _bare(env_id))
    related = [_file(folder / path, one) for one in nearest_first if _are_related(one, env_id)]
    own = _file(folder / path, env_id), *related, _file(folder, str(path))
    for preset in own if not path.is_absolute() else ():
        if preset.is_file():
            return preset
    if known and not path.is_file():
        raise PresetError(path, f"is for {' and '.join(known)}, and not for {env_id}")
    if not path.suffix and not path.exists():
        others = [name for name, known in _variants(folder).items() if any(_are_related(one, env_id) for one in known)]
        presets = ", ".join([*others, *_environments(folder)])
        raise PresetError(path, f"is neither a file nor a preset of the agent; its presets are {presets}")
    return path


def _variants(folder: Path) -> dict[str, list[str]]:
    """The folders of presets by name, and the environments that each of them is for."""
    names = sorted({preset.parent.name for preset in folder.glob("*/*.toml")} - {DEFAULTS})
    return {name: _environments(folder / name) for name in names}


def _environments(folder: Path) -> list[str]:
    return sorted(environment_of(preset) for preset in folder.glob("*.toml"))


def _file(folder: Path, env_id: str) -> Path:
    return folder / f"{env_id.replace('/', '_')}.toml"


def environment_of(path: Path) -> str:
    """The environment of a preset in an agent's folder: `ALE_Pong-v5.toml` is for `ALE/Pong-v5`."""
    namespace, _, name = path.stem.partition("_")
    return f"{namespace}/{name}" if namespace in NAMESPACES else path.stem
