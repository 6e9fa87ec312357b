"""Shared by `info` and `top`: connecting to a server or its page, and the figures of its tables as plain data."""

from __future__ import annotations

import dataclasses
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

import reverie
from reverie.cli import page_reader
from reverie.cli.common import print_error, refuse

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


@contextmanager
def connected(
    address: str,
    token: Path | None,
    ca: Path | None,
    cert: Path | None,
    key: Path | None,
    timeout: float,
    server_name: str | None = None,
) -> Iterator[reverie.Client]:
    """A client of the server; an error is printed in one line and ends the command."""
    try:
        secret, tls = _credentials(token, ca, cert, key, server_name)
        client = reverie.Client(address, token=secret, tls=tls, timeout=timeout)
    except (ValueError, OSError) as error:
        refuse(error)
    host, _, port = address.rpartition(":")
    _require_listener(address, host.strip("[]"), int(port), timeout)
    with _errors_reported(), client:
        yield client


@contextmanager
def watched(
    address: str,
    token: Path | None,
    ca: Path | None,
    cert: Path | None,
    key: Path | None,
    timeout: float,
    server_name: str | None = None,
) -> Iterator[Look]:
    """A look at a server, at its data port or its page; an error is printed in one line and ends the command."""
    if not page_reader.is_url(address):
        with connected(address, token, ca, cert, key, timeout, server_name) as client:
            yield lambda: (figures(client), time.monotonic())
        return
    try:
        secret, tls = _credentials(token, ca, cert, key, server_name)
        page = page_reader.PageReader(address, secret, tls, timeout)
    except (ValueError, OSError) as error:
        refuse(error)
    _require_listener(address, page.host, page.port, timeout)
    with _errors_reported(), closing(page):
        yield lambda: page_reader.look(page)


def _credentials(
    token: Path | None, ca: Path | None, cert: Path | None, key: Path | None, server_name: str | None
) -> tuple[str | None, reverie.ClientTLS | None]:
    secret = os.environ.get("REVERIE_TOKEN") if token is None else token.read_text().strip()
    files = {"ca": ca, "cert": cert, "key": key}
    if any(file is not None for file in files.values()):
        return secret, reverie.ClientTLS(**files, server_name=server_name)
    if server_name is not None:
        raise ValueError(f"--tls-server-name is {server_name}, and the connection has no TLS: give --tls-ca, too")
    return secret, None


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


def figures(client: reverie.Client) -> dict[str, Any]:
    """The server's figures and waiting requests, in the order of its tables, as plain data for `--json`."""
    info = client.info()
    tables = {}
    for name, table in info.tables.items():
        limiter, why = table.rate_limiter_info, client.why(name)
        tables[name] = {
            "size": table.current_size,
            "max_size": table.max_size,
            "size_bytes": table.size_bytes,
            "max_bytes": table.max_bytes,
            "episodes": table.num_episodes,
            "inserts": table.num_inserts,
            "samples": table.num_samples,
            "deletes": table.num_deletes,
            "leased": table.num_leased,
            "updates": table.num_updates,
            "stale_updates": table.num_stale_updates,
            "samples_per_insert": limiter.samples_per_insert,
            "waiting_inserts": why.num_waiting_inserts,
            "waiting_samples": why.num_waiting_samples,
            "insert_reason": why.insert_reason,
            "sample_reason": why.sample_reason,
            "stuck": why.stuck,
            "why": why.text,
        }
    return {
        "transport": info.transport,
        "reason": info.reason,
        "size_bytes": info.size_bytes,
        "max_bytes": info.max_bytes,
        "network_bytes": info.network_bytes,
        "max_network_bytes": info.max_network_bytes,
        "max_memory": info.max_memory,
        "max_connections": info.max_connections,
        # These are on the page only.
        **dict.fromkeys(("ready", "trouble", "uptime_seconds", "checkpoint_age_seconds", "clients", "run")),
        "journal": None if info.journal is None else dataclasses.asdict(info.journal),
        "disk": None if info.disk is None else dataclasses.asdict(info.disk),
        "tables": tables,
    }


def storage_lines(now: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """The states of a journal and of a disk tier, as far as there are any, each with whether it has an error."""
    for kind, line in (("journal", journal_line), ("disk", disk_line)):
        if now[kind] is not None:
            yield line(now[kind]), now[kind]["error"] is not None


def journal_line(journal: dict[str, Any]) -> str:
    """The state of a journal in one line."""
    if journal["error"] is not None:
        state = "waits for room on the disk" if journal["is_full"] else "has stopped, inserts are refused"
        return f"journal: {state}: {journal['error']}"
    line = f"journal: sync={journal['sync']}, {size(journal['unsynced_bytes'])} not on the disk yet"
    if journal["syncs"]:
        mean = journal["sync_seconds"] / journal["syncs"]
        longest = journal["longest_sync_seconds"]
        line += f"; {journal['syncs']:,} syncs of {mean * 1e3:.1f} ms, the longest {longest * 1e3:.1f} ms"
    return line


def disk_line(disk: dict[str, Any]) -> str:
    """The state of a disk tier in one line."""
    own = disk["chunk_bytes"] - disk["shared_bytes"]
    line = f"disk {disk['folder']}: {size(own)} of chunks in {size(disk['file_bytes'])} of files"
    if disk["max_file_bytes"] is not None:
        line += f" of {size(disk['max_file_bytes'])}"
    if disk["shared_bytes"]:
        line += f", {size(disk['shared_bytes'])} in segments of the journal or of checkpoints"
    line += f"; {size(disk['memory_bytes'])} of {size(disk['max_memory_bytes'])} in memory"
    return line if disk["error"] is None else f"{line}; no chunk can move: {disk['error']}"


def size(count: float) -> str:
    """Bytes as text, in a suitable unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
