"""A network whose parameters are one flat vector.

The weights for an actor are one copy, an optimiser step is one fused call, and the norm of the gradient is the norm of
one tensor: on small networks the calls cost more than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from reverie.agents.named_parameters import Named, require_same

Net = TypeVar("Net", bound=nn.Module)


class FlatNetwork(Generic[Net]):
    """Stores the parameters of `module` in `flat` (float32 `[P]`), in `module.parameters()` order.

    The module's parameters become views of `flat`, and their gradients views of `flat.grad`, each with its previous
    strides (channels_last is kept); the module itself works as before. Everything moves to torch's default device:
    moving the module to another device or dtype afterwards would break the views.
    """

    def __init__(self, module: Net, *, trainable: bool) -> None:
        self.module = module
        parameters = list(module.parameters())
        self.parameters = parameters
        """The module's parameters, views of `flat`: the `inputs` of a backward pass."""
        self.device = torch.get_default_device()
        joined = torch.empty(sum(p.numel() for p in parameters), device=self.device)
        self.flat = nn.Parameter(joined, requires_grad=trainable)
        grad = torch.zeros_like(joined) if trainable else None
        self.flat.grad = grad
        offset = 0
        for parameter in parameters:
            size, stride = parameter.size(), parameter.stride()
            view = joined.as_strided(size, stride, offset)
            view.copy_(parameter.detach())
            parameter.data = view
            parameter.requires_grad_(trainable)
            if grad is not None:
                parameter.grad = grad.as_strided(size, stride, offset)
            offset += parameter.numel()

    @torch.no_grad()
    def copy_from(self, other: FlatNetwork[Net]) -> None:
        """Copy the parameters of another network of the same layout."""
        self.flat.copy_(other.flat)

    @torch.no_grad()
    def load(self, flat: NDArray[np.float32]) -> None:
        """Load parameters from an array `[P]`. Raises ValueError for another length."""
        if flat.shape != tuple(self.flat.shape):
            raise ValueError(f"weights have shape {flat.shape}, and this network needs {tuple(self.flat.shape)}")
        self.flat.copy_(torch.from_numpy(flat))

    def named(self, vector: Tensor | None = None) -> dict[str, NDArray[np.float32]]:
        """Copies of the parameters by name, or of the parts of a vector `[P]` like `flat`, in row-major order."""
        vector = (self.flat if vector is None else vector).detach().cpu()
        return {name: np.array(part.numpy(), order="C") for name, part in self._parts(vector)}

    def joined(self, named: Named) -> Tensor:
        """A vector `[P]` like `flat` of arrays by parameter. Raises `ParameterError` for other names and shapes."""
        require_same(named, {name: tuple(one.shape) for name, one in self.module.named_parameters()}, "this run")
        vector = torch.empty(self.flat.shape)
        for name, part in self._parts(vector):
            part.copy_(torch.from_numpy(named[name]))
        return vector.to(self.device)

    @torch.no_grad()
    def load_named(self, named: Named) -> None:
        """Load parameters by name. Raises `ParameterError` for other names and shapes."""
        self.flat.copy_(self.joined(named))

    def _parts(self, vector: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Views of a vector `[P]` by parameter."""
        offset = vector.storage_offset()
        for name, parameter in self.module.named_parameters():
            yield name, vector.as_strided(parameter.size(), parameter.stride(), offset)
            offset += parameter.numel()

    def numpy(self) -> NDArray[np.float32]:
        """A copy of the parameters, float32 `[P]`."""
        copied: NDArray[np.float32] = self.flat.detach().to("cpu", copy=True).numpy()
        return copied

    def zero_grad_(self) -> None:
        """Set the gradient to 0; the parameters' gradients stay views of it."""
        assert self.flat.grad is not None
        self.flat.grad.zero_()

    def clip_grad_norm_(self, max_norm: float) -> Tensor:
        """Scale the gradient down to the norm `max_norm` if it is larger; returns the norm before."""
        grad = self.flat.grad
        assert grad is not None
        norm: Tensor = torch.linalg.vector_norm(grad)
        grad.mul_(clip_scale(norm, max_norm))
        return norm


def clip_scale(norm: Tensor, max_norm: float) -> Tensor:
    """The factor that scales a gradient of this norm down to at most `max_norm`."""
    return (max_norm / (norm + 1e-6)).clamp_(max=1.0)
