"""Optimisers of one vector of parameters, whose steps can also be traced with the rest of an update.

`descend` is their step. Its numbers that change from step to step, such as Adam's corrections, are its `factors`: a
compiled update receives them and the `moments`, and `count_step` counts the steps that it has made.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from reverie.agents.flat import FlatNetwork, clip_grad_norm_


class FlatOptimizer(ABC):
    """Base of optimisers of one vector of parameters `[P]`, with the groups and states of `torch.optim.Optimizer`.

    It is not a subclass: the first `torch.optim.Optimizer` of a process imports PyTorch's compiler, which takes as long
    as `import torch`.
    """

    MOMENTS: tuple[str, ...]
    """The names of its vectors `[P]` in `state`."""
    _traced: tuple[Sequence[Tensor], Sequence[Tensor]] | None = None
    """The moments, and the factors as tensors, while an update is traced."""
    _recorded_rate: Tensor | None = None
    """The learning rate as a tensor, which replays read, while an update is recorded."""
    traced_steps = 0
    """The steps of the last update that was traced."""

    def __init__(self, parameter: nn.Parameter, **settings: Any) -> None:
        """`settings` has `lr`, the learning rate, and what else the formula has."""
        self.param_groups: list[dict[str, Any]] = [{"params": [parameter], **settings}]
        self.state: dict[nn.Parameter, dict[str, Any]] = {}
        """Empty before the first step."""

    @abstractmethod
    def formula(self, flat: Tensor, gradient: Tensor, moments: Sequence[Tensor], factors: Sequence[Any]) -> None:
        """Change `flat` and the moments as one step does. `factors` are numbers or tensors without axes."""

    @abstractmethod
    def factors(self) -> tuple[float, ...]:
        """The numbers of the next step that are others in each step."""

    def count_step(self) -> None:  # noqa: B027  # most have nothing to count
        """Count a step that a compiled update made."""

    @property
    def rate(self) -> float:
        """The learning rate of the next step."""
        rate: float = self.param_groups[0]["lr"]
        return rate

    def step(self) -> None:
        """Make one step of its parameter down its `grad`."""
        parameter = self._parameter
        self.descend(parameter, parameter.grad)

    def state_dict(self) -> dict[str, Any]:
        """Its state and settings in the form of `torch.optim.Optimizer`; tensors are not copied."""
        own = self.state.get(self._parameter)
        return {
            "state": {0: dict(own)} if own else {},
            "param_groups": [{**group, "params": [0]} for group in self.param_groups],
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Load a `state_dict`. Tensors are copied to the parameter's device if they are on another one."""
        parameter, own = self._parameter, saved["state"].get(0)
        if own:
            first = self._first_state(parameter)
            own = {key: own[key].to(like.device, like.dtype) for key, like in first.items()}
        self.state = {parameter: own} if own else {}
        self.param_groups[0].update(saved["param_groups"][0], params=[parameter])

    @contextmanager
    def recording(self, rate: Tensor) -> Iterator[None]:
        """A context in which `descend` reads its rate from a tensor without axes: for a recording on a GPU."""
        self._recorded_rate = rate
        try:
            yield
        finally:
            self._recorded_rate = None

    @torch.no_grad()
    def descend(self, flat: Tensor, gradient: Tensor, where: Tensor | None = None) -> None:
        """Make one step of `flat` down its gradient, both `[P]`.

        `where` is for a traced update: a bool without axes; if it is False, `flat` and moments stay as they are.
        """
        if self._traced is None:
            self._step(flat, gradient)
            return
        moments, factors = self._traced
        kept = [] if where is None else [(one, one.clone()) for one in (flat, *moments)]
        self.formula(flat, gradient, moments, factors)
        for tensor, before in kept:
            tensor.copy_(torch.where(where, tensor, before))  # type: ignore[arg-type]
        self.traced_steps += 1

    @property
    def is_traced(self) -> bool:
        """Whether an update is traced now: no number of a tensor can be read then."""
        return self._traced is not None

    def _step(self, flat: Tensor, gradient: Tensor) -> None:
        self.formula(flat, gradient, self.moments(), self.factors())
        self.count_step()

    def moments(self) -> list[Tensor]:
        """Its vectors `[P]`, which are 0 before the first step."""
        state = self._own_state()
        return [state[name] for name in self.MOMENTS]

    @property
    def _parameter(self) -> Any:
        return self.param_groups[0]["params"][0]

    def _own_state(self) -> dict[str, Any]:
        parameter = self._parameter
        if parameter not in self.state:
            self.state[parameter] = self._first_state(parameter)
        return self.state[parameter]

    def _first_state(self, parameter: nn.Parameter) -> dict[str, Any]:
        return {name: torch.zeros_like(parameter, requires_grad=False) for name in self.MOMENTS}

    @contextmanager
    def computing_with(self, moments: Sequence[Tensor], factors: Sequence[Tensor]) -> Iterator[None]:
        """A context in which `descend` uses these tensors, and counts no step: for tracing."""
        self._traced, self.traced_steps = (moments, factors), 0
        try:
            yield
        finally:
            self._traced = None


Optimizer = FlatOptimizer | torch.optim.Optimizer
"""The optimisers that a learner may step its networks with."""


class FlatAdam(FlatOptimizer):
    """Adam (Kingma & Ba 2015, algorithm 1) of one vector, without the checks of PyTorch's own `step`.

    These take longer than the arithmetic on small networks. State and numbers are those of `torch.optim.Adam`.
    """

    MOMENTS = ("exp_avg", "exp_avg_sq")

    def __init__(self, parameter: nn.Parameter, learning_rate: float, epsilon: float) -> None:
        super().__init__(parameter, lr=learning_rate, betas=(0.9, 0.999), eps=epsilon)

    def _first_state(self, parameter: nn.Parameter) -> dict[str, Any]:
        return {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            **super()._first_state(parameter),
        }

    def factors(self) -> tuple[float, ...]:
        """The rate with the correction of the mean, and the correction of the root."""
        group, step = self.param_groups[0], float(self._own_state()["step"]) + 1
        beta1, beta2 = group["betas"]
        return group["lr"] / (1 - beta1**step), (1 - beta2**step) ** -0.5

    def formula(self, flat: Tensor, gradient: Tensor, moments: Sequence[Tensor], factors: Sequence[Any]) -> None:
        """The step of `_step` by single operations."""
        group, (mean, square), (rate, correction) = self.param_groups[0], moments, factors
        beta1, beta2 = group["betas"]
        mean.lerp_(gradient, 1 - beta1)
        square.mul_(beta2).add_(gradient * gradient * (1 - beta2))
        flat.sub_(rate * mean / (square.sqrt() * correction + group["eps"]))

    def _step(self, flat: Tensor, gradient: Tensor) -> None:
        group, state = self.param_groups[0], self._own_state()
        beta1, beta2 = group["betas"]
        state["step"] += 1
        torch._fused_adam_(
            [flat],
            [gradient],
            [state["exp_avg"]],
            [state["exp_avg_sq"]],
            [],
            [state["step"]],
            lr=group["lr"] if self._recorded_rate is None else self._recorded_rate,
            beta1=beta1,
            beta2=beta2,
            weight_decay=0.0,
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )

    def count_step(self) -> None:
        """Count a step that a compiled update made."""
        count = self._own_state()["step"].numpy()  # a view, which takes less than an operation of PyTorch
        count += 1


class RmsProp(FlatOptimizer):
    """`x <- x - rate g / (sqrt(n) + epsilon)`, n a decaying mean of g^2: that of IMPALA. As `torch.optim.RMSprop`."""

    MOMENTS: tuple[str, ...] = ("square_avg",)

    def __init__(self, parameter: nn.Parameter, learning_rate: float, decay: float, epsilon: float) -> None:
        super().__init__(parameter, lr=learning_rate, alpha=decay, eps=epsilon)

    def factors(self) -> tuple[float, ...]:
        """The rate, for a run that resumes with another one."""
        return (self.rate,)

    def _step(self, flat: Tensor, gradient: Tensor) -> None:
        rate = self.rate if self._recorded_rate is None else self._recorded_rate
        self.formula(flat, gradient, self.moments(), (rate,))

    def formula(self, flat: Tensor, gradient: Tensor, moments: Sequence[Tensor], factors: Sequence[Any]) -> None:
        """The step."""
        (rate,), root = factors, self._root(gradient, *moments)
        if isinstance(rate, Tensor):
            flat.sub_(gradient / root * rate)
        else:
            flat.addcdiv_(gradient, root, value=-rate)

    def _root(self, gradient: Tensor, square: Tensor) -> Tensor:
        group = self.param_groups[0]
        square.mul_(group["alpha"]).addcmul_(gradient, gradient, value=1 - group["alpha"])
        return square.sqrt().add_(group["eps"])


class CentredRmsProp(RmsProp):
    """`x <- x - rate g / sqrt(n - m^2 + epsilon)`, n and m decaying means of g^2 and g (Graves 2013, eq. 38 to 40).

    The optimiser of the DQN papers, without momentum. Epsilon is under the root; PyTorch's own adds it outside. The
    1.5e-7 of Ape-X bounds the root from below at 4e-4; added outside, parameters with tiny gradients would jump.
    """

    MOMENTS = ("square_avg", "grad_avg")

    def _root(self, gradient: Tensor, square: Tensor, mean: Tensor) -> Tensor:  # type: ignore[override]
        group = self.param_groups[0]
        square.lerp_(gradient.square(), 1 - group["alpha"])
        mean.lerp_(gradient, 1 - group["alpha"])
        return torch.addcmul(square, mean, mean, value=-1).clamp_(min=0).add_(group["eps"]).sqrt_()


class FlatParameters(Protocol):
    """An object that stores its parameters in one vector."""

    flat: nn.Parameter


def adam(network: FlatParameters, learning_rate: float, epsilon: float = 1e-8) -> FlatAdam:
    """Adam over a network's vector of parameters."""
    return FlatAdam(network.flat, learning_rate, epsilon)


def centred_rmsprop(network: FlatParameters, learning_rate: float, epsilon: float) -> CentredRmsProp:
    """Centred RMSProp over a network's vector of parameters, with the papers' decay of 0.95."""
    return CentredRmsProp(network.flat, learning_rate, 0.95, epsilon)


def rmsprop(network: FlatParameters, learning_rate: float, decay: float, epsilon: float) -> RmsProp:
    """RMSProp over a network's vector, neither centred nor with momentum: `g / (sqrt(mean of g^2) + epsilon)`."""
    return RmsProp(network.flat, learning_rate, decay, epsilon)


def descend(network: FlatNetwork[Any], optimizer: Optimizer, loss: Tensor) -> None:
    """Make one optimiser step down the gradient of `loss`.

    Only this network's gradient is computed: those of other networks in `loss` stay unchanged. Frozen parameters stay
    as they are.
    """
    _step(network, optimizer, network.gradient(loss), None)


def descend_clipped(
    network: FlatNetwork[Any], optimizer: Optimizer, loss: Tensor, max_grad_norm: float, where: Tensor | None = None
) -> Tensor:
    """Like `descend`, but with the gradient scaled down to `max_grad_norm` if it is longer; returns its norm before.

    With `where`, a bool without axes, the step is made only if it is True.
    """
    gradient = network.gradient(loss)
    norm = clip_grad_norm_(gradient, max_grad_norm)
    traced = isinstance(optimizer, FlatOptimizer) and optimizer.is_traced
    if where is None or traced or where:
        _step(network, optimizer, gradient, where)
    return norm


def _step(network: FlatNetwork[Any], optimizer: Optimizer, gradient: Tensor, where: Tensor | None) -> None:
    if isinstance(optimizer, FlatOptimizer):
        optimizer.descend(network.flat, gradient, where)
    else:
        frozen = [(part, part.clone()) for part in network.frozen_parts()]
        optimizer.step()
        for part, before in frozen:  # the decay of weights needs no gradient
            part.copy_(before)


def optimizer_state(optimizer: Optimizer) -> dict[str, Any]:
    """A copy of the moments and counts of an optimiser of one parameter, as arrays; empty before its first step.

    Not as tensors: those are sent to another process as handles, which are lost if the sender is killed.
    """
    accumulated = optimizer.state_dict()["state"].get(0, {})
    return {
        key: one.detach().to("cpu", copy=True).numpy() if isinstance(one, Tensor) else copy.deepcopy(one)
        for key, one in accumulated.items()
    }


def load_optimizer(optimizer: Optimizer, accumulated: Mapping[str, Any]) -> None:
    """Load an `optimizer_state`, which is copied. Settings, such as the learning rate, stay those of `optimizer`."""
    groups = optimizer.state_dict()["param_groups"]
    own = {
        key: torch.from_numpy(one.copy()) if isinstance(one, np.ndarray) else copy.deepcopy(one)
        for key, one in accumulated.items()
    }
    optimizer.load_state_dict({"state": {0: own} if own else {}, "param_groups": groups})
