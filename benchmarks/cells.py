"""Batches of 256 completions of 50 to 2,000 tokens (int32): cells of any size next to padding by hand in NumPy.

`python -m benchmarks.cells` prints a row for each way; all take turns. Figures are medians of nine turns, of processor
time (all threads) and of time by the clock, for a batch. By hand: rows of a list, drawn uniformly, that are copied one
by one into an array of zeros, with a mask, or concatenated.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import reverie
from reverie.testing import serve

BATCH, ITEMS, SHORTEST, LONGEST, TURNS = 256, 4_000, 50, 2_000, 9


def completions() -> list[np.ndarray[Any, Any]]:
    """Random tokens; the same in each run."""
    rng = np.random.default_rng(0)
    return [rng.integers(50_000, size=size, dtype=np.int32) for size in rng.integers(SHORTEST, LONGEST + 1, size=ITEMS)]


def by_hand(rows: list[np.ndarray[Any, Any]]) -> dict[str, Callable[[], Any]]:
    """Batches that a program makes itself."""
    rng = np.random.default_rng(1)

    def drawn() -> list[np.ndarray[Any, Any]]:
        return [rows[at] for at in rng.integers(len(rows), size=BATCH)]

    def pad() -> Any:
        found = drawn()
        lengths = np.array([len(row) for row in found])
        tokens = np.zeros((BATCH, lengths.max()), np.int32)
        for to, row in zip(tokens, found, strict=True):
            to[: len(row)] = row
        return tokens, np.arange(tokens.shape[1]) < lengths[:, np.newaxis]

    def values() -> Any:
        found = drawn()
        return np.concatenate(found), np.array([len(row) for row in found])

    return {"by hand, padded": pad, "by hand, values": values}


def table(name: str, size: int | None) -> reverie.Table:
    """A table for tokens of any size, or of this one."""
    return reverie.Table(
        name,
        sampler=reverie.selectors.Uniform(seed=1),
        remover=reverie.selectors.Fifo(),
        max_size=ITEMS,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        signature={"tokens": reverie.TensorSpec((size,), np.int32)},
        compression="none",
    )


def measured(ways: dict[str, Callable[[], Any]], seconds: float) -> None:
    """Prints the medians of each way, and their ratios to padding by hand."""
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for turn in range(TURNS + 1):
        for name, way in ways.items():
            batches, wall, cpu = 0, time.perf_counter(), time.process_time()
            while time.perf_counter() - wall < seconds:
                way()
                batches += 1
            if turn:  # The first turn warms up.
                figures[name].append(
                    ((time.process_time() - cpu) / batches * 1e3, (time.perf_counter() - wall) / batches * 1e3)
                )
    base = {}
    for name, seen in figures.items():
        cpu_ms, wall_ms = (statistics.median(one[place] for one in seen) for place in (0, 1))
        base.setdefault("cpu", cpu_ms)
        base.setdefault("wall", wall_ms)
        ratios = (cpu_ms / base["cpu"], wall_ms / base["wall"])
        print(f"| {name} | {cpu_ms:.2f} ms | x{ratios[0]:.2f} | {wall_ms:.2f} ms | x{ratios[1]:.2f} |")


def main() -> None:
    """Print the bytes of an item and a row for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.5)
    given = parser.parse_args()
    rows = completions()
    ways = by_hand(rows)
    with serve([table("any", None), table("fixed", LONGEST)], "in-process") as client:
        sizes = []
        for name in ("any", "fixed"):
            before = client.info().size_bytes
            for row in rows:
                tokens = row if name == "any" else np.pad(row, (0, LONGEST - len(row)))
                client.insert({"tokens": tokens}, {name: 1.0})
            sizes.append((client.info().size_bytes - before) / ITEMS)
        payload = sum(row.nbytes for row in rows) / ITEMS
        print(f"bytes of an item: tokens {payload:,.0f}, stored {sizes[0]:,.0f}, padded to {LONGEST:,} {sizes[1]:,.0f}")
        ways["Reverie, padded"] = lambda: client.sample_batch("any", BATCH, ragged="pad")
        ways["Reverie, values"] = lambda: client.sample_batch("any", BATCH, ragged="values")
        ways["Reverie, values, then `padded`"] = lambda: client.sample_batch("any", BATCH, ragged="values").padded(
            "tokens", -100, side="left", multiple=64
        )
        ways[f"Reverie, stored padded to {LONGEST:,}"] = lambda: client.sample_batch("fixed", BATCH)
        print("| a batch | processor time | | by the clock | |\n|---|---|---|---|---|")
        measured(ways, given.seconds)


if __name__ == "__main__":
    main()
