"""How a run comes to a Ray cluster: it takes the one that it is given, or starts Ray on this machine for its time."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

try:
    import ray
except ImportError as error:  # pragma: no cover - without the extra
    raise ImportError('ray is not installed: pip install "reverie[ray]"') from error

PATIENCE = {
    "RAY_gcs_server_port_wait_time_s": "300",
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_worker_register_timeout_seconds": "300",
}
"""How long a Ray that is started here waits for its head, for a node's agents and for a worker to begin; by itself half
a minute, or one for a worker, which a busy machine may not keep. What the environment says counts more."""


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """This process is part of a cluster within: of the one that it was part of before, of that at `address`, or, for
    None, of a Ray that is started for this time (of the one that RAY_ADDRESS names, where that is set).

    Blocks until Ray is there. Raises ConnectionError where it is not there, or did not start.
    """
    if ray.is_initialized():
        yield
        return
    if address is None and not os.environ.get("RAY_ADDRESS"):
        _start()
    else:
        _init(address)
    try:
        yield
    finally:
        ray.shutdown()


def _init(address: str | None) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, include_dashboard=False, log_to_driver=False, configure_logging=False)
    finally:
        # Ray has one of its own, which ends the process: not in place of what would let the run save.
        if before not in (None, signal.SIG_DFL) and signal.getsignal(signal.SIGTERM) is not before:
            signal.signal(signal.SIGTERM, before)


def _start() -> None:
    with _setting(PATIENCE):
        try:
            _init(None)
        except Exception as error:  # of several classes, Exception itself among them
            with suppress(Exception):
                ray.shutdown()
            raise ConnectionError(
                f"Ray did not start on this machine ({error}): it gives a node 30 s to begin and its agents 15 s, which"
                " a busy machine may not keep; begin again when it does less, leave Ray out (--runner process), or"
                " start Ray by itself (ray start --head) and join it (--address auto)"
            ) from error


@contextmanager
def _setting(variables: Mapping[str, str]) -> Iterator[None]:
    """Variables of the environment within, for processes that begin there; those that are set stay as they are."""
    ours = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)
