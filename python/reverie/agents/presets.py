"""Preset files: one TOML per environment in the agent's folder, with the tables `[agent]` and `[run]`.

The folder may have `defaults/`, with settings for all other environments of a kind: `KINDS` names the files. A table
`[environment]` is optional: wrappers, a time limit, and the other fields of `EnvSettings`; so is `[log]`.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, get_args, get_type_hints

from reverie._picklable import Picklable
from reverie.agents.atari import is_game
from reverie.agents.core import Preset, RunSettings
from reverie.agents.env_settings import EnvSettings
from reverie.agents.environments import EnvSpec, describe
from reverie.agents.log_settings import LogSettings
from reverie.agents.settings import converted, is_optional, python_value
from reverie.agents.synonyms import suggestion, synonym

Settings = TypeVar("Settings")

TABLES = ("agent", "run", "environment")
DEFAULT_REPLAY_BYTES = 4 * 2**30
"""The most memory that an environment without a preset gives to its replay buffer."""
NONE = "none"
"""The word for None, which TOML does not have, where a setting is given as text."""
DEFAULTS = "defaults"
KINDS = ("images", "discrete", "continuous")
"""Kinds of environments: images with any actions, and other observations with discrete or with continuous ones."""
NAMESPACES = ("ALE", "MinAtar")
"""Namespaces of ids whose environments show images. The preset of `ALE/Pong-v5` is the file `ALE_Pong-v5.toml`."""
WALKERS = ("Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "Swimmer", "Walker2d")
"""Environments of MuJoCo that share a preset: bodies that learn to move."""
COMMON = ("CartPole-v1", "Pendulum-v1")
"""Environments whose settings serve others of their kind best: they were tuned first, and learn in few steps."""


class PresetError(Picklable, ValueError):
    """A preset file is missing or unreadable, or a setting is unknown or invalid. `.path` (of the preset), `.reason`"""

    def __init__(self, path: Path, reason: str, agent: str = "") -> None:
        """`agent` is the name of the agent whose settings were given otherwise than in the file."""
        self.path, self.reason = path, reason
        whose = f"preset {path}" if not agent else f"settings of {agent}"
        super().__init__(f"{agent} {reason}" if agent and reason.startswith("has no") else f"{whose}: {reason}")


def load(path: Path, config_class: type[Any]) -> Preset:
    """Read a preset. Raises `PresetError` with file and name for unknown names, wrong types and invalid values."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PresetError(path, f"cannot be read: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise PresetError(path, f"is not TOML: {error}") from error
    except UnicodeDecodeError as error:
        raise PresetError(path, f"is not UTF-8 text: {error}") from error
    if not {"agent", "run"} <= set(document) <= {*TABLES, "log"}:
        wanted = "needs [agent] and [run], and may have [environment] and [log]"
        raise PresetError(path, f"has the tables {sorted(document)}, and {wanted}")
    return Preset(
        config=build(path, "agent", config_class, document["agent"]),
        run=build(path, "run", RunSettings, document["run"]),
        path=path,
        environment=build(path, "environment", EnvSettings, document.get("environment", {})),
        log=build(path, "log", LogSettings, document.get("log", {})),
    )


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
    spec = describe(env_id, _environment(folder, EnvSettings(), environment, agent))
    defaults = folder / DEFAULTS / f"{kind_of(spec)}.toml"
    if defaults.is_file() and not any(_are_related(one, spec.env_id) for one in _environments(folder)):
        file = defaults
    else:
        file = _file(folder, _nearest_of_kind(folder, spec))
    found = load(file, config_class)
    found = dataclasses.replace(found, environment=_fitting(found.environment, spec))
    preset = _with_own_target(found, _words(file), spec)
    preset = _with_changes(preset, environment, agent)
    return dataclasses.replace(preset, config=_with_less_replay(preset.config, spec))


def _with_changes(preset: Preset, environment: Mapping[str, Any], agent: str) -> Preset:
    changed = _environment(preset.path, preset.environment, environment, agent)
    return dataclasses.replace(preset, environment=changed)


def _environment(path: Path, settings: EnvSettings, changes: Mapping[str, Any], agent: str = "") -> EnvSettings:
    """The settings with these changes, which may have classes and functions where settings have their names."""
    try:
        return dataclasses.replace(settings, **changes)
    except (TypeError, ValueError) as error:
        raise PresetError(path, f"[environment] {error}", agent) from error


def kind_of(spec: EnvSpec) -> str:
    """The kind of an environment, one of `KINDS`."""
    if spec.has_images:
        return "images"
    return "discrete" if spec.num_actions is not None else "continuous"


def _words(path: Path) -> str:
    """What the file is, for the preset's note."""
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


def dump(preset: Preset) -> str:
    """The text of a preset file with these settings, for `load`. It leaves out settings that are None.

    A table `[environment]` has only the settings that differ from the defaults.
    """
    tables = {"agent": vars(preset.config), "run": vars(preset.run)}
    if preset.log != LogSettings():
        tables["log"] = vars(preset.log)
    if environment := preset.environment.changed():
        tables["environment"] = environment
    return "\n".join(
        f"[{table}]\n" + "".join(_line(name, value) for name, value in values.items() if value is not None)
        for table, values in tables.items()
    )


def _line(name: str, value: Any) -> str:
    try:
        return f"{name} = {toml(value)}\n"
    except TypeError as error:
        raise TypeError(f"{name} is {error}") from error


def toml(value: Any) -> str:
    """A value of a setting as TOML. Raises TypeError for one that is neither a number, a text, nor a list of them."""
    value = python_value(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(toml, value))}]"
    if type(value) in (bool, str):
        return json.dumps(value)
    if type(value) in (int, float):
        return repr(value)
    raise TypeError(f"{value!r}, which cannot be written to a preset file: use a number, a text, or a list of them")


def override(preset: Preset, settings: Sequence[str], agent: str = "") -> Preset:
    """The preset with some settings changed, each given as `name=value` with a TOML value.

    A name may be from `[agent]`, `[run]` or `[environment]`; one that several of them have is that of the first, as of
    an agent of another package that has a setting `network`. Raises `PresetError`, for the agent of this name, or
    without one for the preset.
    """
    return _changed(preset, parsed(settings, preset.path, type(preset.config)), ", ".join(settings), agent)


def parsed(settings: Sequence[str], path: Path, config_class: type[Any]) -> dict[str, Any]:
    """The values by name of settings in the form of `override`. Raises `PresetError`, with `path`, for another form.

    The word none is None for a setting that may have that and no text.
    """
    values, hints = {}, _hints(config_class)
    for setting in settings:
        name, equals, text = (part.strip() for part in setting.partition("="))
        if not equals:
            raise PresetError(path, f"{setting!r} is not a setting; write name=value")
        value, hint = _value(text), hints.get(name)
        values[name] = None if value == NONE and is_optional(hint) and str not in get_args(hint) else value
    return values


def of_environment(settings: Mapping[str, Any], config_class: type[Any]) -> dict[str, Any]:
    """Those of the settings, by name, that `override` would change in `[environment]`."""
    return {name: value for name, value in settings.items() if _table_of(name, config_class) == "environment"}


def _table_of(name: str, config_class: type[Any]) -> str | None:
    """The table that has a setting of this name, the first one of several; None without one."""
    classes = {"agent": config_class, "run": RunSettings, "environment": EnvSettings}
    return next((table for table, one in classes.items() if name in get_type_hints(one)), None)


def changed(preset: Preset, settings: Mapping[str, Any], agent: str = "", other_names: Sequence[str] = ()) -> Preset:
    """The preset with some settings changed, each given by its name as an object of Python.

    A tuple may be given as a list, a float as an int, text as a path, and each as NumPy has it. `other_names` are
    names that a misspelt one may have meant. Raises `PresetError` as `override` does.
    """
    given = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    return _changed(preset, settings, given, agent, other_names)


def _changed(
    preset: Preset, settings: Mapping[str, Any], given: str, agent: str, other_names: Sequence[str] = ()
) -> Preset:
    """The preset with these settings, whose values are as TOML has them, or None."""
    try:
        return _with_settings(preset, settings, given, other_names)
    except PresetError as error:
        if not agent:
            raise
        raise PresetError(error.path, error.reason, agent) from error


def _with_settings(preset: Preset, settings: Mapping[str, Any], given: str, other_names: Sequence[str]) -> Preset:
    changes: dict[str, dict[str, Any]] = {table: {} for table in TABLES}
    classes = {"agent": type(preset.config), "run": RunSettings, "environment": EnvSettings}
    hints = {table: get_type_hints(settings_class) for table, settings_class in classes.items()}
    for name, value in settings.items():
        table = _table_of(name, type(preset.config))
        if table is None:
            known = [*(one for names in hints.values() for one in names), *other_names]
            raise PresetError(preset.path, f"has no setting {name!r}{suggestion(name, known)}")
        if table != "environment":
            value = _convert(preset.path, table, name, hints[table][name], value)
        changes[table][name] = value
    environment = _environment(preset.path, preset.environment, changes["environment"])
    try:
        return dataclasses.replace(
            preset,
            config=dataclasses.replace(preset.config, **changes["agent"]),
            run=dataclasses.replace(preset.run, **changes["run"]),
            environment=environment,
        )
    except ValueError as error:
        raise PresetError(preset.path, f"with {given}: {error}") from error


def setting_named(name: str, preset: Preset) -> str:
    """The setting that a name means: itself, or another library's name of it. Raises `PresetError` with the nearest."""
    known = list(_hints(type(preset.config)))
    if name in known:
        return name
    if setting := synonym(name, known):
        return setting
    raise PresetError(preset.path, f"has no setting {name!r}{suggestion(name, known)}")


def takes_integers(name: str, preset: Preset) -> bool:
    """Whether the values of a setting are integers."""
    hint = _hints(type(preset.config))[name]
    return hint is int or int in get_args(hint)


def _hints(config_class: type[Any]) -> dict[str, Any]:
    """The types of all settings by name; of a name that several tables have, that of the first, as `override` takes."""
    classes = (EnvSettings, RunSettings, config_class)
    return {name: hint for one in classes for name, hint in get_type_hints(one).items()}


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def build(path: Path, table: str, settings: type[Settings], values: dict[str, Any]) -> Settings:
    """The settings of a table of the file `path`. Raises `PresetError` for unknown, missing and invalid ones."""
    hints = get_type_hints(settings)
    found = {}
    for name, value in values.items():
        if name not in hints:
            raise PresetError(path, f"[{table}] has an unknown setting {name!r}{suggestion(name, list(hints))}")
        found[name] = _convert(path, table, name, hints[name], value)
    required = [
        field.name
        for field in dataclasses.fields(settings)  # type: ignore[arg-type]
        if field.default is dataclasses.MISSING and field.name not in values
    ]
    missing = [name for name in required if not is_optional(hints[name])]
    found |= {name: None for name in required if is_optional(hints[name])}  # TOML has no None
    if missing:
        raise PresetError(path, f"[{table}] is missing {', '.join(missing)}")
    try:
        return settings(**found)
    except ValueError as error:
        raise PresetError(path, f"[{table}] {error}") from error


def _convert(path: Path, table: str, name: str, hint: Any, value: Any) -> Any:
    try:
        return converted(name, hint, value)
    except TypeError as error:
        raise PresetError(path, f"[{table}] {error}") from error
