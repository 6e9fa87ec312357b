"""A bound of the rounding errors of a network in float32, by which two computations of it may differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

SPACING = torch.finfo(torch.float32).eps
SUMS: dict[str, Callable[..., int]] = {
    **dict.fromkeys(("linear", "conv1d", "conv2d", "conv3d"), lambda x, weight, *rest: weight[0].numel()),
    **dict.fromkeys(("matmul", "__matmul__", "mm", "bmm"), lambda a, b: a.shape[-1]),
    **dict.fromkeys(("addmm", "baddbmm"), lambda bias, a, b: a.shape[-1]),
    **dict.fromkeys(("sum", "mean"), lambda x, *rest: x.numel()),
}
"""Functions that add products or numbers, and the number of terms of each of their results, without a bias. Every other
function rounds each of its results a few times."""
ELEMENTWISE_ROUNDINGS = 8
"""Roundings, of the spacing of its result, that a function which is not in `SUMS` may make (tanh, log_softmax)."""
SAFETY = 4
"""Twice, since both computations round; twice again for what a first-order bound leaves out, such as kinks of ReLU."""


def error_bounds(
    compute: Callable[..., tuple[Tensor, ...]], parameters: list[Tensor], inputs: tuple[Tensor, ...]
) -> list[Tensor]:
    """First-order bounds `[N, K]` of the difference between two float32 computations of `compute(*inputs)`.

    Each input is `[N, ...]`, and each result `[N, K]`. A sum of n terms is off by less than n times the spacing of its
    type times the terms' magnitudes, and such an error reaches an output multiplied by the derivative of the output.
    The bound adds these up over all sums; `parameters` are the tensors that `compute` reads, which must be leaves.
    """
    before = [one.requires_grad for one in parameters]
    for one in parameters:
        one.requires_grad_(True)
    try:
        rows = [_bounds_of_one(compute, tuple(one[i : i + 1] for one in inputs)) for i in range(len(inputs[0]))]
        return [SAFETY * torch.cat(list(bounds)) for bounds in zip(*rows, strict=True)]
    finally:
        for one, required in zip(parameters, before, strict=True):
            one.requires_grad_(required)


def _bounds_of_one(compute: Callable[..., tuple[Tensor, ...]], inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """The bounds `[1, K]` of the results of one row of the inputs, without their factor of safety."""
    with torch.enable_grad(), _Errors() as errors:
        results = compute(*inputs)
    values, bounds = [value for value, _ in errors.found], []
    for outputs in results:
        bound = torch.zeros_like(outputs, requires_grad=False)
        for k in range(outputs.shape[1]):
            gradients = torch.autograd.grad(outputs[0, k], values, retain_graph=True, allow_unused=True)
            for gradient, (_, error) in zip(gradients, errors.found, strict=True):
                if gradient is not None:
                    bound[0, k] += (gradient.abs() * error).sum()
        bounds.append(bound)
    return bounds


class _Errors(TorchFunctionMode):
    """Records the results of functions, with bounds of the rounding errors that each of them adds."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[Tensor, Tensor]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        error = _sum_error(func, args, kwargs) if name in SUMS else None
        result = func(*args, **kwargs)
        if isinstance(result, Tensor) and result.is_floating_point() and result.requires_grad and result.dim():
            own = ELEMENTWISE_ROUNDINGS * SPACING * result.detach().abs()
            self.found.append((result, own if error is None else own + error))
        return result


@torch.no_grad()
def _sum_error(func: Any, args: Any, kwargs: Any) -> Tensor:
    """Terms times spacing times the sum of the terms' magnitudes."""
    terms = 1 + SUMS[func.__name__](*args)
    magnitudes = func(
        *(one.abs() if isinstance(one, Tensor) else one for one in args),
        **{name: one.abs() if isinstance(one, Tensor) else one for name, one in kwargs.items()},
    )
    error: Tensor = terms * SPACING * magnitudes
    return error
