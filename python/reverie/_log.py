"""The package's logger. `logging` is imported when something is logged: with what it imports it takes 5 ms."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging


def logger() -> logging.Logger:
    """The logger "reverie"."""
    import logging

    return logging.getLogger("reverie")
