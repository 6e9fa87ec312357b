"""PyTorch: batches as tensors, and batches for a DataLoader."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from reverie import _native
from reverie.adapters.batches import converted
from reverie.types import Batch, BatchInfo

try:
    import torch
except ImportError as error:
    raise ImportError('PyTorch is missing: pip install "reverie[torch]"') from error

__all__ = ["BatchDataset", "converter", "iterable_dataset", "sender", "to_array", "to_tensor", "to_torch"]

#: Dtypes of ml_dtypes (kind V): the integer of the same width, and PyTorch's dtype.
_BY_BITS = {
    "bfloat16": (np.int16, torch.bfloat16),
    "float8_e4m3fn": (np.int8, torch.float8_e4m3fn),
    "float8_e4m3fnuz": (np.int8, torch.float8_e4m3fnuz),
    "float8_e5m2": (np.int8, torch.float8_e5m2),
    "float8_e5m2fnuz": (np.int8, torch.float8_e5m2fnuz),
}


def to_tensor(
    array: np.ndarray[Any, Any], device: torch.device | str | None = None, *, pinned: bool = False
) -> torch.Tensor:
    """A tensor over an array's memory, without a copy on the CPU.

    Args:
        array: of numbers or bools.
        device: the device of the tensor; None means the CPU.
        pinned: copies through page-locked memory, so that this returns before the copy to a GPU is done. PyTorch owns
            that memory, and keeps it until then.

    Raises:
        TypeError: for a dtype that PyTorch does not have.
    """
    # Asked only for kind V: a dtype's name takes as long to make as the rest of this function.
    by_bits = _BY_BITS.get(array.dtype.name) if array.dtype.kind == "V" else None
    tensor = torch.from_numpy(array) if by_bits is None else torch.from_numpy(array.view(by_bits[0])).view(by_bits[1])
    if pinned:
        tensor = tensor.pin_memory()
    return tensor if device is None else tensor.to(device, non_blocking=pinned)


def to_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """An array of a tensor, over its memory if it is in main memory and dense.

    A tensor on a GPU is copied. bfloat16 and float8 become the dtypes of ml_dtypes.

    Raises:
        TypeError: for a tensor that is sparse or quantised, or a dtype that NumPy and ml_dtypes do not have.
        ImportError: for bfloat16 and float8 if ml_dtypes is not installed.
    """
    tensor = tensor.detach()
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise TypeError(f"a tensor must be dense to become an array, got {tensor.layout}, {tensor.dtype}")
    tensor = tensor.cpu().resolve_conj().resolve_neg()
    for name, (bits, dtype) in _BY_BITS.items():
        if tensor.dtype == dtype:
            try:
                import ml_dtypes
            except ImportError as error:
                raise ImportError(f"NumPy needs ml_dtypes for a tensor of {dtype}: pip install ml_dtypes") from error
            integers = torch.int16 if bits is np.int16 else torch.int8
            return tensor.view(integers).numpy().view(getattr(ml_dtypes, name))
    return tensor.numpy()


def to_torch(batch: Batch, device: torch.device | str | None = None, *, pinned: bool = False) -> Batch:
    """The batch with tensors in `data`, `mask` and `lengths`, and in the fields of windows; `weights` gives float32.

    `info` stays NumPy: `update_priorities` takes its keys. Columns of bytes and str stay NumPy too: PyTorch has no
    tensors of text.
    """

    to_tensor_there = functools.partial(to_tensor, device=device, pinned=pinned)
    return converted(batch, to_tensor_there, weights_as(device, pinned=pinned))


def weights_as(
    device: torch.device | str | None, *, pinned: bool = False
) -> Callable[[np.ndarray[Any, Any]], torch.Tensor]:
    """A function that makes importance weights a float32 tensor on this device. It can be pickled, as its batch is."""
    return functools.partial(_float32, device=device, pinned=pinned)


def _float32(array: np.ndarray[Any, Any], device: torch.device | str | None, pinned: bool) -> torch.Tensor:
    return to_tensor(array.astype(np.float32), device, pinned=pinned)


def converter(device: torch.device | str | None, pinned: bool | None) -> Callable[[Batch], Batch]:
    """`to_torch` with these options; `pinned=None` pins for a CUDA device.

    Raises:
        ValueError: for a CUDA device or pinned memory where PyTorch finds no CUDA.
    """
    target = None if device is None else torch.device(device)
    cuda = target is not None and target.type == "cuda"
    if target is not None and target.type == "cpu":
        target = None  # The arrays are there already.
    pin = cuda if pinned is None else pinned
    if (cuda or pin) and not torch.cuda.is_available():
        what = f"device={str(target)!r}" if cuda else "pinned=True, which is for copies to a GPU,"
        raise ValueError(f'{what} needs CUDA, and PyTorch finds none here; leave it out, or pass device="cpu"')
    return lambda batch: to_torch(batch, target, pinned=pin)


def sender(
    device: torch.device | str, finish: Callable[[Batch], Batch] | None = None
) -> Callable[[Batch], tuple[Batch, Callable[[], Batch]]] | None:
    """A function that sends batches to a CUDA device, on a stream of its own; None for another device.

    It copies a batch into page-locked memory, starts the copy to the device, and returns the batch in that memory and a
    function. The function makes the current stream of its caller wait for the copy, and returns the batch of tensors,
    after `finish` if that is given.
    """
    target = torch.device(device)
    if target.type != "cuda":
        return None
    if str(target) == "cuda":  # the sending thread's current device may be another
        target = torch.device("cuda", torch.cuda.current_device())
    stream: torch.cuda.Stream = torch.cuda.Stream(target)  # type: ignore[no-untyped-call]

    def send(batch: Batch) -> tuple[Batch, Callable[[], Batch]]:
        # The figures of a batch over a network are in the memory of its arrays, which is one of few slots.
        names = (field.name for field in dataclasses.fields(batch.info))
        batch.info = BatchInfo(*(np.array(getattr(batch.info, name)) for name in names))
        pinned: list[torch.Tensor] = []
        sent: list[torch.Tensor] = []

        def to_device(array: np.ndarray[Any, Any]) -> torch.Tensor:
            pinned.append(to_tensor(array, pinned=True))
            sent.append(pinned[-1].to(target, non_blocking=True))
            return sent[-1]

        with torch.cuda.stream(stream):
            made = converted(batch, to_device, weights_as(target, pinned=True))
            in_order = iter(pinned)
            kept = converted(batch, lambda _: to_array(next(in_order)), batch._weights_as)
            copied = stream.record_event()

        def arrive() -> Batch:
            now = torch.cuda.current_stream(target)
            now.wait_event(copied)
            for tensor in sent:
                tensor.record_stream(now)  # its memory is that of another stream
            return made if finish is None else finish(made)

        return kept, arrive

    return send


class BatchDataset(torch.utils.data.IterableDataset[Batch]):
    """Batches for a `DataLoader(dataset, batch_size=None)`.

    The batches are already drawn in the background: `num_workers=0` is usually the fastest. A client of an address also
    works in forked and spawned workers: each worker connects, and draws batches of its own (`max_samples` applies to
    each). An in-process client works in its own process only; forked workers raise ForkedError.

    Args:
        batches: a function that returns a new iterator. `functools.partial(client.batches, "replay", 256, as_="torch")`
            can be pickled for spawned workers.
    """

    def __init__(self, batches: Callable[[], Iterator[Batch]]) -> None:
        super().__init__()
        self._batches = batches

    def __iter__(self) -> Iterator[Batch]:
        return self._batches()


class ElementDataset(torch.utils.data.IterableDataset[Any]):
    """The elements of a dataset with tensors instead of arrays; bytes and str stay NumPy."""

    def __init__(self, elements: Iterable[Any]) -> None:
        super().__init__()
        self._elements = elements

    def __iter__(self) -> Iterator[Any]:
        for element in self._elements:
            leaves, structure = _native.flatten(element)
            yield structure.unflatten([_leaf(leaf) for leaf in leaves])


def iterable_dataset(elements: Iterable[Any]) -> ElementDataset:
    """The elements as a `torch.utils.data.IterableDataset`; for a `DataLoader(dataset, batch_size=None)`."""
    return ElementDataset(elements)


def _leaf(leaf: Any) -> Any:
    array = np.asarray(leaf)
    if array.dtype.kind in "SU":
        return leaf
    if array.dtype == np.uint64:
        array = array.view(np.int64)  # keys have 63 bits, and PyTorch hardly supports the type
    return to_tensor(np.ascontiguousarray(array) if array.ndim else np.array(array))
