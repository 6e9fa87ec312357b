"""Shared by the rows of `benchmarks.disk`: sizes, a table with its journal, figures of alternating contenders."""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import reverie
from reverie import Journal, Server, Table

NONE, SYNCS = "no journal", ("os", "interval", "always")
INTERVAL = 1.0


@dataclass(frozen=True)
class Options:
    """The sizes of a run."""

    folder: Path
    rounds: int
    seconds: float
    items: int
    smoke: bool

    @contextlib.contextmanager
    def fresh(self) -> Iterator[Path]:
        """A folder on the disk that is measured, removed at the end."""
        with tempfile.TemporaryDirectory(dir=self.folder, prefix="reverie-disk-") as folder:
            yield Path(folder)


def table(max_size: int) -> Table:
    return Table("t", reverie.selectors.Uniform(), reverie.selectors.Fifo(), max_size, reverie.rate_limiters.MinSize(1))


def journal(folder: Path, sync: str, interval: float = INTERVAL) -> Journal:
    return Journal(folder / "journal", sync=sync, interval=interval, checkpoint_period=None)  # type: ignore[arg-type]


def payload(size: int, items: int = 1) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Items of so many bytes of noise each, which no compression makes smaller."""
    return np.random.default_rng(1).random((items, size // 4), np.float32)


def fill(server: Server, items: int, size: int) -> None:
    client, at_once = server.client(), 1_000
    rows = np.random.default_rng(2).random((at_once, size // 4), np.float32)
    for begun in range(0, items, at_once):
        client.insert_batch("t", {"x": rows[: min(at_once, items - begun)]})


def in_turns(
    name: str, contenders: tuple[str, ...], rounds: int, turn: Callable[[str], float]
) -> dict[str, list[float]]:
    """The figures of each contender, one for each round; the order rotates."""
    print(f"==> {name}: {', '.join(contenders)}", file=sys.stderr, flush=True)
    figures: dict[str, list[float]] = {contender: [] for contender in contenders}
    for number in range(rounds):
        shift = number % len(contenders)
        for contender in contenders[shift:] + contenders[:shift]:
            figures[contender].append(turn(contender))
    return figures


def row_of(
    name: str, unit: str, figures: dict[str, list[float]], against: dict[str, tuple[str, ...]]
) -> dict[str, Any]:
    """A row of the result. `against`: for each reference, the contenders that are divided by it."""
    ratios = {}
    for reference, contenders in against.items():
        for contender in contenders:
            each = [a / b for a, b in zip(figures[contender], figures[reference], strict=True)]
            ratios[f"{contender} / {reference}"] = [statistics.median(each), min(each), max(each)]
    medians = {contender: statistics.median(values) for contender, values in figures.items()}
    return {"name": name, "unit": unit, "medians": medians, "ratios": ratios, "rounds": figures}
