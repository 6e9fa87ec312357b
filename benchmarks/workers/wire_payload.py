"""The data that the workers of the network rows store, and the process of their servers. Needs NumPy only."""

from __future__ import annotations

import atexit
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

TABLE = "replay"
BATCH = 64
UPDATES = 256
#: Threads of one client that call at once.
THREADS = 4
#: Steps that a writer process appends one by one, again and again.
STEPS = 64
#: Bytes of steps that each writes before the common start: twice as many as any of its own reserves holds, so that its
#: connection, its memory and the table are as they will be for hours.
WARM_BYTES = 8 << 20


def in_flight(payload: int) -> int:
    """Batches asked for ahead: about a megabyte of them, at least 4 and at most 16."""
    return min(16, max(4, (1 << 20) // (BATCH * payload)))


def warm_rounds(payload: int) -> int:
    """The number of times that a writer process writes its `STEPS` before the common start."""
    return max(1, WARM_BYTES // (STEPS * payload))


def steps(count: int, payload: int, seed: int = 7) -> np.ndarray:
    """`[count, payload / 4]` float32 that nothing compresses."""
    return np.random.default_rng(seed).standard_normal((count, payload // 4), dtype=np.float32)


class ServerProcess:
    """A server in a process of its own, in the worker's own environment: `python -m <module> ARGUMENTS`.

    It prints its port in one line, and ends when its stdin does.
    """

    def __init__(self, module: str, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", module, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server {module} ended before it printed its port")
        self.address = f"127.0.0.1:{int(line)}"
        atexit.register(self.close)

    def close(self) -> None:
        """Ends the process; idempotent."""
        if self._process.poll() is None and self._process.stdin is not None:
            self._process.stdin.close()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        atexit.unregister(self.close)


def together(processes: int, write: Callable[..., None], arguments: tuple[Any, ...]) -> float:
    """Items per second of `write(*arguments, ready, start, written)` in so many processes at once, from their common
    start to the last one's flush. Each writes `warm_rounds` and flushes, releases `ready`, waits for the start, adds
    what it wrote since then, and releases `ready` again: what interpreters take to begin and to end is no writing."""
    context = multiprocessing.get_context("spawn")
    ready, start, written = context.Semaphore(0), context.Event(), context.Value("q", 0)
    workers = [context.Process(target=write, args=(*arguments, ready, start, written)) for _ in range(processes)]
    for worker in workers:
        worker.start()
    try:
        wait_for_all(ready, processes)
        began = time.perf_counter()
        start.set()
        wait_for_all(ready, processes)
        took = time.perf_counter() - began
        for worker in workers:
            worker.join(timeout=120)
        failed = [worker.exitcode for worker in workers if worker.exitcode != 0]
        if failed:
            raise RuntimeError(f"{len(failed)} of {processes} writers failed: exit codes {sorted(map(str, failed))}")
    finally:
        for worker in workers:
            if worker.is_alive():
                worker.kill()
    return written.value / took


def wait_for_all(ready: Any, processes: int) -> None:
    """Waits until each process has released the semaphore once."""
    for _ in range(processes):
        if not ready.acquire(timeout=120):
            raise RuntimeError("a writer did not answer within 120 s")
