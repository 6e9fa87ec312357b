"""Checks whether a role's process on Ray is stopped, by a task on its node, only if the role does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from reverie.runners.links.messages import RoleReady

UNANSWERED_SECONDS = 5.0
"""A role's actor answers within a second, even while the role is busy; after this time without an answer its process
may be stopped."""
AGAIN_SECONDS = 5.0
"""Time between two checks on a node."""


class StopProbe:
    """Checks one role's process on its node, one task at a time. Never blocks on the answer."""

    def __init__(self, ready: RoleReady) -> None:
        self._ready = ready
        self._check: Any = None
        self._next = 0.0
        self._found = ""

    def why_stopped(self) -> str:
        """The last answer: why the process is stopped, worded to follow "it"; empty if it is not known to be."""
        if self._check is not None and ray.wait([self._check], timeout=0)[0]:
            self._found = self._answer()
            self._check = None
        if self._check is None and time.monotonic() >= self._next:
            self._next = time.monotonic() + AGAIN_SECONDS
            strategy = NodeAffinitySchedulingStrategy(self._ready.host, soft=False)
            task = ray.remote(_make_check()).options(num_cpus=0, max_retries=0, scheduling_strategy=strategy)
            self._check = task.remote(self._ready.pid)
        return self._found

    def forget(self) -> None:
        """Discard the last answer and the check in flight, since the role answers again."""
        self._check, self._found = None, ""

    def _answer(self) -> str:
        with suppress(RayError):  # the node is gone, and its roles will be reported as died
            address = ray.get(self._check)
            if address:
                return f"is stopped (kill -CONT {self._ready.pid} on {address} resumes it)"
        return ""


def _make_check() -> Callable[[int], str]:
    """A function that Ray sends by value: to find it by name, a worker would import PyTorch."""

    def where_stopped(pid: int) -> str:
        """This node's address if the process is stopped, else an empty string."""
        from pathlib import Path

        import ray

        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:  # it has ended
            return ""
        return str(ray.util.get_node_ip_address()) if stat.rpartition(")")[2].split()[0] in "tT" else ""

    return where_stopped
