"""Rows of `benchmarks.disk` for tables larger than memory: reads and inserts of a server with a disk tier.

A table of 40 kB items holds four times the `memory_bytes` of its server. The files are warm: they were just written,
and the machine has memory for them. Contenders are the same table in memory, `preadv` of as many bytes from one file in
one thread, and TorchRL's `LazyMemmapStorage` where it is installed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from reverie import Server, Table, rate_limiters, selectors

from .disk_rows import Options, in_turns, row_of

SIZE, BATCH, AT_ONCE, DRAWS = 40_000, 256, 16, 15
MEMORY, DISK, PREADS, TORCHRL = "in memory", "on the disk", "preadv", "LazyMemmapStorage"
NOISE = np.random.default_rng(1).integers(0, 2**32, SIZE // 4, dtype=np.uint32)


def cells(first: int, count: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Rows that do not compress, and differ."""
    numbers = np.arange(first, first + count, dtype=np.uint32)[:, None] * np.uint32(2_654_435_761)
    return ((numbers ^ NOISE) * np.uint32(2_246_822_519)).view(np.uint8)


def table() -> Table:
    return Table("t", selectors.Uniform(), selectors.Fifo(), 10**7, rate_limiters.MinSize(1))


@contextlib.contextmanager
def server(folder: Path, of: str, items: int) -> Iterator[Server]:
    disk = {"disk": folder / "disk", "memory_bytes": items * SIZE // 4} if of == DISK else {}
    with Server([table()], listen=False, **disk) as made:  # type: ignore[arg-type]  # two settings of two types
        yield made


def fill(made: Server, items: int) -> None:
    client = made.client()
    for first in range(0, items, AT_ONCE):
        client.insert_batch("t", {"x": cells(first, AT_ONCE)})


def median_of(draw: Callable[[], object]) -> float:
    times = []
    for _ in range(DRAWS):
        began = time.perf_counter()
        draw()
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def draws_of(of: str, folder: Path, items: int) -> float:
    """Seconds of a batch."""
    if of in (MEMORY, DISK):
        with server(folder, of, items) as made:
            fill(made, items)
            client = made.client()
            return median_of(lambda: client.sample_batch("t", BATCH))
    random = np.random.default_rng(3)
    if of == PREADS:
        with open(folder / "plain", "wb") as file:
            for first in range(0, items, AT_ONCE):
                file.write(cells(first, AT_ONCE).tobytes())
        with open(folder / "plain", "rb") as file:

            def read() -> None:
                batch = np.empty((BATCH, SIZE), np.uint8)
                for row, item in zip(batch, random.integers(0, items, BATCH), strict=True):
                    os.preadv(file.fileno(), [row], int(item) * SIZE)

            return median_of(read)
    import torch
    from tensordict import TensorDict
    from torchrl.data import LazyMemmapStorage, ReplayBuffer

    storage = LazyMemmapStorage(items, scratch_dir=str(folder / "torchrl"))
    buffer = ReplayBuffer(storage=storage, batch_size=BATCH)
    for first in range(0, items, AT_ONCE):
        buffer.extend(TensorDict({"x": torch.from_numpy(cells(first, AT_ONCE))}, [AT_ONCE]))
    return median_of(buffer.sample)


def inserts_of(of: str, folder: Path, items: int) -> float:
    """Items per second, until the table is full and within its memory."""
    with server(folder, of, items) as made:
        began = time.perf_counter()
        fill(made, items)
        return items / (time.perf_counter() - began)


def rows(options: Options) -> list[dict[str, Any]]:
    """The rows, as those of `benchmarks.disk`."""
    items = 256 if options.smoke else 20_000
    contenders, skipped = [MEMORY, DISK, PREADS], {}
    try:
        import torchrl  # noqa: F401  # only whether it is there

        contenders.append(TORCHRL)
    except ImportError:
        skipped[TORCHRL] = "torchrl is not installed"

    def turn(measure: Callable[[str, Path, int], float]) -> Callable[[str], float]:
        def one(of: str) -> float:
            with options.fresh() as folder:
                return measure(of, folder, items)

        return one

    name = f"a batch of {BATCH} x 40 kB from a table of four times the memory"
    seconds = in_turns(name, tuple(contenders), options.rounds, turn(draws_of))
    against = {other: (DISK,) for other in contenders if other != DISK}
    made = [row_of(name, "s", seconds, against) | {"skipped": skipped}]
    name = "inserts of 40 kB items into a table of four times the memory"
    rates = in_turns(name, (MEMORY, DISK), options.rounds, turn(inserts_of))
    return [*made, row_of(name, "items/s", rates, {MEMORY: (DISK,)})]
