"""Converts leaves that the engine cannot read directly. The engine calls this for such leaves only."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from reverie.errors import SignatureError

_WANTED = "an array, a number, a bool, bytes or str"
#: The kinds of dtype that each Python number may be cast to: an int to a float, but never a float to an int.
_MAY_BECOME = {bool: "biufcV", int: "iufcV", float: "fcV", complex: "c"}


def as_column(value: Any, want: str | None, path: str) -> npt.NDArray[Any]:
    """The leaf as an array in C order and the machine's byte order.

    Args:
        value: the leaf.
        want: the name of the column's dtype, if it has one already; Python's own numbers are cast to it.
        path: the column, for errors.

    Raises:
        SignatureError: for a leaf that a column cannot hold; the text has the value to pass instead.
    """
    if isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic):
        return _number(value, want, path)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        value = _of_tensor(value, torch, path)
    if not isinstance(value, np.ndarray | np.generic | bytes | str) and not _is_arrayable(value):
        raise _refuse(path, f"a {type(value).__name__}", _WANTED)
    if isinstance(value, np.ndarray) and type(value) is not np.ndarray and np.ma.is_masked(value):
        raise _refuse(
            path,
            "an array with masked values",
            "one without: .filled(value) gives it, and the mask can be a column of its own",
        )
    array = np.asarray(value)
    kind, number = array.dtype.kind, array.dtype.num
    if kind in "mM":
        raise _refuse(path, str(array.dtype), "a number; .astype('int64') keeps the ticks")
    if kind == "V" and number < 256:
        raise _refuse(path, "a structured array", "one column per field: a dict of arrays")
    if array.dtype.char in "gG" and array.dtype.itemsize > 8 * (1 + (kind == "c")):
        raise _refuse(path, str(array.dtype), "at most 64 bits for a real number; cast with .astype('float64')")
    if kind == "O":
        array = _text(array, path)
    elif kind == "T":
        array = array.astype("O").astype("U")
    return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")


def as_array(value: Any, name: str) -> npt.NDArray[Any]:
    """An argument of numbers as an array: of a list, or of a tensor, under the rules of `as_column`.

    Raises:
        SignatureError: for a tensor that NumPy cannot read; the text has the argument's name.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _of_tensor(value, torch, name)
    return np.asarray(value)


def _of_tensor(tensor: Any, torch: Any, path: str) -> npt.NDArray[Any]:
    """The values of a PyTorch tensor, without a copy where NumPy can share them; a gradient's graph is not stored.

    A tensor of a device is refused: the copy would wait for all that the device still has to compute.
    """
    kind = f"a tensor of {str(tensor.dtype).removeprefix('torch.')}"
    if tensor.layout != torch.strided or getattr(tensor, "is_nested", False):
        layout = "a nested" if getattr(tensor, "is_nested", False) else f"a {tensor.layout}"
        raise _refuse(path, f"{layout} tensor", "a dense one: .to_dense(), or columns for its parts")
    if tensor.device.type != "cpu":
        remedy = "no values are there" if tensor.device.type == "meta" else ".cpu() copies it, and waits for the device"
        raise _refuse(path, f"{kind} on {tensor.device}", f"one on the CPU; {remedy}")
    tensor = tensor.detach().resolve_conj().resolve_neg()
    try:
        array: npt.NDArray[Any] = tensor.numpy()
        return array
    except TypeError:  # a dtype that NumPy does not have
        return _of_extension_type(tensor, torch, kind, path)


def _of_extension_type(tensor: Any, torch: Any, kind: str, path: str) -> npt.NDArray[Any]:
    """The values of a tensor whose dtype is one of ml_dtypes, such as bfloat16."""
    name = str(tensor.dtype).removeprefix("torch.")
    bits = {1: torch.uint8, 2: torch.int16}.get(tensor.element_size())
    if bits is None or not (tensor.is_floating_point() and name.startswith(("bfloat", "float"))):
        raise _refuse(path, kind, "a dtype that NumPy or ml_dtypes has")
    try:
        import ml_dtypes
    except ImportError:
        raise _refuse(path, kind, "float32 where ml_dtypes is missing: .float(), or pip install ml_dtypes") from None
    if not hasattr(ml_dtypes, name):
        raise _refuse(path, kind, "a dtype that NumPy or ml_dtypes has")
    array: npt.NDArray[Any] = tensor.view(bits).numpy().view(getattr(ml_dtypes, name))
    return array


def _number(value: complex, want: str | None, path: str) -> npt.NDArray[Any]:
    dtype = named_dtype(want) if want else None
    if dtype is not None and dtype.kind not in _MAY_BECOME[type(value)]:
        raise _refuse(path, f"the {type(value).__name__} {value}", str(want))
    try:
        array = np.asarray(value, dtype=dtype)
    except OverflowError:
        raise _refuse(path, f"the {type(value).__name__} {value}", f"a number that {want or 'int64'} holds") from None
    if array.dtype.kind not in "biufcV" or (array.dtype == np.uint64 and dtype is None):
        raise _refuse(path, f"the {type(value).__name__} {value}", "a number of 64 bits")
    return array


def named_dtype(name: str) -> np.dtype[Any]:
    """The dtype of this name: NumPy's, or one of ml_dtypes such as "bfloat16"."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes  # The column has such a dtype, so the program has this package.

        known: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return known


def _text(array: npt.NDArray[Any], path: str) -> npt.NDArray[Any]:
    for dtype, kind in (("S", bytes), ("U", str)):
        if array.size and all(isinstance(value, kind) for value in array.flat):
            return array.astype(dtype)
    raise _refuse(path, "an array of Python objects", "numbers, or objects that are all bytes or all str")


def _is_arrayable(value: Any) -> bool:
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return True
    try:
        memoryview(value).release()
    except TypeError:
        return False
    return True


def _refuse(path: str, got: str, want: str) -> SignatureError:
    column = f"column '{path}'" if path else "the data"
    return SignatureError(f"{column}: got {got}, want {want}", path=path, got=got, want=want)
