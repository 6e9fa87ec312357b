"""Parameters over Ray's object store: each version is put once, and shared by all processes of a node."""

from __future__ import annotations

import errno
import time
from typing import Any, final

try:
    import ray
    from ray.exceptions import GetTimeoutError, ObjectStoreFullError, OutOfDiskError, RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as error:  # pragma: no cover - without the extra
    raise ImportError('ray is not installed: pip install "reverie[ray]"') from error

import numpy as np

from reverie.errors import DeadlineExceededError, UnavailableError
from reverie.parameters.ends import POLL_SECONDS, Channel, ParameterCarrier
from reverie.parameters.record import Arrays, Parameters, Version, require_newer

__all__ = ["RayChannel"]

TRANSFER_SECONDS = 10.0
"""The longest that a subscriber waits for parameters to arrive at its node before it asks for newer ones."""


class NewestReference:
    """Keeps the newest version and a reference to its object, so that the store keeps one object for the channel."""

    def __init__(self) -> None:
        self._version: Version | None = None
        self._objects: list[Any] = []

    def publish(self, version: tuple[int, int], objects: list[Any]) -> Version | None:
        """Make this the newest, unless there is a version that is not older; returns the newest one before."""
        before = self._version
        if before is None or version > before:
            self._version, self._objects = Version(*version), objects
        return before

    def newest(self, above: tuple[int, int] | None) -> tuple[Version | None, list[Any]]:
        """The newest version, or None; and the reference to its object if it is newer than `above`."""
        version = self._version
        return version, [] if version is None or (above is not None and version <= above) else self._objects


@final
class RayChannel(Channel):
    """Parameters over Ray's object store. Pass it to Ray's tasks and actors, which make their ends.

    An actor without CPUs keeps the newest version and its reference; it runs on this process's node and is restarted if
    its process ends. Parameters are objects of their publisher's process: when that ends, subscribers that do not have
    the newest ones wait for those of the next publisher.

    Args:
        options: for the actor, as `.options(...)` of Ray takes them, for example `lifetime="detached"`.

    Raises:
        RuntimeError: `ray.init()` was not called.
    """

    def __init__(self, **options: Any) -> None:
        if not ray.is_initialized():
            raise RuntimeError("this process is not connected to Ray: call ray.init() before you make a RayChannel")
        # On this node: on another it would be lost with that node, while this process and its actors wait.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        options = {"num_cpus": 0, "max_restarts": -1, "scheduling_strategy": here, **options}
        self._actor: Any = ray.remote(NewestReference).options(**options).remote()

    def carrier(self) -> _RayCarrier:
        """A carrier for one end."""
        return _RayCarrier(self._actor)

    def close(self) -> None:
        """End the actor; subscribers receive nothing newer. Idempotent."""
        ray.kill(self._actor)


class _RayCarrier(ParameterCarrier):
    where = "Ray's object store"

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._sent: tuple[Version, Any] | None = None
        """The last publication and Ray's response to it."""
        self._request: Any = None
        self._next = 0.0
        self._known: Version | None = None
        self._problem = "no response has arrived yet"

    def put(self, version: Version, arrays: Arrays, timeout: float | None) -> None:
        """Waits for the response to the publication before, so that one is in flight at most."""
        if self._sent is not None:
            sent, response = self._sent
            try:
                before = ray.get(response, timeout=timeout)
            except GetTimeoutError:
                why = f"Ray has not responded to the publication of {sent}"
                raise DeadlineExceededError(f"not published within {timeout:g} s: {why}", why=why) from None
            except RayError:  # the actor is being restarted: it has lost the newest version, and this one replaces it
                before = None
            self._sent = None
            require_newer(sent, before, self.where)
        try:
            stored = ray.put(arrays)
        except (ObjectStoreFullError, OutOfDiskError) as error:
            raise OSError(errno.ENOSPC, f"{self.where} is full: {_line(error)}") from error
        self._sent = version, self._actor.publish.remote(tuple(version), [stored])

    def fetch(self, above: Version | None, timeout: float | None) -> Parameters | Version | None:
        """The response to an earlier request, of which one is in flight at most."""
        if self._request is None:
            if time.monotonic() < self._next:
                return self._known
            self._next = time.monotonic() + POLL_SECONDS
            self._request = self._actor.newest.remote(above)
        if not ray.wait([self._request], timeout=0)[0]:
            return self._known
        request, self._request = self._request, None
        try:
            version, objects = ray.get(request)
            self._known, self._problem = version, ""
            if not objects or (above is not None and version <= above):
                return self._known
            wait = TRANSFER_SECONDS if timeout is None else min(timeout, TRANSFER_SECONDS)
            arrays = ray.get(objects[0], timeout=wait)
        except RayError as error:  # the actor or the object was lost with its process; a newer version will come
            self._known, self._problem = None, _line(error)
            return None
        # Ray's arrays are read-only, and shared by all processes of the node.
        return Parameters(Version(*version), {name: np.array(array) for name, array in arrays.items()})

    def newest(self, timeout: float | None) -> Version | None:
        """The newest version; waits for Ray's response."""
        try:
            version, _ = ray.get(self._actor.newest.remote(None), timeout=timeout)
        except GetTimeoutError:
            why = f"the actor of {self.where} has not responded"
            raise DeadlineExceededError(f"no publisher within {timeout:g} s: {why}", why=why) from None
        except RayError as error:
            raise UnavailableError(f"the actor of {self.where} cannot be reached: {_line(error)}") from error
        return None if version is None else Version(*version)

    def wait(self, above: Version | None, seconds: float) -> None:
        if self._request is None:
            time.sleep(min(seconds, max(0.0, self._next - time.monotonic())))
        else:
            ray.wait([self._request], timeout=seconds)

    def problem(self) -> str:
        return self._problem


def _line(error: RayError) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
