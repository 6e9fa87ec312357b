"""How a run comes to a Ray cluster: it takes the one that it is given, or starts Ray on this machine for its time."""

from __future__ import annotations

import logging
import os
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
ATTEMPTS = 3
"""Ray gives a node half a minute in all, and agents 15 s to say where they listen, which no setting changes. What was
read from the disk for one attempt is in memory for the next."""

_LOG = logging.getLogger("reverie")


@contextmanager
def joined(address: str | None) -> Iterator[None]:
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
    ray.init(address=address, include_dashboard=False, log_to_driver=False, configure_logging=False)


def _start() -> None:
    with _setting(PATIENCE):
        for attempt in range(1, ATTEMPTS + 1):
            try:
                _init(None)
                return
            except Exception as error:  # of several classes, Exception itself among them
                with suppress(Exception):
                    ray.shutdown()
                if attempt == ATTEMPTS:
                    raise ConnectionError(
                        f"Ray did not start on this machine in {ATTEMPTS} attempts ({error}): it gives a node 30 s to"
                        " begin and its agents 15 s, which a busy machine may not keep; begin again when it does less,"
                        " leave Ray out (--runner process), or start Ray by itself (ray start --head) and join it"
                        " (--address auto)"
                    ) from error
                _LOG.warning(
                    "Ray did not start at attempt %d of %d, and is started again: %s", attempt, ATTEMPTS, error
                )


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
