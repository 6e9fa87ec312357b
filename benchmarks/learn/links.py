"""Links from a page to the folder with a row's results, whose name is that of the row."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

Link = Callable[[str, str], str]
"""`link(text, row)`: the text, linked to the results of a row."""


def unlinked(text: str, row: str) -> str:
    """The text alone."""
    return text


def to_results(folder: Path, page: Path) -> Link:
    """Links from `page` to the folders of rows in `folder`."""
    return lambda text, row: f"[{text}]({os.path.relpath(folder / row, page.parent)})"
