"""The place in a user's code that raised an error, in one line; and warnings that name a user's line."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
import warnings
from pathlib import Path
from types import FrameType

import numpy as np

from reverie.errors import TrainingWarning

_PACKAGES = Path(np.__file__).parents[1]
_FOLDERS = (Path(__file__).parents[1], *(_PACKAGES / name for name in ("numpy", "torch", "gymnasium/vector")))
_OTHERS = ("<", *(f"{folder}{os.sep}" for folder in _FOLDERS))
"""Beginnings of the names of files whose frames are not the place: this package, NumPy, PyTorch, and vectors."""
_LIBRARY = sysconfig.get_path("stdlib")
_INSTALLED = tuple(sysconfig.get_path(name) for name in ("purelib", "platlib"))


def place_of(error: BaseException) -> str:
    """The error with its type, and with file and line where its text has none.

    It is the innermost place outside of the libraries that an environment or a network calls, such as NumPy; if there
    is none, the innermost.
    """
    text = f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError) or not frames:  # a syntax error names them itself
        return text
    frame = next((one for one in reversed(frames) if _may_be_of_a_user(one.filename)), frames[-1])
    return f"{text} ({frame.filename}, line {frame.lineno})"


def is_of_call(error: BaseException) -> bool:
    """Whether the arguments of a call from this package do not fit what the user named, whose code did not begin."""
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, TypeError) and not any(_may_be_of_a_user(one.filename) for one in frames)


def _may_be_of_a_user(filename: str) -> bool:
    if filename.startswith(_OTHERS):
        return False
    return filename.startswith(_INSTALLED) or not filename.startswith(_LIBRARY)


def warn(text: str) -> None:
    """Issue a `TrainingWarning` for the user's program: the innermost line outside of this package and the library.

    `dataclasses.replace` is between the two where settings are changed. Without such a line, as in a thread whose
    target is of this package, the warning names the innermost one outside of this package.
    """
    frames = [frame for frame, _ in traceback.walk_stack(sys._getframe())]
    outside = [frame for frame in frames if not _is_of_this_package(frame)] or frames[-1:]
    frame = next((one for one in outside if not _is_of_the_library(one.f_code.co_filename)), outside[0])
    names = frame.f_globals
    warnings.warn_explicit(
        text,
        TrainingWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=names.get("__name__"),
        registry=names.setdefault("__warningregistry__", {}),
    )


def _is_of_this_package(frame: FrameType) -> bool:
    name: str = frame.f_globals.get("__name__", "")
    return name.partition(".")[0] == "reverie"


def _is_of_the_library(filename: str) -> bool:
    return filename.startswith("<frozen ") or (
        filename.startswith(f"{_LIBRARY}{os.sep}") and not filename.startswith(_INSTALLED)
    )
