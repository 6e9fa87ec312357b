"""Preset files: TOML with the tables `[agent]` and `[run]`, read, written, and with changes.

A table `[environment]` is optional: wrappers, a time limit, and the other fields of `EnvSettings`; so is `[log]`.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from reverie._picklable import Picklable
from reverie.agents.atari import is_game
from reverie.agents.core import Preset, RunSettings
from reverie.agents.env_ids import with_option
from reverie.agents.env_settings import EnvSettings
from reverie.agents.log_settings import LogSettings
from reverie.agents.settings import converted, is_optional, python_value
from reverie.agents.synonyms import suggestion, synonym

Settings = TypeVar("Settings")

TABLES = ("agent", "run", "environment")
NONE = "none"
"""The word for None, which TOML does not have, where a setting is given as text."""


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


def override(preset: Preset, settings: Sequence[str], agent: str = "", env_id: str = "") -> Preset:
    """The preset with some settings changed, each given as `name=value` with a TOML value.

    A name may be from `[agent]`, `[run]` or `[environment]`; one that several of them have is that of the first, as of
    an agent of another package that has a setting `network`. Raises `PresetError`, for the agent of this name, or
    without one for the preset. It names the form for an option of the environment `env_id`.
    """
    values = parsed(settings, preset.path, type(preset.config), agent)
    return _changed(preset, values, ", ".join(settings), agent, env_id=env_id)


def parsed(settings: Sequence[str], path: Path, config_class: type[Any], agent: str = "") -> dict[str, Any]:
    """The values by name of settings in the form of `override`. Raises `PresetError` as that does for another form.

    The word none is None for a setting that may have that and no text.
    """
    values, hints = {}, _hints(config_class)
    for setting in settings:
        name, equals, text = (part.strip() for part in setting.partition("="))
        value, hint = _value(text), hints.get(name)
        if name in hints and not text and (not equals or str not in (hint, *get_args(hint))):
            raise PresetError(path, f"{name} has no value: write {name}=VALUE", agent)
        if not equals:
            near = difflib.get_close_matches(name, hints, n=1)
            words = f"has no setting {name!r}; did you mean {near[0]}?" if near else f"{setting!r} is not a setting"
            raise PresetError(path, words if near else f"{words}; write name=value", agent)
        values[name] = None if value == NONE and is_optional(hint) and str not in get_args(hint) else value
    return values


def of_environment(settings: Mapping[str, Any], config_class: type[Any]) -> dict[str, Any]:
    """The settings, by name, that `override` would change in `[environment]`."""
    return {name: value for name, value in settings.items() if _table_of(name, config_class) == "environment"}


def _table_of(name: str, config_class: type[Any]) -> str | None:
    """The table that has a setting of this name, the first one of several; None without one."""
    classes = {"agent": config_class, "run": RunSettings, "environment": EnvSettings}
    return next((table for table, one in classes.items() if name in get_type_hints(one)), None)


def changed(
    preset: Preset,
    settings: Mapping[str, Any],
    agent: str = "",
    other_names: Sequence[str] = (),
    env_id: str = "",
) -> Preset:
    """The preset with some settings changed, each given by its name as an object of Python.

    A tuple may be given as a list, a float as an int, text as a path, and each as NumPy has it. `other_names` are
    names that a misspelt one may have meant. Raises `PresetError` as `override` does.
    """
    given = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    return _changed(preset, settings, given, agent, other_names, env_id)


def _changed(
    preset: Preset,
    settings: Mapping[str, Any],
    given: str,
    agent: str,
    other_names: Sequence[str] = (),
    env_id: str = "",
) -> Preset:
    """The preset with these settings, whose values are as TOML has them, or None."""
    try:
        return _with_settings(preset, settings, given, other_names, env_id)
    except PresetError as error:
        if not agent:
            raise
        raise PresetError(error.path, error.reason, agent) from error


def _with_settings(
    preset: Preset, settings: Mapping[str, Any], given: str, other_names: Sequence[str], env_id: str
) -> Preset:
    changes: dict[str, dict[str, Any]] = {table: {} for table in TABLES}
    classes = {"agent": type(preset.config), "run": RunSettings, "environment": EnvSettings}
    hints = {table: get_type_hints(settings_class) for table, settings_class in classes.items()}
    for name, value in settings.items():
        table = _table_of(name, type(preset.config))
        if table is None:
            known = [*(one for names in hints.values() for one in names), *other_names]
            if env_id and not is_game(env_id) and (named := with_option(env_id, name, value)):
                raise PresetError(
                    preset.path, f"has no setting {name!r}: it is an option of the environment, so give the id {named}"
                )
            raise PresetError(preset.path, f"has no setting {name!r}{suggestion(name, known)}")
        if table != "environment":
            value = _convert(preset.path, table, name, hints[table][name], value)
        changes[table][name] = value
    environment = changed_environment(preset.path, preset.environment, changes["environment"])
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


def changed_environment(path: Path, settings: EnvSettings, changes: Mapping[str, Any], agent: str = "") -> EnvSettings:
    """The settings with these changes, which may have classes and functions where settings have their names.

    Raises `PresetError` for a change that `[environment]` does not take.
    """
    try:
        return dataclasses.replace(settings, **changes)
    except (TypeError, ValueError) as error:
        raise PresetError(path, f"[environment] {error}", agent) from error


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
