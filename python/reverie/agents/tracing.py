"""An update of a learner as one graph of tensor operations, for compiling.

The graph is traced from the learner's own `_update`: forward passes, losses, gradients, optimiser steps and targets
that follow. It changes the learner's vectors in place, so that state and checkpoints are those of other updates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reverie.agents.flat import FlatNetwork
from reverie.agents.lstm import in_plain_operations
from reverie.agents.optimizers import FlatOptimizer, Optimizer
from reverie.agents.random_layers import RandomDraw, random_numbers

Result = tuple[Tensor | None, Mapping[str, Any]]
"""New priorities `[B]`, of a learner that has some, and figures by name."""

STEPPED = "stepped"
"""The figure that is 0 if an update made no step of its optimisers; those without it make one."""

Single = Callable[[dict[str, Tensor]], Result]
"""Makes the learner's next update of these columns by single operations."""


class Traceable(Protocol):
    """The parts of a learner that its updates consist of."""

    version: int
    _networks: dict[str, FlatNetwork[Any]]
    _optimizers: dict[str, Optimizer]
    _generator: torch.Generator | None
    _noise: RandomDraw | None


@dataclass(frozen=True)
class UpdateGraph:
    """One kind of update of a learner."""

    module: torch.fx.GraphModule
    """Takes the tensors of `inputs`, of which it changes the state; returns priorities, if any, and the figures."""
    columns: dict[str, Tensor]
    """An example of each column of a batch that it reads."""
    noise: tuple[tuple[torch.Size, bool], ...]
    """The shapes of the random numbers that it takes, and whether they are uniform."""
    constants: tuple[Tensor, ...]
    """The tensors that it takes last, the same ones in each update."""
    figures: tuple[str, ...]
    has_priorities: bool
    steps: tuple[str, ...]
    """The optimisers that make a step."""
    shapes: tuple[tuple[tuple[int, ...], tuple[int, ...], torch.dtype], ...]
    """Sizes, strides and dtype of each of its inputs."""

    @property
    def digest(self) -> str:
        """The digest of the operations, and of the shapes of the inputs."""
        found = hashlib.sha256(self.module.code.encode())
        for one in self.shapes:
            found.update(repr(one).encode())
        return found.hexdigest()

    def random_numbers(self, generator: torch.Generator | None) -> list[Tensor]:
        """Random numbers for one update."""
        return [random_numbers(shape, uniform, generator) for shape, uniform in self.noise]

    def fits(self, columns: Mapping[str, Tensor]) -> bool:
        """Whether it was compiled for columns like these."""
        for name, example in self.columns.items():
            column = columns[name]
            if column.shape != example.shape or column.dtype != example.dtype or not column.is_contiguous():
                return False
        return True


class GraphState:
    """The tensors of a learner that a graph changes, and the factors of its next optimiser steps."""

    def __init__(self, learner: Traceable) -> None:
        self._optimizers = [_flat(one) for one in learner._optimizers.values()]
        flats = [network.flat.detach() for network in learner._networks.values()]
        self.tensors = [*flats, *(moment for one in self._optimizers for moment in one.moments())]
        """The vectors of the networks, then the moments of the optimisers."""
        self._counts = [len(one.factors()) for one in self._optimizers]
        self._numbers: NDArray[np.float32] = np.empty(max(1, sum(self._counts)), np.float32)
        self._factors = torch.from_numpy(self._numbers)

    def factors(self) -> Tensor:
        """The factors of all optimisers for the next update, float32 `[F]`; overwritten by the next call."""
        at = 0
        for optimizer in self._optimizers:
            for number in optimizer.factors():
                self._numbers[at] = number
                at += 1
        return self._factors


class _Recorded(dict[str, Tensor]):
    """Columns that note which of them are read."""

    def __init__(self, columns: Mapping[str, Tensor]) -> None:
        super().__init__(columns)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Tensor:
        self.read.add(name)
        return super().__getitem__(name)


class UpdateNoise:
    """The random numbers of an update: returns those that were given, or zeros, and records what was requested."""

    def __init__(self, given: Sequence[Tensor] | None = None) -> None:
        self.requests: list[tuple[torch.Size, bool]] = []
        self._given = None if given is None else list(given)

    def __call__(self, shape: torch.Size, uniform: bool = False, /) -> Tensor:
        """The next numbers."""
        self.requests.append((shape, uniform))
        return torch.zeros(shape) if self._given is None else self._given.pop(0)


def trace(learner: Traceable, columns: Mapping[str, Tensor], single: Single) -> UpdateGraph:
    """The graph of the learner's next update of columns like these. Neither learner nor columns change."""
    state = GraphState(learner)
    recorded, noise = _Recorded(columns), UpdateNoise()
    # Run once on copies, to see which columns it reads and which random numbers it draws.
    copies = [one.clone() for one in state.tensors]
    priorities, figures = run(learner, single, copies, state.factors().clone(), noise, recorded)
    read = {name: columns[name] for name in sorted(recorded.read)}
    names = tuple(figures)
    zeros = [torch.zeros(shape) for shape, _ in noise.requests]
    examples = (*(one.clone() for one in state.tensors), state.factors().clone(), *zeros, *read.values())
    count = len(state.tensors)

    def traced(*tensors: Tensor) -> tuple[Tensor, ...]:
        given, rest = list(tensors[:count]), tensors[count + 1 :]
        random, batch = rest[: len(zeros)], dict(zip(read, rest[len(zeros) :], strict=True))
        new, values = run(learner, single, given, tensors[count], UpdateNoise(random), batch)
        scalars = [torch.as_tensor(values[name]).detach().reshape(()).float() for name in names]
        return (*(() if new is None else (new,)), *((torch.stack(scalars),) if scalars else ()))

    from torch.fx.experimental.proxy_tensor import make_fx  # imports PyTorch's compiler

    module = make_fx(traced)(*examples)
    constants = _constants_as_inputs(module)
    steps = tuple(name for name, one in learner._optimizers.items() if _flat(one).traced_steps)
    shapes = tuple((tuple(one.shape), one.stride(), one.dtype) for one in (*examples, *constants))
    return UpdateGraph(module, read, tuple(noise.requests), constants, names, priorities is not None, steps, shapes)


def _constants_as_inputs(module: torch.fx.GraphModule) -> tuple[Tensor, ...]:
    """Make the tensors of a graph that are not inputs its last inputs; returns them.

    So are the results of operations that read no tensor, such as `linspace`: a graph that is loaded would compute them
    while it is loaded, and the compiler refuses those. No update changes them in place.
    """
    graph, found = module.graph, []
    last = [node for node in graph.nodes if node.op == "placeholder"][-1]
    for node in list(graph.nodes):
        made = node.op == "call_function" and not node.all_input_nodes
        if made or node.op == "get_attr":
            found.append(node.target(*node.args, **node.kwargs) if made else getattr(module, node.target))
            with graph.inserting_after(last):
                last = graph.placeholder(f"constant_{len(found)}")
            node.replace_all_uses_with(last)
            graph.erase_node(node)
    module.recompile()
    return tuple(one.detach() for one in found)


def run(
    learner: Traceable,
    single: Single,
    tensors: Sequence[Tensor],
    factors: Tensor,
    noise: UpdateNoise,
    columns: dict[str, Tensor],
) -> Result:
    """Make the learner's next update of the state in `tensors`, as `GraphState` orders it, by single operations."""
    with _standing_on(learner, tensors, factors.unbind(0), noise):
        return single(columns)


@contextmanager
def _standing_on(
    learner: Traceable, tensors: Sequence[Tensor], factors: Sequence[Tensor], noise: UpdateNoise
) -> Iterator[None]:
    vectors, numbers = iter(tensors), iter(factors)
    with ExitStack() as stack:
        stack.enter_context(in_plain_operations())
        for network in learner._networks.values():
            stack.enter_context(network.computing_with(next(vectors)))
        for optimizer in map(_flat, learner._optimizers.values()):
            moments = [next(vectors) for _ in optimizer.MOMENTS]
            stack.enter_context(optimizer.computing_with(moments, [next(numbers) for _ in optimizer.factors()]))
        learner._noise = noise
        try:
            yield
        finally:
            learner._noise = None


def _flat(optimizer: Optimizer) -> FlatOptimizer:
    if not isinstance(optimizer, FlatOptimizer):
        raise TypeError(f"{type(optimizer).__name__} cannot be traced: make it with reverie.agents.optimizers.adam")
    return optimizer


def agree(
    before: Sequence[Tensor],
    one: tuple[Sequence[Tensor], Result],
    other: tuple[Sequence[Tensor], Result],
    tolerance: float,
) -> bool:
    """Whether two updates of the same state moved each vector alike, and gave the same priorities and figures.

    Up to `tolerance`, as a share of the length of what is compared; anything agrees with numbers that are not finite.
    """
    pairs = [(a - start, b - start) for start, a, b in zip(before, one[0], other[0], strict=True)]
    (priorities, figures), (others, values) = one[1], other[1]
    pairs += [(torch.as_tensor(figures[name]).reshape(()), torch.as_tensor(values[name])) for name in figures]
    if priorities is not None and others is not None:
        pairs.append((priorities, others))
    for a, b in pairs:
        length = float(torch.linalg.vector_norm(a.detach().double()))
        distance = float(torch.linalg.vector_norm((a - b).detach().double()))
        if distance > tolerance * length + 1e-6 and np.isfinite(length):
            return False
    return True
