"""The address of a run's page, checked before anything starts."""

from __future__ import annotations

import socket

from reverie import _checks
from reverie.runners.planning.topology import RunnerName


def page_address(http: str | int, runner: RunnerName) -> str:
    """The address as `HOST:PORT`. Raises ValueError if a run cannot have its page there."""
    host, port = _checks.host_and_port("http", http)
    if runner == "ray":
        raise ValueError(
            "http is for the runners 'local' and 'process': on Ray the servers of a run may be on any node; follow it"
            " with a log (--log tensorboard)"
        )
    if not _checks.is_loopback(host):
        raise ValueError(
            f"http is {host}:{port}, which other machines can reach, and the page of a run asks for no token: use"
            f" 127.0.0.1, and reach it from elsewhere through a tunnel (ssh -L {port}:127.0.0.1:{port} THIS_MACHINE)"
        )
    _require_free(host, port)
    return f"{host}:{port}"


def _require_free(host: str, port: int) -> None:
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except OSError as error:
        raise ValueError(f"http: {host}:{port}: {(error.strerror or str(error)).lower()}") from None
