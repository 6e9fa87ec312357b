"""Exceptions that can be pickled, whatever their constructor takes."""

from __future__ import annotations

from functools import cached_property
from typing import Any

__all__ = ["Picklable"]


class Picklable:
    """The first base class of an exception: its copy in another process has its text, `args`, attributes and notes.

    Without it, unpickling calls the constructor with `args`, the text, which is an error for a constructor that makes
    the text of other arguments. A pool of processes then waits forever, or reports itself broken. Values that it
    computes when they are first read (`functools.cached_property`) are not copied.
    """

    args: tuple[Any, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        kind = type(self)
        state = {
            name: value
            for name, value in self.__dict__.items()
            if not isinstance(getattr(kind, name, None), cached_property)
        }
        return _copied, (kind, self.args), state


def _copied(kind: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    made = kind.__new__(kind, *args)
    made.args = args  # an OSError with a constructor of its own sets none before that
    return made
