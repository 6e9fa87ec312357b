"""Where code of a user raised an error, in one line."""

from __future__ import annotations

import traceback


def place_of(error: BaseException) -> str:
    """The error with its type, and with file and line where its text has none."""
    text = f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError) or not frames:  # a syntax error names them itself
        return text
    return f"{text} ({frames[-1].filename}, line {frames[-1].lineno})"
