"""Specs: the dtype and shape of a column. A signature is a nest of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, final

import numpy as np
import numpy.typing as npt

from reverie import _checks, _native

__all__ = ["TensorSpec", "from_data", "from_space", "in_order_of", "signature"]


@final
class TensorSpec:
    """The dtype and shape of one column. Immutable, and a leaf of any nest.

    Args:
        shape: sizes of the axes; None accepts any size.
        dtype: anything that `np.dtype` takes.
        name: a label; it is not checked against data.

    Raises:
        TypeError, ValueError: for a size that is not an integer of at least 0 or None, or an unknown dtype.
    """

    __slots__ = ("dtype", "name", "shape")

    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]
    name: str | None

    def __init__(self, shape: Iterable[int | None], dtype: npt.DTypeLike, name: str | None = None) -> None:
        sizes = tuple(None if size is None else _checks.integer("a size of a shape", size) for size in shape)
        if any(size is not None and size < 0 for size in sizes):
            raise ValueError(f"the sizes of a shape must be None or at least 0, got {sizes}")
        object.__setattr__(self, "shape", sizes)
        object.__setattr__(self, "dtype", np.dtype(dtype))
        object.__setattr__(self, "name", name)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a TensorSpec cannot be changed ({name})")

    def __reduce__(self) -> tuple[Any, ...]:
        return TensorSpec, (self.shape, self.dtype, self.name)

    def __eq__(self, other: object) -> bool:
        """True for the same shape, dtype and name; a spec of TensorFlow is converted first."""
        if not isinstance(other, TensorSpec):
            shape = getattr(other, "shape", None)
            if shape is None or not hasattr(getattr(other, "dtype", None), "as_numpy_dtype"):
                return NotImplemented
            if getattr(shape, "rank", 0) is None:
                return False  # Its rank is unknown, which our TensorSpec cannot express.
            other = signature(other)
            assert isinstance(other, TensorSpec)
        return (self.shape, self.dtype, self.name) == (other.shape, other.dtype, other.name)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype, self.name))

    def __repr__(self) -> str:
        name = "" if self.name is None else f", name={self.name!r}"
        return f"TensorSpec(shape={self.shape}, dtype={str(self.dtype)!r}{name})"


def signature(nest: Any) -> Any:
    """A nest of the same structure with a `TensorSpec` for every leaf.

    Args:
        nest: its leaves are anything with `.shape` and `.dtype`: specs of Reverie, dm_env or TensorFlow, arrays.

    Raises:
        TypeError: for a leaf without `.shape` or `.dtype`.
    """
    leaves, structure = _native.flatten(nest)
    specs = []
    for path, leaf in zip(structure.paths, leaves, strict=True):
        if isinstance(leaf, TensorSpec):
            specs.append(leaf)
            continue
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise TypeError(
                f"signature '{path}': a spec needs .shape and .dtype, got a {type(leaf).__name__}; "
                "use reverie.TensorSpec(shape, dtype)"
            )
        dtype = getattr(leaf.dtype, "as_numpy_dtype", leaf.dtype)  # TensorFlow's dtypes have this attribute.
        specs.append(TensorSpec(tuple(leaf.shape), dtype, getattr(leaf, "name", None)))
    return structure.unflatten(specs)


def from_data(nest: Any) -> Any:
    """The specs of a nest of arrays and numbers, as `insert` would store them.

    Raises:
        SignatureError: for a leaf that a column cannot hold.
    """
    leaves, structure = _native.flatten(nest)
    specs = []
    for path, leaf in zip(structure.paths, leaves, strict=True):
        dtype, shape = _native.describe(leaf, path)
        specs.append(TensorSpec(shape, dtype))
    return structure.unflatten(specs)


def from_space(space: Any) -> Any:
    """The specs of a Gymnasium space: dicts and tuples of spaces become dicts and tuples of specs.

    Raises:
        TypeError: for a space whose samples are not arrays of one shape (graphs, sequences, text).
    """
    inner = getattr(space, "spaces", None)
    if isinstance(inner, Mapping):
        return {key: from_space(child) for key, child in inner.items()}
    if isinstance(inner, tuple | list):
        return tuple(from_space(child) for child in inner)
    if getattr(space, "shape", None) is None or getattr(space, "dtype", None) is None:
        raise TypeError(f"the samples of a {type(space).__name__} have no fixed shape and dtype: {space}")
    return TensorSpec(space.shape, space.dtype)


def in_order_of(form: _native.Structure, columns: list[Any], structure: _native.Structure) -> list[Any]:
    """The columns of `structure` in the order of `form`, which has as many: by name where all names agree, else as they
    are."""
    have, want = structure.paths, form.paths
    return [columns[have.index(path)] for path in want] if sorted(have) == sorted(want) else columns
