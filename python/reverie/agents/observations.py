"""Observations of any space as one array: the form in which vectors of environments, tables and networks have them.

A nest of arrays (Dict, Tuple) becomes one row: the leaves in the space's order, one after the other. Leaves of one
dtype stay of that dtype; leaves of several dtypes become bytes (uint8), so that an image next to float32 numbers takes
one byte for each of its values in the table. `inputs.ObservationReader` takes the row apart again, within the network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import DTypeLike, NDArray

SMALLEST_IMAGE = 3
"""Sides of the smallest array with three axes that counts as an image."""
SMALLEST_GREY = 8
"""Sides of the smallest array with two axes that does."""
MOST_CHANNELS = 32
KINDS = ("numbers", "image", "category")

Array = NDArray[Any]


class UnsupportedSpaceError(ValueError):
    """A space that no network here reads. The text names it and its place in the observation."""


@dataclass(frozen=True)
class ObservationLeaf:
    """One array of an observation."""

    path: tuple[str, ...]
    """Its keys and indices from the root of the observation; empty for an observation that is one array."""
    kind: str
    """"numbers", "image" (convolutions read it), or "category" (whole numbers, read as one of a set each)."""
    shape: tuple[int, ...]
    """Its shape as the environment returns it; `()` for a single number."""
    dtype: str
    """Its dtype in tables."""
    sizes: tuple[int, ...] = ()
    """The number of values of each category."""
    starts: tuple[int, ...] = ()
    """The smallest value of each category."""
    largest: int = 255
    """The upper bound of the space of an image of bytes, by which networks divide its values."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS or any(size < 1 for size in (*self.shape, *self.sizes, self.largest)):
            raise ValueError(f"leaf {self.name} is {self.kind!r} of shape {self.shape} and sizes {self.sizes}")

    @property
    def name(self) -> str:
        """Its path as text: `camera/left`."""
        return "/".join(self.path) or "observation"

    @property
    def count(self) -> int:
        """Numbers in it."""
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        """Bytes of it."""
        return self.count * np.dtype(self.dtype).itemsize

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Its shape in a table, alone: a single number has one axis."""
        return self.shape or (1,)


def leaves_of(
    space: spaces.Space[Any], path: tuple[str, ...] = (), *, in_vector: bool = False
) -> tuple[ObservationLeaf, ...]:
    """The leaves of an observation space, in its order. Raises `UnsupportedSpaceError`.

    Its text names a wrapper that converts the space, `in_vector` one of vectors of environments.
    """

    def part(one: spaces.Space[Any], name: object) -> tuple[ObservationLeaf, ...]:
        return leaves_of(one, (*path, str(name)), in_vector=in_vector)

    place = f"the part {'/'.join(path)}" if path else "the space"
    match space:
        case spaces.Dict() | spaces.Tuple() if len(space.spaces) == 0:
            raise UnsupportedSpaceError(f"{place} is {space}, and has no numbers: leave it out, or give it a part")
        case spaces.Dict() if not all(map(_is_text, space.spaces)):
            key = next(one for one in space.spaces if not _is_text(one))
            raise UnsupportedSpaceError(
                f"{place} is a Dict with the key {key!r}, and its keys must be text: name it {str(key)!r} in the"
                " space and in the observations, or make it a Tuple"
            )
        case spaces.Dict():
            return tuple(leaf for key, one in space.spaces.items() for leaf in part(one, key))
        case spaces.Tuple():
            return tuple(leaf for i, one in enumerate(space.spaces) for leaf in part(one, i))
        case spaces.Discrete():
            return (ObservationLeaf(path, "category", (), "int32", (int(space.n),), (int(space.start),)),)
        case spaces.MultiDiscrete():
            sizes, starts = (tuple(map(int, np.ravel(one))) for one in (space.nvec, space.start))
            return (ObservationLeaf(path, "category", tuple(space.shape), "int32", sizes, starts),)
        case spaces.MultiBinary():
            return (ObservationLeaf(path, "numbers", tuple(space.shape), "int8"),)
        case spaces.Box():
            return (_box(space, path),)
    raise UnsupportedSpaceError(
        f"{place} is {space}, and networks here read Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple:"
        f" {_remedy(space, in_vector)}"
    )


def _is_text(key: object) -> bool:
    return isinstance(key, str)


def _remedy(space: spaces.Space[Any], in_vector: bool) -> str:
    module = "gymnasium.wrappers.vector" if in_vector else "gymnasium.wrappers"
    if space.is_np_flattenable:
        return f"name {module}:FlattenObservation in wrappers, which makes one vector of the observation"
    arguments = "envs, function, space, single_space" if in_vector else "env, function, space"
    return (
        "its observations have no fixed size; name in wrappers a function of yours that returns"
        f" {module}.TransformObservation({arguments}), whose space is a Box of a fixed size"
    )


def _box(space: spaces.Box, path: tuple[str, ...]) -> ObservationLeaf:
    shape, dtype = tuple(space.shape), np.dtype(space.dtype)
    if 0 in shape:
        raise UnsupportedSpaceError(f"{'/'.join(path) or 'the observation'} has shape {shape}, and so no numbers")
    if _is_image(shape, dtype, space):
        largest = max(1, int(space.high.max())) if dtype == np.uint8 else 255
        return ObservationLeaf(path, "image", shape, dtype.name if dtype.kind in "ub" else "float32", largest=largest)
    return ObservationLeaf(path, "numbers", shape, "float32" if path and dtype == np.float64 else dtype.name)


def _is_image(shape: tuple[int, ...], dtype: np.dtype[Any], space: spaces.Box) -> bool:
    """Whether an array is an image: bytes, booleans, or floats within [0, 1] with three axes, and few channels."""
    within = dtype.kind == "f" and bool((space.low >= 0).all() and (space.high <= 1).all())
    if not (dtype in (np.uint8, np.bool_) or (within and len(shape) == 3)):
        return False
    if len(shape) == 2:
        return min(shape) >= SMALLEST_GREY
    if len(shape) != 3:
        return False
    channels, height, width = channels_and_sides(shape)
    return min(height, width) >= SMALLEST_IMAGE and channels <= MOST_CHANNELS


def image_note(env_id: str, space: spaces.Space[Any]) -> str:
    """A sentence about arrays of an environment's observations that look like images, and are read as vectors.

    It has their shape, dtype and bounds, and the rule; empty if there are none.
    """
    found = _like_images(space, ())
    if not found:
        return ""
    parts = [f"the part {'/'.join(path)} of observations" if path else "an observation" for path, _ in found]
    forms = [
        f"{one.dtype} of shape {tuple(one.shape)} within [{one.low.min():g}, {one.high.max():g}]" for _, one in found
    ]
    listed = "; ".join(f"{part} of {env_id} is {form}" for part, form in zip(parts, forms, strict=True))
    return (
        f"{listed}, and is read as a vector: an image, which convolutions read, is uint8 or bool, or has floats within"
        " [0, 1] and three axes. If it is one, name a wrapper that converts it in wrappers"
    )


def _like_images(space: spaces.Space[Any], path: tuple[str, ...]) -> list[tuple[tuple[str, ...], spaces.Box]]:
    """The arrays of a space, with their paths, that have the shape of an image and not its dtype or bounds.

    Arrays with two axes and other bounds than those of pixels are left out: these are usually windows of measurements.
    """
    match space:
        case spaces.Dict():
            return [found for key, one in space.spaces.items() for found in _like_images(one, (*path, str(key)))]
        case spaces.Tuple():
            return [found for i, one in enumerate(space.spaces) for found in _like_images(one, (*path, str(i)))]
        case spaces.Box() if len(space.shape) in (2, 3) and not _is_image(space.shape, np.dtype(space.dtype), space):
            channels, *sides = channels_and_sides(space.shape)
            may_be = len(space.shape) == 3 or (space.low.min() >= 0 and space.high.max() <= 255)
            if may_be and min(sides) >= SMALLEST_GREY and channels <= MOST_CHANNELS:
                return [(path, space)]
    return []


def channels_and_sides(shape: Sequence[int]) -> tuple[int, int, int]:
    """Channels, height and width of an image `[H, W]`, `[H, W, C]` or `[C, H, W]`: channels are the shorter end."""
    if len(shape) == 2:
        return 1, shape[0], shape[1]
    if channels_last(shape):
        return shape[2], shape[0], shape[1]
    return shape[0], shape[1], shape[2]


def channels_last(shape: Sequence[int]) -> bool:
    """Whether the channels of an image are its last axis."""
    return len(shape) == 3 and shape[2] <= shape[0]


def is_mixed(leaves: Sequence[ObservationLeaf]) -> bool:
    """Whether the row of these leaves is bytes, since they have several dtypes."""
    return len({leaf.dtype for leaf in leaves}) > 1


def row_form(leaves: Sequence[ObservationLeaf]) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of the array of one observation."""
    if len(leaves) == 1:
        return leaves[0].stored_shape, leaves[0].dtype
    if is_mixed(leaves):
        return (sum(leaf.num_bytes for leaf in leaves),), "uint8"
    return (sum(leaf.count for leaf in leaves),), leaves[0].dtype


def row_space(leaves: Sequence[ObservationLeaf]) -> spaces.Box:
    """The space of the arrays of one observation."""
    shape, name = row_form(leaves)
    dtype = np.dtype(name)
    low, high = (0, 1) if dtype.kind == "b" else (-np.inf, np.inf)
    if dtype.kind in "iu":
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return spaces.Box(low, high, shape, dtype.type)


def pack(leaves: Sequence[ObservationLeaf], parts: Sequence[Array]) -> Array:
    """The array of observations: `parts` has an array `[..., *shape]` for each leaf; the result is `[..., *row]`.

    Raises ValueError for a number that the dtype of its leaf cannot hold, see `inexact`, and for a category that its
    space does not have.
    """
    lead = parts[0].shape[: parts[0].ndim - len(leaves[0].shape)]
    rows = [_stored(leaf, part, lead) for leaf, part in zip(leaves, parts, strict=True)]
    if len(leaves) == 1:
        return rows[0].reshape(*lead, *leaves[0].stored_shape)
    if is_mixed(leaves):
        rows = [np.ascontiguousarray(row).view(np.uint8) for row in rows]
    return np.concatenate(rows, axis=-1)


def unpack(leaves: Sequence[ObservationLeaf], rows: Array) -> dict[str, Any] | Array:
    """The observations of packed rows `[..., *row]`: the array of a single leaf, else a nest of dicts of arrays."""
    flat = rows.reshape(*rows.shape[: rows.ndim - len(row_form(leaves)[0])], -1)
    if len(leaves) == 1 and not leaves[0].path:
        return _restored(leaves[0], flat)
    sizes = [leaf.num_bytes if is_mixed(leaves) else leaf.count for leaf in leaves]
    nest: dict[str, Any] = {}
    for leaf, part in zip(leaves, np.split(flat, np.cumsum(sizes)[:-1], axis=-1), strict=True):
        if is_mixed(leaves):
            part = np.ascontiguousarray(part).view(leaf.dtype)
        inner = nest
        for key in leaf.path[:-1]:
            inner = inner.setdefault(key, {})
        inner[leaf.path[-1]] = _restored(leaf, part)
    return nest


def _restored(leaf: ObservationLeaf, flat: Array) -> Array:
    """The part `[..., *shape]` of `[..., count]`; categories count from their starts again."""
    counted = flat + np.array(leaf.starts, flat.dtype) if leaf.starts else flat
    return counted.reshape((*flat.shape[:-1], *leaf.shape))


def _stored(leaf: ObservationLeaf, part: Array, lead: tuple[int, ...]) -> Array:
    """The part as `[..., count]` of the leaf's dtype; categories count from 0."""
    flat = np.asarray(part).reshape(*lead, leaf.count)
    if (number := inexact(leaf.dtype, flat)) is not None:
        raise ValueError(f"{leaf.name} has the number {number!s}, which its dtype {leaf.dtype} cannot hold")
    counted = (flat - np.array(leaf.starts) if leaf.starts else flat).astype(leaf.dtype)
    if leaf.sizes and (counted.view(np.uint32) >= np.array(leaf.sizes, np.uint32)).any():  # negative ones are large
        category, first, last = unknown_category(leaf, flat.reshape(*lead, *leaf.shape)) or (0, 0, 0)
        raise ValueError(f"{leaf.name} has the category {category}, and its space has {first} to {last}")
    return counted


def unknown_category(leaf: ObservationLeaf, part: Array) -> tuple[int, int, int] | None:
    """A category of `part` `[..., *shape]` that the leaf's space does not have, and the first and last that it has.

    None without one, and for leaves of other kinds.
    """
    if leaf.kind != "category":
        return None
    sizes, starts = (np.reshape(one or (0,) * leaf.count, leaf.shape) for one in (leaf.sizes, leaf.starts))
    wrong = (part < starts) | (part >= starts + sizes)
    if not wrong.any():
        return None
    place = tuple(int(axis) for axis in np.argwhere(wrong)[0])
    own = place[part.ndim - len(leaf.shape) :]
    first = int(starts[own])
    return int(part[place]), first, first + int(sizes[own]) - 1


def inexact(dtype: DTypeLike, part: Array) -> np.generic | None:
    """A number of the part that becomes another one in `dtype`, such as 0.5 in uint8; None without one.

    Numbers become floating-point ones of any precision, with a rounding error.
    """
    if np.dtype(dtype).kind == "f" or part.dtype.kind not in "biuf" or np.can_cast(part.dtype, dtype):
        return None
    with np.errstate(invalid="ignore"):
        changed = part.astype(dtype) != part
    return part[changed][0] if changed.any() else None


def part_of(observation: Any, leaf: ObservationLeaf) -> Any:
    """A leaf's part of a nest of dicts and tuples. Raises KeyError or IndexError if it is missing."""
    for key in leaf.path:
        observation = observation[key] if isinstance(observation, Mapping) else observation[int(key)]
    return observation


class RowArray(np.ndarray[Any, np.dtype[Any]]):
    """Rows whose categories count from 0, where an array of the environment's own observations may look alike.

    Arrays that NumPy stacks or selects from rows are rows, too.
    """

    __array_priority__ = 1.0


def look_like_rows(leaves: Sequence[ObservationLeaf]) -> bool:
    """Whether an observation may have the form of a row with other numbers: one array of categories with starts."""
    return len(leaves) == 1 and leaves[0].path == () and any(leaves[0].starts)


class MarkedRows(gymnasium.ObservationWrapper[Array, Any, Any]):
    """An environment of rows, marked as `RowArray`."""

    def observation(self, observation: Array) -> Array:
        """The same numbers."""
        return observation.view(RowArray)


class OwnObservations(gymnasium.ObservationWrapper[Array, Any, Any]):
    """An environment of rows of a single leaf, or stacks of them, whose observations are those of its space again."""

    def __init__(self, env: gymnasium.Env[Any, Any], leaves: tuple[ObservationLeaf, ...]) -> None:
        super().__init__(env)
        self._leaves = leaves
        low = self.observation(np.zeros(env.observation_space.shape or (), leaves[0].dtype))
        sizes = np.reshape(leaves[0].sizes, leaves[0].shape).astype(low.dtype)
        self.observation_space = spaces.Box(low, low + sizes - 1, low.shape, low.dtype.type)

    def observation(self, observation: Array) -> Array:
        """The array whose categories count from their starts."""
        found: Array = np.asarray(unpack(self._leaves, np.asarray(observation)))
        return found


class AsRows(gymnasium.ObservationWrapper[Array, Any, Any]):
    """An environment whose observations are arrays of `row_form`."""

    def __init__(self, env: gymnasium.Env[Any, Any], leaves: tuple[ObservationLeaf, ...]) -> None:
        super().__init__(env)
        self._leaves = leaves
        self.observation_space = row_space(leaves)

    def observation(self, observation: Any) -> Array:
        """The array of an observation."""
        return pack(self._leaves, [np.asarray(part_of(observation, leaf)) for leaf in self._leaves])
