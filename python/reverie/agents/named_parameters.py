"""Parameters by name: copies of a module's parameters, and their comparison with those of a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

Named = Mapping[str, NDArray[np.float32]]
"""Parameters by name, each in row-major order."""


class ParameterError(ValueError):
    """Parameters are missing, unexpected or misshapen; the text names them."""


@contextmanager
def parameters_of(what: str) -> Iterator[None]:
    """A context whose `ParameterError` begins with `what`, such as "network online"."""
    try:
        yield
    except ParameterError as error:
        raise ParameterError(f"{what} {error}") from error


def copied(module: nn.Module) -> dict[str, NDArray[np.float32]]:
    """Copies of the parameters of `module` by name, in row-major order."""
    return {name: np.array(one.detach().cpu().numpy(), order="C") for name, one in module.named_parameters()}


def require_same(found: Mapping[str, Any], own: Mapping[str, tuple[int, ...]], whose: str) -> None:
    """Raise `ParameterError` unless `found` has exactly the names and shapes of `own`, in float32.

    `whose` describes the owner of `own` in the message, such as "this run".
    """
    missing, unknown = sorted(own.keys() - found.keys()), sorted(found.keys() - own.keys())
    if missing or unknown:
        named = [f"{what} {', '.join(names)}" for what, names in (("lacks", missing), ("also has", unknown)) if names]
        raise ParameterError(f"has other weights than {whose}: it {' and '.join(named)}")
    for name, shape in own.items():
        one = found[name]
        if tuple(one.shape) != shape or one.dtype != np.float32:
            raise ParameterError(
                f"has the weight {name} as {one.dtype} {tuple(one.shape)}, and {whose} needs float32 {shape}"
            )


def load(module: nn.Module, found: Named, whose: str) -> None:
    """Copy parameters into `module` by name. Raises as `require_same` does, before it changes any."""
    own = dict(module.named_parameters())
    require_same(found, {name: tuple(one.shape) for name, one in own.items()}, whose)
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(torch.from_numpy(found[name]))
