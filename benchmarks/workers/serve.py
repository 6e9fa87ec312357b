"""The worker's half of the harness: requests come as JSON lines on stdin, answers leave on stdout.

A worker offers cases: `name -> prepare(row) -> loop`, where `loop(n)` does the row's work n times. Everything but
`loop` is outside the clock. Standard library only: it runs inside every peer's own environment.
"""

from __future__ import annotations

import gc
import importlib.metadata
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

Loop = Callable[[int], None]
Prepare = Callable[[dict[str, Any]], Loop]

# Threads that want the GIL hand it on every 5 ms each: a piece must see many turns.
BUSY_PIECE_SECONDS = 0.25


def calibrate(loop: Loop, piece: float) -> int:
    """The number of calls that make a piece of about so many seconds; warms caches on the way."""
    loop(3)  # first touches and lazy imports are not what a piece will cost
    count = 1
    while True:
        start = time.perf_counter()
        loop(count)
        took = time.perf_counter() - start
        if took >= piece / 2:
            return max(1, round(count * piece / took))
        count *= 2


def timed(loop: Loop, seconds: float, piece: float) -> dict[str, float]:
    """Runs pieces of the loop for about `seconds`; gives the median of seconds per call."""
    count = calibrate(loop, piece)
    pieces = []
    end = time.perf_counter() + seconds
    while not pieces or time.perf_counter() < end:
        start = time.perf_counter()
        loop(count)
        pieces.append((time.perf_counter() - start) / count)
    return {"seconds_per_call": statistics.median(pieces), "pieces": len(pieces), "calls_per_piece": count}


@contextmanager
def busy_threads(count: int) -> Any:
    """`count` Python threads that hold the GIL as much as they get it."""
    stop = threading.Event()

    def spin() -> None:
        number = 0
        while not stop.is_set():
            for _ in range(1_000):
                number = number * 31 % 1_000_003

    threads = [threading.Thread(target=spin, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def serve(
    packages: list[str], cases: dict[str, Prepare], measures: dict[str, Callable[..., Any]] | None = None
) -> None:
    """Answers the harness until it closes stdin."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a library that prints does not break the protocol
    loop: Loop | None = None
    for line in sys.stdin:
        request = json.loads(line)
        operation = request["op"]
        answer: Any
        if operation == "hello":
            answer = {
                "kinds": sorted(cases),
                "versions": {name: importlib.metadata.version(name) for name in packages},
                "python": sys.version.split()[0],
            }
        elif operation == "prepare":
            loop = None
            gc.collect()
            loop = cases[request["row"]["kind"]](request["row"])
            answer = {}
        elif operation == "run":
            assert loop is not None, "run before prepare"
            busy = request["busy_threads"]
            with busy_threads(busy):
                piece = BUSY_PIECE_SECONDS if busy else request["piece_seconds"]
                answer = timed(loop, request["seconds"], piece)
        elif operation == "drop":
            loop = None
            gc.collect()
            answer = {}
        elif operation == "measure":
            answer = (measures or {})[request["what"]](**request["arguments"])
        else:
            raise ValueError(f"unknown operation {operation!r}")
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
