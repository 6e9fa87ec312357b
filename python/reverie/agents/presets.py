"""Preset files: one TOML per environment in the agent's folder: `[agent]`, `[run]` and, where wanted, `[log]`."""

from __future__ import annotations

import dataclasses
import difflib
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from reverie.agents.core import Preset, RunSettings
from reverie.agents.log_settings import LogSettings

Settings = TypeVar("Settings")


class PresetError(ValueError):
    """A preset file is missing or unreadable, or has a setting that the agent does not know. `.path`, `.reason`"""

    def __init__(self, path: Path, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"preset {path}: {reason}")


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
    if set(document) - {"log"} != {"agent", "run"}:
        raise PresetError(path, f"has the tables {sorted(document)}, and needs [agent] and [run], and may have [log]")
    return Preset(
        config=build(path, "agent", config_class, document["agent"]),
        run=build(path, "run", RunSettings, document["run"]),
        path=path,
        log=build(path, "log", LogSettings, document.get("log", {})),
    )


def locate(folder: Path, env_id: str, path: Path | None = None) -> Path:
    """The file of a preset: the environment's in an agent's folder, or the one that `path` names."""
    return find(folder, env_id) if path is None else _named(folder, env_id, Path(path))


def find(folder: Path, env_id: str) -> Path:
    """The preset of an environment in an agent's folder. Raises `PresetError`, which lists those that exist."""
    path = _file(folder, env_id)
    if not path.is_file():
        known = _environments(folder)
        raise PresetError(
            path,
            f"does not exist; there are presets for {', '.join(known)}: use one of these (--config {known[-1]})"
            " with your target (--target-return), or copy one, edit it, and name the file",
        )
    return path


def _named(folder: Path, env_id: str, path: Path) -> Path:
    """The file that `path` names: a preset of the agent by its name, or the file itself."""
    own = _file(folder / path, env_id), _file(folder, str(path))
    for preset in own if not path.is_absolute() else ():
        if preset.is_file():
            return preset
    if not path.suffix and not path.exists():
        others = sorted(variant.parent.name for variant in folder.glob(f"*/{_file(folder, env_id).name}"))
        known = ", ".join([*others, *_environments(folder)])
        raise PresetError(path, f"is neither a file nor a preset of the agent; its presets are {known}")
    return path


def _environments(folder: Path) -> list[str]:
    return sorted(environment_of(preset) for preset in folder.glob("*.toml"))


def _file(folder: Path, env_id: str) -> Path:
    return folder / f"{env_id.replace('/', '_')}.toml"


def environment_of(path: Path) -> str:
    """The environment of a preset in an agent's folder: `ALE_Pong-v5.toml` is for `ALE/Pong-v5`."""
    return path.stem.replace("ALE_", "ALE/", 1)


def dump(preset: Preset) -> str:
    """The text of a preset file with these settings, for `load`. It leaves out settings that are None."""
    tables = {"agent": preset.config, "run": preset.run}
    if preset.log != LogSettings():
        tables["log"] = preset.log
    return "\n".join(
        f"[{table}]\n"
        + "".join(f"{name} = {toml(value)}\n" for name, value in vars(settings).items() if value is not None)
        for table, settings in tables.items()
    )


def toml(value: Any) -> str:
    """A value of a setting as TOML."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, bool | str):
        return json.dumps(value)
    return repr(value)


def override(preset: Preset, settings: Sequence[str]) -> Preset:
    """The preset with some settings changed, each given as `name=value` with a TOML value.

    A name may be from `[agent]` or `[run]`; no agent has a setting with the name of a run's. Raises `PresetError`.
    """
    changes: dict[str, dict[str, Any]] = {"agent": {}, "run": {}}
    classes = {"agent": type(preset.config), "run": RunSettings}
    for setting in settings:
        name, equals, text = (part.strip() for part in setting.partition("="))
        if not equals:
            raise PresetError(preset.path, f"{setting!r} is not a setting; write name=value")
        tables = [table for table, settings_class in classes.items() if name in get_type_hints(settings_class)]
        if not tables:
            known = [*get_type_hints(classes["agent"]), *get_type_hints(RunSettings)]
            raise PresetError(preset.path, f"has no setting {name!r}{_nearest(name, known)}")
        hint = get_type_hints(classes[tables[0]])[name]
        changes[tables[0]][name] = _convert(preset.path, f"[{tables[0]}] {name}", hint, _value(text))
    try:
        return dataclasses.replace(
            preset,
            config=dataclasses.replace(preset.config, **changes["agent"]),
            run=dataclasses.replace(preset.run, **changes["run"]),
        )
    except ValueError as error:
        raise PresetError(preset.path, f"with {', '.join(settings)}: {error}") from error


def setting_named(name: str, preset: Preset) -> str:
    """The setting that a name means: itself, or another library's name of it. Raises `PresetError` with the nearest."""
    known = [*get_type_hints(type(preset.config)), *get_type_hints(RunSettings)]
    if name in known:
        return name
    if SYNONYMS.get(name) in known:
        return SYNONYMS[name]
    raise PresetError(preset.path, f"has no setting {name!r}{_nearest(name, known)}")


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


SYNONYMS = {
    "lr": "learning_rate",
    "gamma": "discount",
    "buffer_size": "capacity",
    "total_timesteps": "max_env_steps",
    "max_steps": "max_env_steps",
}
"""The names that other libraries and the command's flags have for settings."""


def _nearest(name: str, known: Sequence[str]) -> str:
    if SYNONYMS.get(name) in known:
        return f"; did you mean {SYNONYMS[name]}?"
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"


def build(path: Path, table: str, settings: type[Settings], values: dict[str, Any]) -> Settings:
    """The settings of a table of the file `path`. Raises `PresetError` for unknown, missing and invalid ones."""
    hints = get_type_hints(settings)
    converted = {}
    for name, value in values.items():
        if name not in hints:
            raise PresetError(path, f"[{table}] has an unknown setting {name!r}{_nearest(name, list(hints))}")
        converted[name] = _convert(path, f"[{table}] {name}", hints[name], value)
    missing = [
        f.name
        for f in dataclasses.fields(settings)  # type: ignore[arg-type]
        if f.default is dataclasses.MISSING and f.name not in values
    ]
    if missing:
        raise PresetError(path, f"[{table}] is missing {', '.join(missing)}")
    try:
        return settings(**converted)
    except ValueError as error:
        raise PresetError(path, f"[{table}] {error}") from error


def _convert(path: Path, name: str, hint: Any, value: Any) -> Any:
    if hint == int | None:  # TOML has no None: such settings are left out
        hint = int
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is int and isinstance(value, float) and value.is_integer():  # 1e6
        return int(value)
    if hint == tuple[int, ...]:
        if isinstance(value, list) and all(type(v) is int for v in value):
            return tuple(value)
        raise PresetError(path, f"{name} is {value!r}, and must be a list of integers such as [128, 128]")
    if hint == tuple[str, ...]:
        if isinstance(value, list) and all(type(v) is str for v in value):
            return tuple(value)
        raise PresetError(path, f'{name} is {value!r}, and must be a list of words such as ["one", "two"]')
    if type(value) is hint:
        return value
    raise PresetError(path, f"{name} is {value!r}, and must be {getattr(hint, '__name__', hint)}")
