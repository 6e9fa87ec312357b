"""Where code of a user raised an error, in one line; and warnings that name the line of a user."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
import warnings
from pathlib import Path

import numpy as np

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


def _may_be_of_a_user(filename: str) -> bool:
    if filename.startswith(_OTHERS):
        return False
    return filename.startswith(_INSTALLED) or not filename.startswith(_LIBRARY)


def warn(text: str) -> None:
    """Warn, at the innermost line outside of this package: that of the user's program which led here."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "reverie":
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)
