"""Connecting to a server or its page, with the credentials that the command line names."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import reverie
from reverie.cli import page_reader
from reverie.cli.common import print_error, refuse
from reverie.cli.figures import figures

EXIT_UNREACHABLE = 1

Address = Annotated[
    str, typer.Argument(help="HOST:PORT of the server, or http://HOST:PORT/ (https://), the address of its page.")
]
Token = Annotated[
    Path | None,
    typer.Option(
        "--token-file", help="File with the server's token (default: the environment variable REVERIE_TOKEN)."
    ),
]
Ca = Annotated[
    Path | None, typer.Option("--tls-ca", help="Certificate of the CA that signed the server's certificate, PEM.")
]
Cert = Annotated[Path | None, typer.Option("--tls-cert", help="Client certificate, if the server requires one, PEM.")]
Key = Annotated[Path | None, typer.Option("--tls-key", help="Key of the client certificate, PEM.")]
ServerName = Annotated[
    str | None,
    typer.Option(
        "--tls-server-name",
        metavar="NAME",
        help="Name in the server's certificate, if it is not the host of the address; needs --tls-ca.",
    ),
]
Timeout = Annotated[float, typer.Option(min=0, help="Seconds to wait for a response.")]


Look = Callable[[], tuple[dict[str, Any], float]]
"""Returns the figures of now, and the seconds of a clock at that moment."""


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """The credentials that options of the command line name; no file is read before `read`."""

    token: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_name: str | None = None

    def read(self) -> tuple[str | None, reverie.ClientTLS | None]:
        """The token, that of the environment without a file, and TLS.

        Raises OSError for a file that cannot be read, and ValueError for files that do not fit together.
        """
        secret = os.environ.get("REVERIE_TOKEN") if self.token is None else self.token.read_text().strip()
        files = {"ca": self.ca, "cert": self.cert, "key": self.key}
        if any(file is not None for file in files.values()):
            return secret, reverie.ClientTLS(**files, server_name=self.server_name)
        if self.server_name is not None:
            name = self.server_name
            raise ValueError(f"--tls-server-name is {name}, and the connection has no TLS: give --tls-ca, too")
        return secret, None


@contextmanager
def connected(address: str, timeout: float, credentials: Credentials) -> Iterator[reverie.Client]:
    """A client of the server; an error is printed in one line and ends the command."""
    try:
        secret, tls = credentials.read()
        client = reverie.Client(address, token=secret, tls=tls, timeout=timeout)
    except (ValueError, OSError) as error:
        refuse(error)
    host, _, port = address.rpartition(":")
    _require_listener(address, host.strip("[]"), int(port), timeout)
    with _errors_reported(), client:
        yield client


@contextmanager
def watched(address: str, timeout: float, credentials: Credentials) -> Iterator[Look]:
    """A look at a server, at its data port or its page; an error is printed in one line and ends the command."""
    if not page_reader.is_url(address):
        with connected(address, timeout, credentials) as client:
            yield lambda: (figures(client), time.monotonic())
        return
    try:
        secret, tls = credentials.read()
        page = page_reader.PageReader(address, secret, tls, timeout)
    except (ValueError, OSError) as error:
        refuse(error)
    _require_listener(address, page.host, page.port, timeout)
    with _errors_reported(), closing(page):
        yield lambda: page_reader.look(page)


@contextmanager
def _errors_reported() -> Iterator[None]:
    try:
        yield
    except reverie.UnauthenticatedError as error:
        print_error(f"{error} (here: --token-file, --tls-ca, --tls-cert, --tls-key and --tls-server-name)")
        raise typer.Exit(EXIT_UNREACHABLE) from None
    except reverie.ReplayError as error:
        print_error(error)
        raise typer.Exit(EXIT_UNREACHABLE) from None


def _require_listener(address: str, host: str, port: int, timeout: float) -> None:
    """End the command at once if the host refuses the port, or has no address; a client would retry for 10 s.

    Other failures, such as a host that does not answer, are reported by the client.
    """
    try:
        socket.create_connection((host, port), timeout=timeout).close()
    except (ConnectionRefusedError, socket.gaierror) as error:
        print_error(f"{address} cannot be reached: {error.strerror}; is a server running there?")
        raise typer.Exit(EXIT_UNREACHABLE) from None
    except OSError:
        return
