"""Preset files: one TOML per environment in the agent's folder, with an `[agent]` and a `[run]` table."""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from reverie.agents.core import Preset, RunSettings

Settings = TypeVar("Settings")


class PresetError(ValueError):
    """A preset file is missing, unreadable, or says something that the agent does not know. `.path`"""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(f"preset {path}: {reason}")


def load(path: Path, config_class: type[Any]) -> Preset:
    """Read a preset; unknown names, wrong types and values out of range are refused with the file and the name."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PresetError(path, f"cannot be read: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise PresetError(path, f"is not TOML: {error}") from error
    if set(document) != {"agent", "run"}:
        raise PresetError(path, f"has the tables {sorted(document)}, and needs exactly [agent] and [run]")
    return Preset(
        config=_build(path, "agent", config_class, document["agent"]),
        run=_build(path, "run", RunSettings, document["run"]),
        path=path,
    )


def find(folder: Path, env_id: str) -> Path:
    """The preset of an environment in an agent's folder; without one, a `PresetError` that names those that exist."""
    path = folder / f"{env_id.replace('/', '_')}.toml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.toml")))
        raise PresetError(path, f"does not exist; there are presets for {known}: copy one, edit it, and name the file")
    return path


def _build(path: Path, table: str, settings: type[Settings], values: dict[str, Any]) -> Settings:
    hints = get_type_hints(settings)
    converted = {}
    for name, value in values.items():
        if name not in hints:
            near = difflib.get_close_matches(name, hints, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(hints)}"
            raise PresetError(path, f"[{table}] has an unknown setting {name!r}{hint}")
        converted[name] = _convert(path, f"[{table}] {name}", hints[name], value)
    missing = [
        f.name
        for f in dataclasses.fields(settings)  # type: ignore[arg-type]
        if f.default is dataclasses.MISSING and f.name not in values
    ]
    if missing:
        raise PresetError(path, f"[{table}] lacks {', '.join(missing)}")
    try:
        return settings(**converted)
    except ValueError as error:
        raise PresetError(path, f"[{table}] {error}") from error


def _convert(path: Path, name: str, hint: Any, value: Any) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint == tuple[int, ...]:
        if isinstance(value, list) and all(type(v) is int for v in value):
            return tuple(value)
    elif type(value) is hint:
        return value
    raise PresetError(path, f"{name} is {value!r}, and must be {getattr(hint, '__name__', hint)}")
