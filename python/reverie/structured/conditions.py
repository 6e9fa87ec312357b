"""Conditions: when a config makes an item."""

from __future__ import annotations

from typing import Any, final

from reverie import _checks, _native
from reverie.structured.patterns import Data

__all__ = ["Comparable", "Condition"]

_INT64 = range(-(1 << 63), 1 << 63)


@final
class Condition(Data):
    """A condition of a config: it makes an item only where all its conditions hold.

    `Condition.step_index() >= 2` is one: a comparison of a quantity that a static method returns.
    """

    __slots__ = ("quantity", "relation", "number", "modulo", "field", "paths")  # noqa: RUF023 (the order of the parts)

    quantity: str
    relation: str
    number: int
    modulo: int | None
    field: int
    paths: tuple[str, ...] | None

    @staticmethod
    def step_index() -> Comparable:
        """The index of the latest step in its episode, from 0."""
        return Comparable("step_index", None, 0, None)

    @staticmethod
    def steps_since_applied() -> Comparable:
        """The number of steps since the config's last item; before the first item, since the writer was made.

        The latest step is counted. The count continues across episodes, and a step appended in parts counts once.
        """
        return Comparable("steps_since_applied", None, 0, None)

    @staticmethod
    def data(step_structure: Any) -> Any:
        """A nest of this structure; compare its leaves: `Condition.data(step)["is_first"] == 1`.

        A leaf stands for the field's value in the latest step, which must be one integer or bool. If the value is None,
        no condition on it holds. At `end_episode` the latest step is the last one.
        """
        leaves, structure = _native.flatten(step_structure)
        paths = tuple(structure.paths)
        return structure.unflatten([Comparable("data", None, index, paths) for index in range(len(leaves))])

    @staticmethod
    def is_end_episode() -> Condition:
        """Holds at `end_episode`, and at no other time."""
        return Condition("is_end_episode", "==", 1, None, 0, None)

    def __repr__(self) -> str:
        name = self.quantity if self.paths is None else f"data['{self.paths[self.field]}']"
        if self.quantity == "is_end_episode":
            return f"Condition.{name}()"
        modulo = "" if self.modulo is None else f" % {self.modulo}"
        return f"Condition.{name}{modulo} {self.relation} {self.number}"


@final
class Comparable(Data):
    """A quantity: compare it with an int (`== != < <= > >=`), or its remainder (`% n == k`), to get a `Condition`."""

    __slots__ = ("quantity", "modulo", "field", "paths")  # noqa: RUF023

    quantity: str
    modulo: int | None
    field: int
    paths: tuple[str, ...] | None

    def __mod__(self, divisor: int) -> Comparable:
        """The remainder: at least 0 and below `divisor`, for negative values too."""
        if self.modulo is not None:
            raise ValueError(f"{self} is already a remainder; take one remainder")
        return Comparable(self.quantity, _checks.count("the divisor", divisor, 1), self.field, self.paths)

    def _compare(self, relation: str, number: Any) -> Condition:
        number = _checks.integer(f"the number to compare {self!r} with", number)
        if number not in _INT64:
            raise ValueError(f"{self!r} must be compared with an int of 64 bits, got {number}")
        condition = Condition(self.quantity, relation, number, self.modulo, self.field, self.paths)
        if not self._can_hold(relation, number):
            raise ValueError(f"{condition!r} can never hold")
        return condition

    def _can_hold(self, relation: str, number: int) -> bool:
        least = {"step_index": 0, "steps_since_applied": 1}.get(self.quantity)
        least = least if self.modulo is None else 0
        most = None if self.modulo is None else self.modulo - 1
        if relation == "!=":
            return not least == most == number
        above = least is None or relation in (">", ">=") or number >= least + (relation == "<")
        below = most is None or relation in ("<", "<=") or number <= most - (relation == ">")
        return above and below

    def __eq__(self, number: object) -> Condition:  # type: ignore[override]
        return self._compare("==", number)

    def __ne__(self, number: object) -> Condition:  # type: ignore[override]
        return self._compare("!=", number)

    def __lt__(self, number: int) -> Condition:
        return self._compare("<", number)

    def __le__(self, number: int) -> Condition:
        return self._compare("<=", number)

    def __gt__(self, number: int) -> Condition:
        return self._compare(">", number)

    def __ge__(self, number: int) -> Condition:
        return self._compare(">=", number)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        name = self.quantity if self.paths is None else f"data['{self.paths[self.field]}']"
        return f"Condition.{name}" + ("" if self.modulo is None else f" % {self.modulo}")
