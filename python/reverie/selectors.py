"""Selectors: which item a table samples next, and which it evicts.

Every selector can be a sampler or a remover. It is an immutable option, safe to share between tables; the random state
belongs to the table. `seed` makes a random selector's draws repeatable; without one the table takes a new seed.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, Literal, Self, get_args

from reverie import _checks

__all__ = ["Fifo", "Lifo", "MaxHeap", "MinHeap", "Prioritized", "Selector", "Uniform"]

Kind = Literal["fifo", "lifo", "uniform", "heap", "prioritized"]


@dataclasses.dataclass(frozen=True, slots=True)
class HeapOptions:
    """The options of heaps, under dm-reverb's names."""

    min_heap: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class PrioritizedOptions:
    """The options of `Prioritized`, under dm-reverb's names."""

    priority_exponent: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Selector:
    """The base class of all selectors."""

    #: The numbers of this selector in the engine, `SelectorOptions::parts`.
    _numbers: ClassVar[tuple[int, ...]] = ()
    #: Its kind, as dm-reverb calls it.
    _kind: ClassVar[Kind]

    seed: int | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if type(self) is Selector:
            raise TypeError("Selector is the base class; use Uniform(), Fifo(), Prioritized(0.6), ...")
        if self.seed is not None and not 0 <= _checks.integer("seed", self.seed) < 2**64:
            raise ValueError(f"seed must be between 0 and 2**64 - 1, got {self.seed}")

    @property
    def is_deterministic(self) -> bool:
        """True where the items and their priorities determine the choice; False for a random one."""
        return self.WhichOneof() not in ("uniform", "prioritized")

    def WhichOneof(self, group: str = "distribution") -> Kind:
        """The kind of selector, under dm-reverb's name.

        Raises:
            ValueError: for another group than "distribution".
        """
        if group != "distribution":
            raise ValueError(f"group must be 'distribution', got {group!r}")
        return self._kind

    def HasField(self, field: str) -> bool:
        """True where this selector is of the kind `field`, under dm-reverb's names.

        Raises:
            ValueError: for an unknown kind.
        """
        if field not in get_args(Kind):
            raise ValueError(f"field must be one of {', '.join(get_args(Kind))}, got {field!r}")
        return self.WhichOneof() == field

    def _for_engine(self) -> tuple[int, float]:
        """The number of the selector and its exponent, which is 0 where it has none."""
        return self._numbers[0], 0.0

    @classmethod
    def _from_engine(cls, number: int, exponent: float, seed: int | None) -> Self:
        return cls(seed=seed)

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
        """The options of a heap; of another selector those of `MaxHeap`."""
        return HeapOptions(isinstance(self, MinHeap))

    @property
    def prioritized(self) -> PrioritizedOptions:
        """The exponent; 0 for other selectors."""
        return PrioritizedOptions(self.priority_exponent if isinstance(self, Prioritized) else 0.0)


# Those without options of their own are not dataclasses: making each of these takes 1 % of the package's import.
class Fifo(Selector):
    """The oldest item."""

    __slots__ = ()
    _numbers, _kind = (0,), "fifo"


class Lifo(Selector):
    """The newest item."""

    __slots__ = ()
    _numbers, _kind = (1,), "lifo"


class Uniform(Selector):
    """Every item with the same probability."""

    __slots__ = ()
    _numbers, _kind = (2,), "uniform"


class MaxHeap(Selector):
    """The item with the highest priority; among equals, the one that was inserted or updated first."""

    __slots__ = ()
    _numbers, _kind = (3,), "heap"


class MinHeap(Selector):
    """The item with the lowest priority; among equals, the one that was inserted or updated first."""

    __slots__ = ()
    _numbers, _kind = (4,), "heap"


@dataclasses.dataclass(frozen=True, slots=True)
class Prioritized(Selector):
    """Items with probabilities proportional to `priority ** priority_exponent` (Schaul et al. 2016, equation 1).

    Priority 0 has weight 0; with exponent 0 all weights are 1, and with a negative exponent items of priority 0 are
    drawn before all others. If all weights are 0, the draw is uniform. Negative priorities are refused.

    With `stratified=True` the i-th of n draws of a batch falls into the i-th of n equal parts of the sum of weights
    (ibid., section 3.3): the variance of a batch is lower, and its distribution stays the same. This is for samplers of
    tables without `max_times_sampled`; the server refuses it elsewhere (ValueError).
    """

    _numbers, _kind = (5, 6), "prioritized"

    priority_exponent: float
    stratified: bool = dataclasses.field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        # `super()` would refer to the class that `slots=True` replaced.
        Selector.__post_init__(self)
        if not math.isfinite(_checks.number("priority_exponent", self.priority_exponent)):
            raise ValueError(f"priority_exponent must be a finite number, got {self.priority_exponent}")
        if self.stratified not in (False, True):
            raise TypeError(f"stratified must be a bool, got {self.stratified!r}")

    def _for_engine(self) -> tuple[int, float]:
        return self._numbers[self.stratified], self.priority_exponent

    @classmethod
    def _from_engine(cls, number: int, exponent: float, seed: int | None) -> Self:
        return cls(exponent, seed=seed, stratified=number == cls._numbers[1])


#: In the order of the engine's numbers. The CLI takes its names from here.
SELECTORS: tuple[type[Selector], ...] = (Fifo, Lifo, Uniform, MaxHeap, MinHeap, Prioritized)
_BY_NUMBER = {number: kind for kind in SELECTORS for number in kind._numbers}


def from_engine(parts: tuple[int, float], seed: int | None = None) -> Selector:
    """The selector that a server or a checkpoint describes; the reverse of `Selector._for_engine`."""
    number, exponent = parts
    return _BY_NUMBER[number]._from_engine(number, exponent, seed)
