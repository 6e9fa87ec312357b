"""Columns of arrays as columns of Arrow, and back without a change of dtype, shape or value."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reverie._nest import named_dtype
from reverie.integrations.datasets.sources import DatasetError, shape_of
from reverie.specs import TensorSpec

__all__ = ["FileColumn", "field_of", "inferred", "to_arrow"]

#: The metadata of a field that describes the array that its values were.
KEY = b"reverie"
#: Arrays of more numbers than this are stored as bytes: lists take 10 to 30 times as long.
LONGEST_LIST = 32

#: Makes rows `[N, ...]` of the values of an Arrow column.
Reader = Callable[[Any], npt.NDArray[Any]]


class FileColumn:
    """A column of a file.

    Args:
        path: the column's name in the file.
        spec: the dtype and shape of a row.
        read: makes rows of the values of a record batch.
    """

    __slots__ = ("path", "read", "spec")

    def __init__(self, path: str, spec: TensorSpec, read: Reader) -> None:
        self.path, self.spec, self.read = path, spec, read


def field_of(path: str, spec: TensorSpec) -> pa.Field:
    """The field of a file for rows of this dtype and shape.

    Numbers, bools and text of one value are values of Parquet; arrays of at most 32 numbers are lists of fixed size,
    and larger arrays and other dtypes are bytes. The metadata has dtype and shape.
    """
    about = {KEY: json.dumps({"dtype": spec.dtype.name, "shape": list(spec.shape)}).encode()}
    size = math.prod(shape_of(spec))
    if spec.dtype.kind in "SU":
        value = pa.large_binary() if spec.dtype.kind == "S" else pa.large_string()
        about = {KEY: json.dumps({"dtype": spec.dtype.kind, "shape": list(spec.shape)}).encode()}
        return pa.field(path, value if not spec.shape else pa.list_(value), nullable=False, metadata=about)
    if spec.dtype.kind in "biuf" and 0 < size <= LONGEST_LIST:
        value = pa.from_numpy_dtype(spec.dtype)
        kind = value if not spec.shape else pa.list_(pa.field("element", value, nullable=False), size)
    else:
        kind = pa.binary(size * spec.dtype.itemsize) if size else pa.binary()
    return pa.field(path, kind, nullable=False, metadata=about)


def to_arrow(rows: npt.NDArray[Any], field: pa.Field) -> pa.Array:
    """Rows `[N, ...]` as values of the field; copies nothing where Arrow can share the memory."""
    count, rows = len(rows), np.ascontiguousarray(rows)
    flat = rows.reshape(-1)
    if rows.dtype.kind in "SU":
        values = pa.array(flat.tolist(), type=field.type if rows.ndim == 1 else field.type.value_type)
        if rows.ndim == 1:
            return values
        offsets = np.arange(count + 1, dtype=np.int32) * (len(flat) // max(count, 1))
        return pa.ListArray.from_arrays(pa.array(offsets), values, type=field.type)
    if pa.types.is_fixed_size_binary(field.type):
        data = pa.py_buffer(flat.view(np.uint8))
        return pa.FixedSizeBinaryArray.from_buffers(field.type, count, [None, data])
    if pa.types.is_binary(field.type):
        return pa.array([b""] * count, type=field.type)
    if pa.types.is_fixed_size_list(field.type):
        return pa.FixedSizeListArray.from_arrays(pa.array(flat), type=field.type)
    return pa.array(flat, type=field.type)


def written_by_reverie(field: pa.Field) -> FileColumn | None:
    """The column of a field that `field_of` made; None for any other field."""
    about = (field.metadata or {}).get(KEY)
    if about is None:
        return None
    known = json.loads(about)
    dtype, shape = named_dtype(known["dtype"]), tuple(known["shape"])

    def read(values: Any) -> npt.NDArray[Any]:
        count = len(values)
        if pa.types.is_fixed_size_binary(field.type) or (pa.types.is_binary(field.type) and dtype.kind not in "SU"):
            width = dtype.itemsize * int(np.prod(shape))
            data = np.frombuffer(values.buffers()[1] or b"", np.uint8) if width else np.empty(0, np.uint8)
            start = values.offset * width
            return data[start : start + count * width].view(dtype).reshape(count, *shape)
        return flat_values(values, dtype).reshape(count, *shape)

    return FileColumn(field.name, TensorSpec(shape, dtype), read)


def flat_values(values: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The values of a column of numbers, bools or text, or of lists of them, in one row."""
    while isinstance(values, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray):
        values = values.flatten()
    if dtype.kind in "SU":
        return np.array(values.to_pylist() or [], dtype=dtype.kind)
    array: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return array.astype(dtype, copy=False)


def inferred(field: pa.Field, first: Any, where: str) -> FileColumn:
    """The column of a field that another program wrote; its shape is that of the first row.

    Args:
        field: the field.
        first: the values of the first record batch.
        where: the file, for errors.

    Raises:
        DatasetError: for values that no array can hold: dates, decimals, maps, nulls, lists of different lengths.
    """
    kind, shape = field.type, list[int]()
    if is_image(kind):
        return _images(field, first, where)
    sample = first.slice(0, 1)
    while pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        kind, sample = kind.value_type, sample.flatten()
        shape.append(len(sample) // max(1, int(np.prod(shape))))
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    dtype = _dtype(kind)
    if dtype is None:
        raise DatasetError(
            f"{where}: column '{field.name}' holds {field.type}, which no array can hold; leave it out with columns="
        )
    spec = TensorSpec(shape, dtype)

    def read(values: Any) -> npt.NDArray[Any]:
        refuse_nulls(values, field.name, where)
        if isinstance(values, pa.ExtensionArray):
            values = values.storage
        flat = flat_values(values, spec.dtype)
        if len(flat) != len(values) * math.prod(shape_of(spec)) or not _even(values, shape_of(spec)):
            raise DatasetError(
                f"{where}: column '{field.name}' has lists of different lengths (the first row is {list(spec.shape)}); "
                "leave it out with columns="
            )
        return flat.reshape(len(values), *spec.shape)

    return FileColumn(field.name, spec, read)


def refuse_nulls(values: Any, name: str, where: str) -> None:
    """Raises DatasetError where a value, or one in a list, is missing."""
    while True:
        if values.null_count:
            raise DatasetError(f"{where}: column '{name}' has missing values; leave it out with columns=")
        if isinstance(values, pa.ExtensionArray):
            values = values.storage
        elif isinstance(values, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray):
            values = values.flatten()
        else:
            return


def _even(values: Any, shape: tuple[int, ...]) -> bool:
    """True where the lists of each level have the length of that axis."""
    for size in shape:
        if not pa.types.is_fixed_size_list(values.type):
            lengths = np.diff(values.offsets.to_numpy())
            if not (lengths == size).all():
                return False
        values = values.flatten()
    return True


def _dtype(kind: Any) -> np.dtype[Any] | None:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return np.dtype("U")
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return np.dtype("S")
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return dtype
    return None


def is_image(kind: Any) -> bool:
    """True for an encoded image as the libraries of Hugging Face store it: a struct of its bytes and a path."""
    return pa.types.is_struct(kind) and {kind.field(index).name for index in range(kind.num_fields)} == {
        "bytes",
        "path",
    }


def _images(field: pa.Field, first: Any, where: str) -> FileColumn:
    """A column of encoded images, as uint8 `[height, width, channels]`."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            f"column '{field.name}' holds encoded images, and Pillow is missing: pip install \"reverie[lerobot]\""
        ) from error

    def decoded(encoded: bytes | None) -> npt.NDArray[Any]:
        if encoded is None:
            raise DatasetError(f"{where}: column '{field.name}' has an image without bytes")
        try:
            with Image.open(io.BytesIO(encoded)) as image:
                return np.asarray(image)
        except OSError as error:
            raise DatasetError(f"{where}: column '{field.name}' has a damaged image: {error}") from error

    shape = decoded(first.field("bytes")[0].as_py()) if len(first) else np.empty((0, 0, 3), np.uint8)

    def read(values: Any) -> npt.NDArray[Any]:
        images = [decoded(encoded) for encoded in values.field("bytes").to_pylist()]
        if any(image.shape != shape.shape or image.dtype != shape.dtype for image in images):
            raise DatasetError(f"{where}: column '{field.name}' has images of different sizes or types")
        return np.stack(images) if images else np.empty((0, *shape.shape), shape.dtype)

    return FileColumn(field.name, TensorSpec(shape.shape, shape.dtype), read)
