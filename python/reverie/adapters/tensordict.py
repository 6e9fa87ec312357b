"""TensorDict: batches as one TensorDict."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from reverie.adapters.torch import converter as to_tensors
from reverie.types import Batch

try:
    from tensordict import TensorDict
except ImportError as error:
    raise ImportError("TensorDict is missing: pip install tensordict") from error

__all__ = ["converter", "to_tensordict"]


def to_tensordict(batch: Batch) -> Batch:
    """The batch with its `data`, a nest of tensors, as a TensorDict of batch size `[B]`.

    Raises:
        TypeError: for items that are not dictionaries of columns, at every level: a TensorDict needs their names.
    """
    size = [len(batch.info.key)]
    data = TensorDict(_named(batch.data, ""), batch_size=size)
    return dataclasses.replace(batch, data=data)


def _named(nest: Any, path: str) -> dict[str, Any]:
    if not isinstance(nest, Mapping):
        where = f"'{path}'" if path else "an item"
        raise TypeError(f'as_="tensordict" needs dictionaries of columns; {where} is a {type(nest).__name__}')
    named = {}
    for key, child in nest.items():
        if not isinstance(key, str):
            raise TypeError(f'as_="tensordict" needs names for columns, got the key {key!r}')
        leaf = hasattr(child, "dtype") and hasattr(child, "shape")
        named[key] = child if leaf else _named(child, f"{path}/{key}" if path else key)
    return named


def converter(device: Any, pinned: bool | None) -> Callable[[Batch], Batch]:
    """`to_tensordict` of tensors with these options; as for `reverie.adapters.torch.converter`."""
    tensors = to_tensors(device, pinned)
    return lambda batch: to_tensordict(tensors(batch))
