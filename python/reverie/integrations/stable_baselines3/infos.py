"""The infos of an environment as cells of one size: JSON, padded with zeros."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["from_cell", "to_cell"]

#: The entry that the vector environments of SB3 add: the last observation, which is stored already.
_ADDED = "terminal_observation"
#: The name of an array's dtype in its JSON.
_DTYPE = "__dtype__"


def to_cell(info: dict[str, Any], size: int) -> npt.NDArray[np.uint8]:
    """The entries of an info, without `terminal_observation`, as `[size]` bytes.

    Args:
        info: None, bools, numbers, strings, NumPy arrays and scalars, and lists, tuples and dicts of these.
        size: the number of bytes of the cell.

    Raises:
        TypeError: for an entry of another type, or a key that is not a string.
        ValueError: the info is longer than the cell.
    """
    kept = {key: _plain(value, key) for key, value in info.items() if key != _ADDED}
    text = json.dumps(kept, separators=(",", ":")).encode()
    if len(text) > size:
        raise ValueError(
            f"an info with the keys {sorted(kept)} has {len(text)} bytes, and info_bytes is {size}; raise info_bytes "
            "in replay_buffer_kwargs, or leave out of the info what compute_reward does not read"
        )
    cell = np.zeros(size, np.uint8)
    cell[: len(text)] = np.frombuffer(text, np.uint8)
    return cell


def from_cell(cell: npt.NDArray[np.uint8]) -> dict[str, Any]:
    """The info of a cell; tuples come back as lists."""
    info: dict[str, Any] = json.loads(cell.tobytes().rstrip(b"\0"), object_hook=_array)
    return info


def _plain(value: Any, path: str) -> Any:
    """A value of an info as JSON has it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
        return {_DTYPE: value.dtype.str, "shape": value.shape, "values": value.reshape(-1).tolist()}
    if isinstance(value, list | tuple):
        return [_plain(part, f"{path}/{index}") for index, part in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(part, f"{path}/{key}") for key, part in value.items()}
    raise TypeError(
        f"info '{path}' is {type(value).__name__}, which copy_info_dict cannot store: infos have numbers, strings, "
        "NumPy arrays, and lists and dicts of these with keys that are strings"
    )


def _array(found: dict[str, Any]) -> Any:
    """An array or a scalar of NumPy where JSON has one."""
    if _DTYPE not in found:
        return found
    array = np.array(found["values"], found[_DTYPE]).reshape(found["shape"])
    return array if found["shape"] else array[()]
