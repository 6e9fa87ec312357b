"""The columns of steps and items that the signatures of tables describe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reverie import _native
from reverie.structured import Config
from reverie.tables import Table


def structure_of(signature: Any) -> _native.Structure | None:
    """The structure of a signature; None for None."""
    return None if signature is None else _native.flatten(signature)[1]


def variable_cells(tables: Sequence[Table]) -> list[tuple[str, int]]:
    """The columns whose cells may differ in the size of their first axis: paths, and the number of a cell's axes.

    A signature describes an item: its first axis is that of a cell, or time, and then a cell's axes come after it. The
    number of axes of a step decides which. A column to which another table gives a size has that size.
    """
    found, fixed = [], set()
    for table in tables:
        if table.signature is None:
            continue
        leaves, structure = _native.flatten(table.signature)
        for path, spec in zip(structure.paths, leaves, strict=True):
            axes = len(spec.shape)
            for time in (0, 1):
                if axes > time:
                    place = (path, axes - time)
                    fixed.add(place) if spec.shape[time] is not None else found.append(place)
    return [place for place in dict.fromkeys(found) if place not in fixed]


def variable_fields(tables: Sequence[Table], configs: Sequence[object]) -> list[tuple[str, int]]:
    """The fields of a step that patterns put into columns of any size: paths, and the number of a cell's axes."""
    shapes: dict[tuple[str, str], tuple[int | None, ...]] = {}
    for table in tables:
        if table.signature is not None:
            leaves, structure = _native.flatten(table.signature)
            shapes.update(((table.name, path), spec.shape) for path, spec in zip(structure.paths, leaves, strict=True))
    found = []
    # The writer refuses a value that is not a config.
    for config in (given for given in configs if isinstance(given, Config)):
        for path, node in zip(config.structure.paths, config.flat, strict=True):
            shape = shapes.get((config.table, path), ())
            cell = shape if node.squeezed else shape[1:]
            if cell and cell[0] is None:
                found.append((node.path, len(cell)))
    return found
