"""A run's connection to a Ray cluster: an existing cluster, or a Ray started on this machine for the run."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

try:
    import ray
except ImportError as error:  # pragma: no cover - without the extra
    raise ImportError('ray is not installed: pip install "reverie[ray]"') from error
from ray._private import services, utils

PATIENCE = {
    "RAY_gcs_server_port_wait_time_s": "300",
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_worker_register_timeout_seconds": "300",
}
"""Timeouts of a Ray that is started here: for its head, a node's agents, and a worker to start. Ray's defaults (half a
minute, one minute for a worker) are too short for a busy machine. Variables that are set already take precedence."""


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """A context in which this process is connected to a Ray cluster.

    It is the cluster that the process was connected to before, else the one at `address`; for None it is the one that
    RAY_ADDRESS names, or, where that is not set, a Ray that is started for the time of the context. Blocks until Ray is
    ready. Raises ConnectionError if there is no cluster, or Ray did not start.
    """
    if ray.is_initialized():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    if address is None and not os.environ.get("RAY_ADDRESS"):
        _start()
    else:
        _init(address)
    try:
        yield
    finally:
        ray.shutdown()
        _restore(before)


def _init(address: str | None) -> None:
    before = signal.getsignal(signal.SIGTERM)
    # Ray sets handlers of its own, which end the process: keep the one that lets the run save.
    keeps = before not in (signal.SIG_DFL, None) and threading.current_thread() is threading.main_thread()
    with _replaced(utils, "set_sigterm_handler", lambda original: _ignored) if keeps else nullcontext():
        try:
            ray.init(address=address, include_dashboard=False, log_to_driver=False, configure_logging=False)
        finally:
            if keeps:  # Ray's core sets one that Python does not know of
                signal.signal(signal.SIGTERM, before)


def _ignored(handler: Any) -> None:
    """Does nothing; replaces Ray's function that sets a handler."""


def _restore(handler: Any) -> None:
    """Make `handler` that of SIGTERM again; None, a handler that is not Python's, cannot be restored."""
    if handler is not None and signal.getsignal(signal.SIGTERM) is not handler:
        signal.signal(signal.SIGTERM, handler)


@contextmanager
def _replaced(module: Any, name: str, replacement: Callable[[Any], Any]) -> Iterator[None]:
    """A context in which an attribute of one of Ray's modules is replaced.

    Such names are Ray's own: in a version without this one, signals are handled as Ray handles them.
    """
    before = getattr(module, name, None)
    if before is None:
        yield
        return
    setattr(module, name, replacement(before))
    try:
        yield
    finally:
        setattr(module, name, before)


def _start() -> None:
    with _setting(PATIENCE), _new_sessions():
        try:
            _init("local")  # None would join a Ray that `ray start` has started here
        except Exception as error:  # of several classes, Exception itself among them
            with suppress(Exception):
                ray.shutdown()
            raise ConnectionError(
                f"Ray did not start on this machine ({error}): a node must start within 30 s and its agents"
                " within 15 s, which may fail on a busy machine; try again when it is less busy, run without Ray"
                " (--runner process), or start Ray first (ray start --head) and connect to it (--address auto)"
            ) from error


@contextmanager
def _new_sessions() -> Iterator[None]:
    """A context in which Ray starts each of its processes in a new session, on Linux.

    A signal to the run's process group, as a scheduler, `timeout` or the end of a terminal sends it, then reaches the
    run alone: Ray's processes would end by it before the run has saved. They end with the run, also with a killed one,
    since the kernel kills them then. Elsewhere Ray ends them by their process group, and so they have to stay in it.
    """
    if sys.platform != "linux":
        yield
        return
    with _replaced(services, "ConsolePopen", lambda popen: functools.partial(popen, start_new_session=True)):
        yield


@contextmanager
def _setting(variables: Mapping[str, str]) -> Iterator[None]:
    """A context with these environment variables, for processes started in it; variables that are set stay as is."""
    ours = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)
