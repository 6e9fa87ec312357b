"""A network whose parameters are one flat vector.

The weights for an actor are one copy, an optimiser step is one fused call, and the norm of the gradient is the norm of
one tensor: on small networks the calls cost more than the arithmetic.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from reverie.agents.named_parameters import Named, ParameterError, parameters_of, require_same

Net = TypeVar("Net", bound=nn.Module)


def fill(to: Tensor, array: NDArray[Any]) -> None:
    """Copy an array into a tensor of its shape; also one that is not writable, as Ray's are: PyTorch warns of those."""
    to.copy_(torch.from_numpy(array if array.flags.writeable else array.copy()))


class FlatNetwork(Generic[Net]):
    """Stores the parameters of `module` in `flat` (float32 `[P]`), in `module.parameters()` order.

    The module's parameters become views of `flat`, and their gradients views of `flat.grad`, each with its previous
    strides (channels_last is kept); the module itself works as before. Everything moves to torch's default device:
    moving the module to another device or dtype afterwards would break the views.

    Parameters with `requires_grad=False` are frozen: their gradient is 0, and no optimiser step changes them.
    """

    def __init__(self, module: Net, *, trainable: bool) -> None:
        self.module = module
        parameters = list(module.parameters())
        self.parameters: list[Tensor] = [*parameters]
        """The module's parameters, views of `flat`. Gradients of those that are not frozen are computed."""
        self._frozen = [not parameter.requires_grad for parameter in parameters]
        self._names = [name for name, _ in module.named_parameters()]
        self._orders = [_order_in_memory(parameter) for parameter in parameters]
        self.device = torch.get_default_device()
        joined = torch.empty(sum(p.numel() for p in parameters), device=self.device)
        self.flat = nn.Parameter(joined, requires_grad=trainable)
        grad = torch.zeros_like(joined) if trainable else None
        self.flat.grad = grad
        offset = 0
        for parameter, frozen in zip(parameters, self._frozen, strict=True):
            size, stride = parameter.size(), parameter.stride()
            view = joined.as_strided(size, stride, offset)
            view.copy_(parameter.detach())
            parameter.data = view
            parameter.requires_grad_(trainable and not frozen)
            if grad is not None:
                parameter.grad = grad.as_strided(size, stride, offset)
            offset += parameter.numel()

    def __getstate__(self) -> dict[str, Any]:
        """The module with its own memory for each parameter, since pickles and copies would keep no views."""
        module = copy.deepcopy(self.module)
        for parameter, frozen in zip(module.parameters(), self._frozen, strict=True):
            parameter.requires_grad_(not frozen)
        return {"module": module, "trainable": self.flat.requires_grad}

    def __setstate__(self, state: dict[str, Any]) -> None:
        FlatNetwork.__init__(self, **state)

    @torch.no_grad()
    def copy_from(self, other: FlatNetwork[Net]) -> None:
        """Copy the parameters of another network of the same layout."""
        self.flat.copy_(other.flat)

    @torch.no_grad()
    def load(self, flat: NDArray[np.float32]) -> None:
        """Load parameters from an array `[P]`. Raises ValueError for another length."""
        if flat.shape != tuple(self.flat.shape):
            raise ValueError(f"weights have shape {flat.shape}, and this network needs {tuple(self.flat.shape)}")
        fill(self.flat, flat)

    def named(self, vector: Tensor | None = None) -> dict[str, NDArray[np.float32]]:
        """Copies of the parameters by name, or of the parts of a vector `[P]` like `flat`, in row-major order."""
        vector = (self.flat if vector is None else vector).detach().cpu()
        return {name: np.array(part.numpy(), order="C") for name, part in self._parts(vector)}

    def joined(self, named: Named) -> Tensor:
        """A vector `[P]` like `flat` of arrays by parameter. Raises `ParameterError` for other names and shapes."""
        require_same(named, {name: tuple(one.shape) for name, one in self.module.named_parameters()}, "this run")
        vector = torch.empty(self.flat.shape)
        for name, part in self._parts(vector):
            fill(part, named[name])
        return vector.to(self.device)

    def joined_moments(self, named: Named) -> Tensor:
        """Like `joined`, for an optimiser's moments: those of frozen parameters are 0, as their gradients are."""
        vector = self.joined(named)
        for part in self.frozen_parts(vector):
            part.zero_()
        return vector

    def frozen_parts(self, vector: Tensor | None = None) -> list[Tensor]:
        """Views of the frozen parameters in a vector `[P]`, without one in `flat`."""
        if not any(self._frozen):
            return []
        parts = self._parts((self.flat if vector is None else vector).detach())
        return [part for (_, part), frozen in zip(parts, self._frozen, strict=True) if frozen]

    @torch.no_grad()
    def load_named(self, named: Named) -> None:
        """Load parameters by name. Raises `ParameterError` for other names and shapes."""
        self.flat.copy_(self.joined(named))

    def _parts(self, vector: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Views of a vector `[P]` by parameter."""
        offset = vector.storage_offset()
        for name, parameter in zip(self._names, self.parameters, strict=True):
            yield name, vector.as_strided(parameter.size(), parameter.stride(), offset)
            offset += parameter.numel()

    def numpy(self) -> NDArray[np.float32]:
        """A copy of the parameters, float32 `[P]`."""
        copied: NDArray[np.float32] = self.flat.detach().to("cpu", copy=True).numpy()
        return copied

    def gradient(self, loss: Tensor) -> Tensor:
        """The gradient `[P]` of `loss` with respect to the parameters, which replaces `flat.grad`.

        Only this network's gradient is computed. A parameter that is frozen, or that `loss` does not depend on, has
        the gradient 0.
        """
        gradients = self._gradients(loss)
        with torch.no_grad():
            rows = [
                (one if order is None else one.permute(order)).reshape(-1)
                for one, order in zip(gradients, self._orders, strict=True)
            ]
            grad = self.flat.grad
            return torch.cat(rows) if grad is None else torch.cat(rows, out=grad)

    def _gradients(self, loss: Tensor) -> Sequence[Tensor]:
        """The gradient of each parameter."""
        if not any(self._frozen):
            return torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True)
        trained = [one for one, frozen in zip(self.parameters, self._frozen, strict=True) if not frozen]
        found = iter(torch.autograd.grad(loss, trained, allow_unused=True, materialize_grads=True))
        return [
            torch.zeros_like(one, requires_grad=False) if frozen else next(found)
            for one, frozen in zip(self.parameters, self._frozen, strict=True)
        ]

    @contextmanager
    def computing_with(self, flat: Tensor) -> Iterator[None]:
        """A context in which `flat` and the module's parameters are those of another vector `[P]`, to trace an update.

        `gradient` returns a new tensor there. Changes of the other vector reach the module, as those of `flat` do.
        """
        kept = self.flat, self.parameters
        trainable = self.flat.requires_grad
        self.flat = flat  # type: ignore[assignment]
        self.parameters = [
            part.detach().requires_grad_(trainable and not frozen)
            for (_, part), frozen in zip(self._parts(flat), self._frozen, strict=True)
        ]
        self._place(self.parameters)
        try:
            yield
        finally:
            self.flat, self.parameters = kept
            self._place(self.parameters)

    def _place(self, parameters: list[Tensor]) -> None:
        """Make these tensors the module's parameters, in their order."""
        for path, parameter in zip(self._names, parameters, strict=True):
            owner, _, name = path.rpartition(".")
            self.module.get_submodule(owner)._parameters[name] = parameter  # type: ignore[assignment]


def clip_grad_norm_(gradient: Tensor, max_norm: float) -> Tensor:
    """Scale a gradient `[P]` down to the norm `max_norm` if it is larger; returns the norm before."""
    norm: Tensor = torch.linalg.vector_norm(gradient)
    gradient.mul_(clip_scale(norm, max_norm))
    return norm


def _order_in_memory(parameter: Tensor) -> tuple[int, ...] | None:
    """The axes in the order in which the parameter's numbers lie in memory; None for row-major order."""
    if parameter.is_contiguous():
        return None
    strides = parameter.stride()
    return tuple(sorted(range(parameter.dim()), key=lambda axis: -strides[axis]))


def clip_scale(norm: Tensor, max_norm: float) -> Tensor:
    """The factor that scales a gradient of this norm down to at most `max_norm`."""
    return (max_norm / (norm + 1e-6)).clamp_(max=1.0)


def load_networks(
    own: Mapping[str, FlatNetwork[Any]], found: Mapping[str, Named], *, leave_others: bool = False
) -> None:
    """Load networks by name, and each by its parameters' names. Raises `ParameterError`, which names what differs.

    With `leave_others` networks that are not the learner's own are left out, otherwise refused.
    """
    if own.keys() - found.keys() or (found.keys() - own.keys() and not leave_others):
        raise ParameterError(f"its networks are {', '.join(found)}, and this learner's {', '.join(own)}")
    for name, network in own.items():
        with parameters_of(f"network {name}"):
            network.load_named(found[name])
