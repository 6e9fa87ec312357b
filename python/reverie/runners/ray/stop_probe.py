"""Whether the process of a role on Ray is stopped: asked of its own node, and only where the role does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from reverie.runners.links.messages import Ready

UNANSWERED_SECONDS = 5.0
"""A role's actor answers within a second, whatever the role does: one that has not for so long may be stopped."""
AGAIN_SECONDS = 5.0
"""Between two questions to a node."""


class StopProbe:
    """Asks the node of one role, a question at a time; the answer is looked for, never waited for."""

    def __init__(self, ready: Ready) -> None:
        self._ready = ready
        self._asked: Any = None
        self._next = 0.0
        self._found = ""

    def stopped(self) -> str:
        """What has stopped the process, as what comes behind "it", by the last answer; empty where nothing is known."""
        if self._asked is not None and ray.wait([self._asked], timeout=0)[0]:
            self._found = self._answer()
            self._asked = None
        if self._asked is None and time.monotonic() >= self._next:
            self._next = time.monotonic() + AGAIN_SECONDS
            strategy = NodeAffinitySchedulingStrategy(self._ready.host, soft=False)
            asking = ray.remote(_question()).options(num_cpus=0, max_retries=0, scheduling_strategy=strategy)
            self._asked = asking.remote(self._ready.pid)
        return self._found

    def forget(self) -> None:
        """The role answers again: what was found, and what is being asked, is of before."""
        self._asked, self._found = None, ""

    def _answer(self) -> str:
        with suppress(RayError):  # the node is gone, and its roles will be reported as died
            address = ray.get(self._asked)
            if address:
                return f"is stopped (kill -CONT {self._ready.pid} on {address} lets it go on)"
        return ""


def _question() -> Callable[[int], str]:
    """A function that Ray sends by value: by name, a worker would import PyTorch to find it."""

    def where_stopped(pid: int) -> str:
        """The address of this node where the process is stopped; else nothing."""
        from pathlib import Path

        import ray

        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:  # it has ended
            return ""
        return str(ray.util.get_node_ip_address()) if stat.rpartition(")")[2].split()[0] in "tT" else ""

    return where_stopped
