"""The package's logger. `logging` is imported when something is logged.

docs/decisions/0163-what-the-import-loads.md has what its import takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging


def logger() -> logging.Logger:
    """The logger "reverie"."""
    import logging

    return logging.getLogger("reverie")
