"""Shared by commands: exit codes, errors in one line, and durations as text."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from reverie.errors import TrainingWarning

EXIT_REACHED = 0
EXIT_NOT_REACHED = 1
EXIT_REFUSED = 2
EXIT_CRASHED = 3
EXIT_INTERRUPTED = 130

EPILOG = (
    "Exit codes: 0 the target was reached and confirmed, or there is none; 1 training ended without reaching it; 2"
    " invalid arguments, or this machine or the agent cannot run it; 3 an error ended the run; 130 interrupted."
)


def flags_of(group: str) -> Callable[..., Any]:
    """`typer.Option` for flags that `--help` shows in this group."""
    return functools.partial(typer.Option, rich_help_panel=group)


def print_training_warnings() -> None:
    """Print each `TrainingWarning` in one line: the line of code that Python names is of no use to a command's user."""
    show = warnings.showwarning

    def show_in_a_line(message: Warning | str, category: type[Warning], *place: Any, **options: Any) -> None:
        if issubclass(category, TrainingWarning):
            print(f"reverie: {message}", file=sys.stderr)
        else:
            show(message, category, *place, **options)

    warnings.showwarning = show_in_a_line


LAST_LINE_JSON = "Print one JSON object as the last line of stdout; all else goes to stderr."
LastLineJson = Annotated[bool, typer.Option("--json", help=LAST_LINE_JSON)]


def duration(seconds: float) -> str:
    """Seconds as text with two units: `45 s`, `3 min 20 s`, `5 h 10 min`, `2 d 3 h`."""
    whole = round(seconds)
    for (unit, size), (smaller, part) in itertools.pairwise((("d", 86400), ("h", 3600), ("min", 60), ("s", 1))):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {smaller}"
    return f"{whole} s"


def of_target(target: float | None) -> str:
    """The end of a text about a return; empty without a target."""
    return "" if target is None else f" of {target:g}"


def outcome(confirmed: bool, target: float | None) -> str:
    """The end of a run, in a word or two."""
    return "trained" if target is None else "confirmed" if confirmed else "not reached"


def exit_code(confirmed: bool, target: float | None) -> int:
    """The exit code of a run that has ended."""
    return EXIT_REACHED if confirmed or target is None else EXIT_NOT_REACHED


def refuse(reason: object) -> NoReturn:
    """Print an error in one line, and end the command."""
    print_error(reason)
    raise typer.Exit(EXIT_REFUSED)


def print_error(reason: object) -> None:
    """Print an error in one line."""
    print(f"reverie: {in_one_line(reason)}", file=sys.stderr)


def in_one_line(reason: object) -> str:
    """The text of an error; errors of the file system have the file first, and no number."""
    if isinstance(reason, OSError) and reason.filename and reason.strerror:
        return f"{reason.filename}: {reason.strerror[:1].lower()}{reason.strerror[1:]}"
    return str(reason)


def find_modules_here() -> None:
    """Append the working folder to the module path, so that environments like `my_module:MyEnv-v0` are found there."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)


def require_agents() -> None:
    """End the command if the libraries that agents need are not installed."""
    missing = [name for name in ("torch", "gymnasium", "safetensors") if importlib.util.find_spec(name) is None]
    if missing:
        refuse(f'{", ".join(missing)} not installed: pip install "reverie[demo]"')
