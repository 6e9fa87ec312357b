"""Patterns: slices of the fields of a step, counted from the latest one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, final

from reverie import _checks, _native

__all__ = [
    "Field",
    "Pattern",
    "PatternNode",
    "PatternTransform",
    "ReferenceStep",
    "create_reference_step",
    "pattern_from_transform",
]

#: A nest whose leaves are `PatternNode`s.
Pattern: TypeAlias = Any
#: A step's structure; indexing its leaves gives `PatternNode`s.
ReferenceStep: TypeAlias = Any
#: A function that takes a reference step and returns a pattern.
PatternTransform: TypeAlias = Callable[[ReferenceStep], Pattern]

_INT32 = range(-(1 << 31), 1 << 31)


class Data:
    """An immutable value that is compared by its parts. A plain class: libraries for nests see a leaf."""

    __slots__: tuple[str, ...] = ()

    def __init__(self, *parts: Any) -> None:
        for name, part in zip(self.__slots__, parts, strict=True):
            object.__setattr__(self, name, part)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a {type(self).__name__} cannot be changed ({name})")

    def _parts(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts()

    def __eq__(self, other: object) -> Any:
        return (
            self._parts() == other._parts() if isinstance(other, Data) and type(other) is type(self) else NotImplemented
        )

    def __hash__(self) -> int:
        return hash(self._parts())


@final
class Field(Data):
    """One field of a reference step. Indexing it (`[-1]`, `[-3:]`) gives a `PatternNode`."""

    __slots__ = ("paths", "index")  # noqa: RUF023 (the order of the parts)

    paths: tuple[str, ...]
    index: int

    def __getitem__(self, key: int | slice) -> PatternNode:
        path = self.paths[self.index]
        if isinstance(key, slice):
            return _sliced(self, key, path)
        at = _index(f"field '{path}'", key)
        if at >= 0:
            raise ValueError(f"field '{path}': [{at}] is a future step; [-1] is the latest step")
        return PatternNode(self.paths, self.index, at, at + 1, 1, True)

    def __repr__(self) -> str:
        return f"step['{self.paths[self.index]}']"


@final
class PatternNode(Data):
    """Cells of one field, counted from the latest step: `[start:stop:step]`, or only `[start]` where squeezed.

    Attributes:
        paths: all fields of the step that it was made from.
        flat_source_index: the index of its field among them.
        start, stop, step: as in a slice; the latest step is -1, and a stop of 0 is just after it.
        squeezed: True for one cell without a time axis.
    """

    __slots__ = ("paths", "flat_source_index", "start", "stop", "step", "squeezed")  # noqa: RUF023

    paths: tuple[str, ...]
    flat_source_index: int
    start: int
    stop: int
    step: int
    squeezed: bool

    @property
    def path(self) -> str:
        """The field's path."""
        return self.paths[self.flat_source_index]

    def __len__(self) -> int:
        return len(range(self.start, self.stop, self.step))

    def __repr__(self) -> str:
        if self.squeezed:
            return f"step['{self.path}'][{self.start}]"
        stop, step = "" if self.stop == 0 else self.stop, "" if self.step == 1 else f":{self.step}"
        return f"step['{self.path}'][{self.start}:{stop}{step}]"


def _sliced(field: Field, key: slice, path: str) -> PatternNode:
    if key.start is None:
        raise ValueError(
            f"field '{path}': the slice needs a start, as in [-3:]; every item has the same number of cells"
        )
    start = _index(f"field '{path}': start", key.start)
    stop = 0 if key.stop is None else _index(f"field '{path}': stop", key.stop)
    step = 1 if key.step is None else _index(f"field '{path}': step", key.step)
    if start >= 0:
        raise ValueError(f"field '{path}': start must be below 0 (-1 is the latest step), got {start}")
    if stop > 0:
        raise ValueError(f"field '{path}': stop must be at most 0 (0 is just after the latest step), got {stop}")
    if step < 1:
        raise ValueError(f"field '{path}': step must be at least 1, got {step}")
    if stop <= start:
        raise ValueError(f"field '{path}': [{start}:{stop}] has no cells; stop must be above start")
    return PatternNode(field.paths, field.index, start, stop, step, False)


def _index(name: str, value: Any) -> int:
    number = _checks.integer(name, value)
    if number not in _INT32:
        raise ValueError(f"{name} must fit 32 bits, got {number}")
    return number


def create_reference_step(step_structure: Any) -> ReferenceStep:
    """A nest of this structure whose leaves can be indexed to make a pattern: `step["obs"][-2:]`.

    Args:
        step_structure: a nest with the structure of the steps; its leaves may be anything (None, a spec).
    """
    leaves, structure = _native.flatten(step_structure)
    paths = tuple(structure.paths)
    return structure.unflatten([Field(paths, index) for index in range(len(leaves))])


def pattern_from_transform(step_structure: Any, transform: PatternTransform) -> Pattern:
    """The pattern that `transform` returns for a reference step of this structure."""
    return transform(create_reference_step(step_structure))
