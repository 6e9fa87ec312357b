"""The page of all settings of presets: of runs, environments, logs and each agent, from the source of their classes."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

PAGE = "reference/settings.md"
INTRO = """# Settings

The settings of a preset, by table ([training](../guides/training.md)). Every preset has those without a default.
`--set NAME=VALUE` changes a setting of `[agent]`, `[run]` or `[environment]`; `--dry-run` prints the settings of a run.
"""


def page() -> str:
    """The Markdown of all settings: those of runs, of environments and of logs, then those of each agent."""
    from reverie import agents
    from reverie.agents.env_settings import EnvSettings
    from reverie.agents.log_settings import LogSettings
    from reverie.agents.run_settings import RunSettings

    shared = {"Runs: [run]": RunSettings, "Environments: [environment]": EnvSettings, "Logs: [log]": LogSettings}
    own = {f"{name}: [agent]": agents.find(name).config for name in agents.BUILT_IN}
    sections = (f"## {_escaped(title)}\n\n{_table(kind)}" for title, kind in {**shared, **own}.items())
    return "\n".join([INTRO, *sections])


def _table(settings: type[Any]) -> str:
    return "\n".join(["| setting | type | default | meaning |", "|---|---|---|---|", *_rows(settings), ""])


def _rows(settings: type[Any]) -> Iterator[str]:
    texts = meanings(settings)
    for field in dataclasses.fields(settings):
        kind = str(field.type).replace("|", "or")
        yield f"| `{field.name}` | {_escaped(kind)} | {_default(field)} | {_escaped(texts[field.name])} |"


def meanings(settings: type[Any]) -> dict[str, str]:
    """The text below each field of a dataclass, in its source or in that of the nearest class that it is based on.

    Raises:
        LookupError: a field has no text.
    """
    found: dict[str, str] = {}
    for base in reversed(settings.__mro__):
        if dataclasses.is_dataclass(base):
            found |= dict(_texts(base))
    missing = [field.name for field in dataclasses.fields(settings) if field.name not in found]
    if missing:
        raise LookupError(f"{settings.__name__} has no text below {', '.join(missing)}")
    return found


def _texts(settings: type[Any]) -> Iterator[tuple[str, str]]:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(settings))).body
    assert isinstance(tree, ast.ClassDef)
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        named = isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if named and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            yield field.target.id, " ".join(str(below.value.value).split())


def _default(field: dataclasses.Field[Any]) -> str:
    """A default as a preset writes it; empty where a preset must have the setting."""
    from reverie.agents import presets

    if field.default is None or (field.default is dataclasses.MISSING and "None" in str(field.type)):
        return "none"  # TOML has none: a preset leaves it out
    return "" if field.default is dataclasses.MISSING else f"`{presets.toml(field.default)}`"


def _escaped(text: str) -> str:
    from website import docstrings

    pieces = docstrings.CODE.split(docstrings.escaped(text))
    return "".join(piece.replace("|", "\\|") if number % 2 else piece for number, piece in enumerate(pieces))
