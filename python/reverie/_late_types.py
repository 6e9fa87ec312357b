"""Types that annotations name, and that are imported when a program asks for the hints.

`import reverie` loads NumPy and no framework, so many types are imported by type checkers only. When an annotation is
evaluated, as by `typing.get_type_hints`, Sphinx and pydantic, its names must be in the module, too.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, ForwardRef

__all__ = ["found", "late"]


def late(module: str, name: str) -> Any:
    """A stand-in for a type, which `typing.get_type_hints` replaces by the type itself. It cannot be subscripted."""
    return ForwardRef(f"__import__({__name__!r}, fromlist=['found']).found({module!r}, {name!r})")


def found(module: str, name: str) -> Any:
    """The type, which is imported now; `Any` where its package is not installed."""
    try:
        return getattr(import_module(module), name)
    except ImportError:
        return Any
