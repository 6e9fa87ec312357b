"""The form of a nest as plain data, for the metadata of a file."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from reverie.integrations.datasets.sources import DatasetError

__all__ = ["described", "rebuilt"]


def described(nest: Any) -> Any:
    """The form of a nest: dicts, lists, tuples, named tuples and dataclasses; every other object is a leaf, None.

    Raises:
        DatasetError: for a dict with keys that are not text.
    """
    if isinstance(nest, Mapping):
        if not all(isinstance(key, str) for key in nest):
            raise DatasetError(f"a dict with the keys {list(nest)} cannot be exported: its keys must be text")
        return {"dict": {key: described(value) for key, value in nest.items()}}
    if isinstance(nest, tuple) and hasattr(nest, "_fields"):
        return {
            "namedtuple": type(nest).__name__,
            "fields": {key: described(getattr(nest, key)) for key in nest._fields},
        }
    if dataclasses.is_dataclass(nest) and not isinstance(nest, type):
        fields = {field.name: described(getattr(nest, field.name)) for field in dataclasses.fields(nest)}
        return {"namedtuple": type(nest).__name__, "fields": fields}
    if isinstance(nest, list | tuple):
        return {"list" if isinstance(nest, list) else "tuple": [described(value) for value in nest]}
    return None


def rebuilt(form: Any) -> Any:
    """A nest of this form, with None as leaves. Named tuples are new classes of the same names; so are dataclasses."""
    if form is None:
        return None
    kinds: dict[str, Callable[[Any], Any]] = {
        "dict": lambda of: {key: rebuilt(value) for key, value in of.items()},
        "list": lambda of: [rebuilt(value) for value in of],
        "tuple": lambda of: tuple(rebuilt(value) for value in of),
        "namedtuple": lambda of: collections.namedtuple(of, form["fields"])(*map(rebuilt, form["fields"].values())),
    }
    kind = next(iter(form))
    return kinds[kind](form[kind])
