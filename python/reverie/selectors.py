"""Selectors: which item is sampled next, and which leaves.

Any of them serves as sampler or remover. They are immutable options, safe to share between tables; the random state
belongs to the table. `seed` fixes a random selector's draws; without one the table takes a fresh seed.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from reverie import _checks

__all__ = ["Fifo", "Lifo", "MaxHeap", "MinHeap", "Prioritized", "Selector", "Uniform"]

Kind = Literal["fifo", "lifo", "uniform", "heap", "prioritized"]


@dataclasses.dataclass(frozen=True, slots=True)
class HeapOptions:
    """The part of a selector's options that only heaps have."""

    min_heap: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class PrioritizedOptions:
    """The part of a selector's options that only Prioritized has."""

    priority_exponent: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Selector:
    """What all selectors share."""

    seed: int | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if type(self) is Selector:
            raise TypeError("Selector is the base of the selectors; use Uniform(), Fifo(), Prioritized(0.6), ...")
        if self.seed is not None and not 0 <= _checks.integer("seed", self.seed) < 2**64:
            raise ValueError(f"seed must be between 0 and 2**64 - 1, got {self.seed}")

    @property
    def is_deterministic(self) -> bool:
        """True where the order of items and priorities decide, not chance."""
        return self.WhichOneof() not in ("uniform", "prioritized")

    def WhichOneof(self, group: str = "distribution") -> Kind:
        """The kind of selector, as ported code asks for it."""
        if group != "distribution":
            raise ValueError(f"the only group is 'distribution', got {group!r}")
        return _KINDS[type(self)]

    def HasField(self, field: str) -> bool:
        """True for the kind of selector that this is, as ported code asks for it.

        Raises:
            ValueError: for a name that is no kind.
        """
        if field not in _KINDS.values():
            raise ValueError(f"the kinds are {', '.join(dict.fromkeys(_KINDS.values()))}, got {field!r}")
        return self.WhichOneof() == field

    @property
    def fifo(self) -> bool:
        """True for Fifo."""
        return isinstance(self, Fifo)

    @property
    def lifo(self) -> bool:
        """True for Lifo."""
        return isinstance(self, Lifo)

    @property
    def uniform(self) -> bool:
        """True for Uniform."""
        return isinstance(self, Uniform)

    @property
    def heap(self) -> HeapOptions:
        """Which heap."""
        return HeapOptions(isinstance(self, MinHeap))

    @property
    def prioritized(self) -> PrioritizedOptions:
        """The exponent."""
        return PrioritizedOptions(self.priority_exponent if isinstance(self, Prioritized) else 0.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Fifo(Selector):
    """The oldest item."""


@dataclasses.dataclass(frozen=True, slots=True)
class Lifo(Selector):
    """The newest item."""


@dataclasses.dataclass(frozen=True, slots=True)
class Uniform(Selector):
    """Any item, each with the same probability."""


@dataclasses.dataclass(frozen=True, slots=True)
class MaxHeap(Selector):
    """The item of the highest priority; the oldest of them, where an update counts as new."""


@dataclasses.dataclass(frozen=True, slots=True)
class MinHeap(Selector):
    """The item of the lowest priority; the oldest of them, where an update counts as new."""


@dataclasses.dataclass(frozen=True, slots=True)
class Prioritized(Selector):
    """Any item, with a probability proportional to `priority ** priority_exponent` (Schaul et al. 2016, equation 1).

    Priority 0 has weight 0, unless the exponent is 0 (all weights are 1) or negative (such items go first). Where all
    weights are 0 the draw is uniform. Negative priorities are refused.

    `stratified=True` spreads the draws of a batch out: of n draws the i-th falls on the i-th of n equal parts of the
    sum of weights (ibid., section 3.3), which lowers the variance of a batch and leaves its distribution as it is.
    For samplers of tables without `max_times_sampled`; elsewhere the server refuses it (ValueError).
    """

    priority_exponent: float
    stratified: bool = dataclasses.field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        # `super()` without arguments would look for the class that slots=True replaced.
        Selector.__post_init__(self)
        if not math.isfinite(_checks.number("priority_exponent", self.priority_exponent)):
            raise ValueError(f"priority_exponent must be a finite number, got {self.priority_exponent}")


_KINDS: dict[type[Selector], Kind] = {
    Fifo: "fifo",
    Lifo: "lifo",
    Uniform: "uniform",
    MaxHeap: "heap",
    MinHeap: "heap",
    Prioritized: "prioritized",
}
