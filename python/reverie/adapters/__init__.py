"""Adapters to frameworks. Below the agents only these files import one, each when a call needs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

from reverie.types import Batch

__all__ = ["As", "converter", "sender"]

#: The type of the columns of a batch.
As = Literal["numpy", "torch", "jax", "tensordict"]


def converter(as_: As, device: Any, pinned: bool | None) -> Callable[[Batch], Batch] | None:
    """A function that converts the columns of a batch to this type; None for NumPy.

    Raises:
        ValueError: for an unknown `as_`, or options that it does not have.
        ImportError: the framework is not installed.
    """
    if as_ not in get_args(As):
        raise ValueError(f"as_ must be one of {get_args(As)}, got {as_!r}")
    if as_ == "numpy" and device is not None:
        raise ValueError('device is for as_="torch", "tensordict" or "jax"')
    if as_ in ("numpy", "jax") and pinned is not None:
        raise ValueError('pinned is for as_="torch" or "tensordict"')
    if as_ == "numpy":
        return None
    if as_ == "jax":
        from reverie.adapters import jax

        return jax.converter(device)
    if as_ == "tensordict":
        from reverie.adapters import tensordict

        return tensordict.converter(device, pinned)
    from reverie.adapters import torch

    return torch.converter(device, pinned)


def sender(as_: As, device: Any, pinned: bool | None) -> Callable[[Batch], tuple[Batch, Callable[[], Batch]]] | None:
    """A function for `reverie.datasets.Batches` that sends batches to a GPU from a thread; None if none is sent.

    The options are those that `converter` took.
    """
    if as_ not in ("torch", "tensordict") or device is None or pinned is False:
        return None
    from reverie.adapters import torch

    if as_ == "torch":
        return torch.sender(device)
    from reverie.adapters import tensordict

    return torch.sender(device, tensordict.to_tensordict)
