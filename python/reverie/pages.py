"""The page of a training run: its address, what its readers must show, and a page that needs no tables."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, final

from reverie import _checks, _native, tokens
from reverie.tls import ServerTLS
from reverie.tokens import Token

__all__ = ["Page", "PageServer"]


@final
@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """The address of a run's page, and what its readers must show: `reverie.runners.train(..., http=Page(...))`."""

    address: str | int
    """`HOST:PORT`, or a port of 127.0.0.1; port 0 takes a free one."""
    token: str | Token | None = dataclasses.field(default=None, repr=False)
    """The token that readers must present; required off loopback."""
    tls: ServerTLS | None = dataclasses.field(default=None, repr=False)
    """Certificates. Off loopback there must be some, unless `insecure`."""
    insecure: bool = False
    """Allows an address off loopback without TLS, never without the token."""

    def checked(self) -> Page:
        """This page with its token and certificates read, so that any process and machine can open it.

        Raises:
            TypeError, ValueError: a malformed address, or one that other machines can reach without a token or TLS.
            OSError: a certificate or token cannot be read.
        """
        host, port = _checks.host_and_port("http", self.address)
        token, tls = tokens.text_of(self.token), self.tls
        if not _checks.is_loopback(host):
            reached = f"http is {host}:{port}, which other machines can reach"
            if not token:
                raise ValueError(f"{reached}: give the page a token (Page(token=), --token-file), or use 127.0.0.1")
            if tls is None and not self.insecure:
                raise ValueError(
                    f"{reached}: give the page a certificate (Page(tls=), --tls-cert and --tls-key), or allow plain"
                    " text (insecure=True, --insecure)"
                )
        if tls is not None:
            (cert, key), client_ca = tls.read()
            tls = ServerTLS(cert, key, client_ca)
        return Page(f"{host}:{port}", token, tls, self.insecure)

    @property
    def host(self) -> str:
        """The host of the address."""
        return _checks.host_and_port("http", self.address)[0]

    def at_port(self, port: int) -> Page:
        """This page at another port."""
        return dataclasses.replace(self, address=f"{self.host}:{port}")

    def url(self, opened: str, reached: str | None = None) -> str:
        """The address for a browser of the page that was opened at `opened`, `HOST:PORT`.

        `reached`: a host by which other machines reach this one, in place of one that stands for all its addresses.
        """
        host, _, port = opened.rpartition(":")
        if reached is not None and not _checks.is_loopback(reached) and _is_any(host):
            host = reached
        return f"{'http' if self.tls is None else 'https'}://{host}:{port}/"

    def open(self, server: _native.Server) -> None:
        """Opens it at a server. ValueError for an address that is in use, or not safe."""
        page = self.checked()
        host, port = _checks.host_and_port("http", page.address)
        identity, client_ca = (None, None) if page.tls is None else page.tls.read()
        token = tokens.text_of(page.token)
        server.listen_http(host, port, token=token, identity=identity, client_ca=client_ca, insecure=page.insecure)


def port_of(url: str) -> int:
    """The port in the address of a page."""
    from urllib.parse import urlsplit

    port = urlsplit(url).port
    assert port is not None
    return port


def _is_any(host: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


@final
class PageServer:
    """A page without tables: it shows runs that train in other processes. Its thread runs from here to `close`.

    Args:
        page: its address and credentials.

    Raises:
        The errors of `Page.checked`; ValueError for an address that is in use.
    """

    def __init__(self, page: Page) -> None:
        self._native = _native.Server.of_page()
        page.open(self._native)
        address = self._native.http_address
        assert address is not None
        self.url = page.url(address)

    def publish(self, figures: Mapping[str, Any]) -> None:
        """Shows these figures, as `Server.publish` does."""
        self._native.publish(json.dumps(figures, allow_nan=False))

    def close(self) -> None:
        """Closes the port. Idempotent."""
        self._native.close()

    def __enter__(self) -> PageServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
