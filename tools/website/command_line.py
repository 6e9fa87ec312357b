"""The page of the `reverie` command, from the help of its commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

PAGE = "reference/command-line.md"
INTRO = """# Command line

The commands print this with `--help`. `pip install "reverie[cli]"` brings those of servers and checkpoints,
`pip install "reverie[demo]"` also those that train.
"""


def page() -> str:
    """The Markdown of all commands, in the order of `reverie --help`."""
    import typer.main

    from reverie.cli.app import app

    return "\n".join([INTRO, *_section(typer.main.get_command(app), "reverie", None)])


def _section(command: Any, name: str, parent: Any) -> Iterator[str]:
    context = command.context_class(command, info_name=name.rpartition(" ")[2], parent=parent)
    if parent is not None:
        yield f"{'#' * (name.count(' ') + 1)} {name}\n"
    yield f"```text\n{command.get_usage(context).removeprefix('Usage: ')}\n```\n"
    yield f"{command.help.strip()}\n"
    yield from _options(command, context)
    if command.epilog:
        yield f"{command.epilog}\n"
    for inner in getattr(command, "commands", {}).values():
        if not inner.hidden:
            yield from _section(inner, f"{name} {inner.name}", context)


def _options(command: Any, context: Any) -> Iterator[str]:
    """A table for each panel of options, in the order in which the help shows them."""
    panels: dict[str, list[str]] = {}
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None and not parameter.hidden:
            panel = getattr(parameter, "rich_help_panel", None) or ""
            names, text = (cell.replace("|", "\\|") for cell in record)
            panels.setdefault(panel, []).append(f"| `{names}` | {_escaped(text)} |")
    for panel, rows in panels.items():
        yield from ([f"**{panel}**\n"] if panel else [])
        yield "\n".join(["| option | what it does |", "|---|---|", *rows]) + "\n"


def _escaped(text: str) -> str:
    """Text of a terminal as Markdown: brackets are no links, asterisks no emphasis, and a sign is no tag."""
    for sign in "[]*_<":
        text = text.replace(sign, f"\\{sign}" if sign != "<" else "&lt;")
    return text
