"""Parameters and their version, and the checks of names, shapes and dtypes."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reverie import _checks
from reverie.errors import SignatureError, SupersededError

Arrays = dict[str, NDArray[Any]]
Specs = dict[str, tuple[np.dtype[Any], tuple[int, ...]]]
"""The dtype and shape of each array, by name."""

#: Both parts of a version fit into a float64 without rounding, as a table's priority has to.
MAX_GENERATION, MAX_NUMBER = (1 << 20) - 1, (1 << 32) - 1


class Version(NamedTuple):
    """Identifies published parameters. Versions are ordered: first by generation, then by number."""

    generation: int
    """The number of times that the publisher was restarted, from 0 to 2**20 - 1."""
    number: int
    """Counts up within a generation, from 0 to 2**32 - 1; for example the learner's number of updates."""

    def __str__(self) -> str:
        return f"version {self.number} of generation {self.generation}"


#: Nothing is newer.
LAST = Version(MAX_GENERATION, MAX_NUMBER)


@dataclasses.dataclass(frozen=True, eq=False)
class Parameters:
    """Published parameters. The receiver owns the arrays: they are writable, and no other object uses their memory."""

    version: Version
    arrays: Arrays
    """Arrays by name, in any order."""

    def state_dict(self) -> dict[str, Any]:
        """PyTorch tensors over the memory of the arrays, for `module.load_state_dict`. ImportError without PyTorch."""
        from reverie.adapters.torch import to_tensor

        return {name: to_tensor(array) for name, array in self.arrays.items()}


def version_of(name: str, value: Any) -> Version:
    """The value as a version. TypeError for another type; ValueError for a part that is out of range."""
    if not isinstance(value, tuple) or len(value) != 2:
        raise TypeError(f"{name} must be a reverie.parameters.Version, got {value!r}")
    return Version(
        _checks.count(f"{name}.generation", value[0], 0, MAX_GENERATION),
        _checks.count(f"{name}.number", value[1], 0, MAX_NUMBER),
    )


def arrays_of(named: Any) -> Arrays:
    """The values as arrays by name, without a copy if they are in this machine's main memory.

    Raises TypeError for anything but a mapping from names to arrays or tensors of numbers, ValueError for an empty one.
    """
    if not isinstance(named, Mapping):
        raise TypeError(
            "parameters must be a dict of arrays by name, such as module.state_dict() of PyTorch, "
            f"got a {type(named).__name__}"
        )
    if not named:
        raise ValueError("parameters must have at least one array, got an empty dict")
    return {_name(name): _array(name, value) for name, value in named.items()}


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the names of parameters must be str, got {name!r}")
    if not name or any("\ud800" <= letter <= "\udfff" for letter in name):
        raise ValueError(f"the name of a parameter must be text that is not empty, got {name!r}")
    return name


def _array(name: str, value: Any) -> NDArray[Any]:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        from reverie.adapters.torch import to_array

        return to_array(value)
    if isinstance(value, np.ma.MaskedArray) or not hasattr(value, "__array__"):
        hint = ": join nested names, as in 'encoder/w'" if isinstance(value, Mapping) else ""
        raise TypeError(f"parameter '{name}' must be an array or a tensor, got a {type(value).__name__}{hint}")
    array = np.asarray(value)
    if array.dtype.kind not in "biufc" and not is_of_ml_dtypes(array.dtype):
        raise TypeError(f"parameter '{name}' must be an array of numbers, got dtype {array.dtype}")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def is_of_ml_dtypes(dtype: np.dtype[Any]) -> bool:
    """Whether it is a dtype of ml_dtypes that a table can store, such as bfloat16."""
    return dtype.type.__module__ == "ml_dtypes"


def require_newer(version: Version, newest: Version | None, where: str) -> None:
    """Raises SupersededError if the newest version of the channel `where` is not older than `version`."""
    if newest is not None and version <= newest:
        raise SupersededError(
            f"{where} already has {newest}, so {version} was not published: another publisher has replaced this one",
            version=version,
            newest=newest,
        )


def specs_of(arrays: Arrays) -> Specs:
    """The dtype and shape of each array."""
    return {name: (array.dtype, array.shape) for name, array in arrays.items()}


def require_same(want: Specs, arrays: Arrays, whose: str) -> None:
    """Raises SignatureError, with the name as its path, if names, dtypes or shapes differ from `want`.

    `whose` names the parameters that have the dtypes and shapes of `want`.
    """
    for name, spec in want.items():
        if name not in arrays:
            raise _mismatch(name, "nothing", _text(spec), f"is missing, and {whose} have it")
    for name, array in arrays.items():
        got = (array.dtype, array.shape)
        if name not in want:
            raise _mismatch(name, _text(got), "nothing", f"is new: {whose} do not have it")
        if got != want[name]:
            texts = _text(got), _text(want[name])
            raise _mismatch(name, *texts, f"is {texts[0]}, and in {whose} it is {texts[1]}")


def _mismatch(name: str, got: str, want: str, text: str) -> SignatureError:
    return SignatureError(f"parameter '{name}' {text}", path=name, got=got, want=want)


def _text(spec: tuple[np.dtype[Any], tuple[int, ...]]) -> str:
    return f"{spec[0]} {list(spec[1])}"
