"""The page of a run, checked before anything starts."""

from __future__ import annotations

import socket

from reverie import _checks
from reverie.pages import Page
from reverie.runners.planning.topology import RunnerName


def page_address(http: str | int | Page, runner: RunnerName) -> Page:
    """The page, with its credentials read.

    On Ray the node of the run's first server opens it, so that only that node can find whether its port is free.

    Raises:
        TypeError, ValueError: a malformed address, one that is in use, or one that other machines can reach without a
            token or TLS.
        OSError: a certificate or token cannot be read.
    """
    page = (http if isinstance(http, Page) else Page(http)).checked()
    if runner != "ray":
        _require_free(*_checks.host_and_port("http", page.address))
    return page


def _require_free(host: str, port: int) -> None:
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except OSError as error:
        raise ValueError(f"http: {host}:{port}: {(error.strerror or str(error)).lower()}") from None
