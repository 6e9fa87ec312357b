"""Waits, by a task on its node, until the process of a killed actor has ended.

Ray marks an actor as dead when it is killed, a moment before its process ends, and the kernel releases the locks of the
process, those of a journal or of a disk's folder, only then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

KILL_SECONDS = 60.0
"""The longest wait. A process that has not ended by then keeps its locks, and an error names the lock."""


def ends_of(hosts: Sequence[Any]) -> list[Any]:
    """References that are ready once the processes of these killed actors have ended. Asks Ray's head."""
    placed = [process for process in map(_process_of, hosts) if process is not None]
    return [_end_of(*process) for process in placed]


def wait_for(ends: list[Any]) -> None:
    """Wait for them, at most `KILL_SECONDS`. A lost node, whose task fails, has no process any more."""
    if ends:
        with suppress(RayError):
            ray.wait(ends, num_returns=len(ends), timeout=KILL_SECONDS, fetch_local=False)


def _process_of(host: Any) -> tuple[str, int] | None:
    """The node and the process of an actor; None if it never had one."""
    actor = ray._private.state.actors(host._actor_id.hex())
    pid = actor.get("Pid")
    return (actor["Address"]["NodeID"], pid) if pid else None


def _end_of(node: str, pid: int) -> Any:
    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    task = ray.remote(_make_wait()).options(num_cpus=0, max_retries=0, scheduling_strategy=strategy)
    return task.remote(pid, KILL_SECONDS)


def _make_wait() -> Callable[[int, float], None]:
    """A function that Ray sends by value: to find it by name, a worker would import PyTorch."""

    def wait_for_end(pid: int, seconds: float) -> None:
        """Wait until the process has ended, or the time is over."""
        import os
        import select

        with suppress(ProcessLookupError):
            if hasattr(os, "pidfd_open"):
                pidfd = os.pidfd_open(pid)
                try:
                    select.select([pidfd], [], [], seconds)
                finally:
                    os.close(pidfd)
                return
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                os.kill(pid, 0)
                time.sleep(0.01)

    return wait_for_end
