"""The longest draw while another thread inserts and the journal syncs, and what the drawing thread did meanwhile."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reverie import Server

from .disk_rows import NONE, SYNCS, Options, fill, in_turns, journal, payload, row_of, table

SIZE, MOST, INTERVAL = 40_000, 2_000, 0.1


@dataclass(frozen=True)
class Draw:
    """The cost of a draw: seconds on the clock and of the processor, and how often its thread lost the processor."""

    seconds: float
    processor: float
    #: It waited for something: a lock, Python's lock, the disk.
    waits: int
    #: The processor was given to another thread although this one could go on.
    preemptions: int
    page_faults: int


def timed(draw: Callable[[], object]) -> Draw:
    """A draw, and what the system counted for this thread."""
    before, began = resource.getrusage(resource.RUSAGE_THREAD), time.perf_counter()
    draw()
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_THREAD)
    return Draw(
        seconds,
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        after.ru_nvcsw - before.ru_nvcsw,
        after.ru_nivcsw - before.ru_nivcsw,
        after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt,
    )


def account(longest: list[Draw]) -> str:
    """A text on the time of the median of the longest draws of all turns."""
    draw = sorted(longest, key=lambda draw: draw.seconds)[len(longest) // 2]
    return (
        f"{draw.seconds * 1e3:.1f} ms, of which {draw.processor * 1e3:.1f} ms on the processor; "
        f"{draw.waits} waits, {draw.preemptions} preemptions, {draw.page_faults} page faults"
    )


def rows(options: Options) -> list[Any]:
    """The longest draw of 64 while another thread inserts 40 kB items, and the journal syncs ten times a second."""
    name = "longest draw of 64 while 40 kB items are inserted"
    longest: dict[str, list[Draw]] = {}

    def turn(of: str) -> float:
        with options.fresh() as folder:
            kept = None if of == NONE else journal(folder, of, INTERVAL)
            with Server([table(MOST)], listen=False, journal=kept) as server:
                fill(server, 256, SIZE)
                client, end = server.client(), threading.Event()
                data = payload(SIZE).repeat(8, axis=0)

                def insert() -> None:
                    while not end.is_set():
                        client.insert_batch("t", {"x": data})

                writer = threading.Thread(target=insert)
                writer.start()
                client.sample_batch("t", 64)  # the first one makes its plan
                draws, until = [], time.perf_counter() + max(options.seconds, 0.3)
                try:
                    while time.perf_counter() < until:
                        draws.append(timed(lambda: client.sample_batch("t", 64)))
                finally:
                    end.set()
                    writer.join()
        longest.setdefault(of, []).append(max(draws, key=lambda draw: draw.seconds))
        return longest[of][-1].seconds

    row = row_of(name, "s", in_turns(name, (NONE, *SYNCS), options.rounds, turn), {NONE: SYNCS})
    row["where"] = {of: account(draws) for of, draws in longest.items()}
    row["longest"] = {of: [vars(draw) for draw in draws] for of, draws in longest.items()}
    return [row]
