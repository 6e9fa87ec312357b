"""`reverie serve`: tables for other processes and other machines."""

from __future__ import annotations

import ipaddress
import json
import logging
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

import reverie
from reverie import _native
from reverie.checkpointers import DefaultCheckpointer
from reverie.cli import table_files
from reverie.cli.common import complain, refuse

EXIT_NOT_SAVED = 1
#: How often lines of the network are looked for, in seconds.
LOOK = 0.5
#: What describes the one table where no file does.
ONE_TABLE = (
    "table", "max_size", "sampler", "priority_exponent", "remover", "min_size", "samples_per_insert", "error_buffer",
    "max_times_sampled",
)  # fmt: skip

EPILOG = (
    "Exit codes: 0 stopped by SIGINT or SIGTERM; 1 stopped, and the last checkpoint could not be written; 2 the"
    " arguments do not make a server, or not a safe one. Off loopback a server needs a token and a certificate:"
    " docs/guides/secure-a-server.md."
)


def serve(
    ctx: typer.Context,
    tables: Annotated[
        str | None,
        typer.Argument(
            help="Where the tables come from: FILE.toml, FILE.yaml, or FILE.py[:NAME] with a list of tables or a"
            " function that makes one. Without it the flags describe one table."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 is all of IPv4.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one and prints it.")] = 0,
    table: Annotated[str, typer.Option(help="Name of the one table.")] = "replay",
    max_size: Annotated[int, typer.Option(min=1, help="Items that it holds at most.")] = 1_000_000,
    sampler: Annotated[
        str, typer.Option(help=f"Which item is sampled: {', '.join(table_files.SELECTORS)}.")
    ] = "uniform",
    priority_exponent: Annotated[float, typer.Option(help="Of a prioritized sampler.")] = 0.6,
    remover: Annotated[str, typer.Option(help="Which item leaves when the table is full.")] = "fifo",
    min_size: Annotated[int, typer.Option(min=1, help="Items that must be there before anything is sampled.")] = 1,
    samples_per_insert: Annotated[
        float | None, typer.Option(help="Hold this ratio by blocking either side; needs --error-buffer.")
    ] = None,
    error_buffer: Annotated[float | None, typer.Option(help="How far the ratio may stray, in samples.")] = None,
    max_times_sampled: Annotated[int, typer.Option(min=0, help="An item leaves after so many draws; 0 is never.")] = 0,
    shard: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=63,
            help="Number among the shards of a ShardedClient. The one table of the flags is then rationed:"
            " inserts wait for the client that has the limits of all shards.",
        ),
    ] = None,
    max_bytes: Annotated[int | None, typer.Option(min=1, help="Bytes that all tables may hold together.")] = None,
    checkpoints: Annotated[
        Path | None,
        typer.Option(
            help="A folder: tables start from its newest checkpoint, and a stop writes one.", metavar="FOLDER"
        ),
    ] = None,
    checkpoint_every: Annotated[
        float | None, typer.Option(help="Seconds between two checkpoints; needs --checkpoints.")
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="A file with the token that every client must show.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key, PEM.")] = None,
    client_ca: Annotated[
        Path | None, typer.Option(help="Clients must show a certificate signed by these, PEM.")
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Give up TLS off loopback (never the token).")] = False,
    grace: Annotated[float, typer.Option(min=0, help="Seconds that a stop waits for what is being done.")] = 5.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object with the address, for scripts.")
    ] = False,
) -> None:
    """Serve tables until SIGINT or SIGTERM.

    Clients on this host use shared memory, others gRPC; both by `reverie.Client("HOST:PORT")`.
    """
    # First of all: a signal that comes while the server starts must end it as cleanly as any later one.
    stop = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    logging.basicConfig(format="reverie: %(message)s")
    logging.getLogger("reverie").setLevel(logging.INFO)
    try:
        _refuse_idle_flags(ctx, tables, sampler)
        _check_safe(host, token_file, tls_cert, insecure=insecure)
        checkpointer = _checkpointer(checkpoints, checkpoint_every)
        if tables is not None:
            made = table_files.load(tables)
        else:
            made = [
                _one_table(
                    table, max_size, sampler, priority_exponent, remover, min_size, samples_per_insert, error_buffer,
                    max_times_sampled, shard is not None,
                )
            ]  # fmt: skip
        server = reverie.Server(
            made,
            port=port,
            checkpointer=checkpointer,
            host=host,
            token=None if token_file is None else _token(token_file),
            tls=_tls(tls_cert, tls_key, client_ca),
            insecure=insecure,
            max_bytes=max_bytes,
            grace=grace,
            shard=shard or 0,
        )
    except (ValueError, TypeError, OSError, reverie.ReplayError) as error:
        refuse(error)
    with server:
        names = [table.name for table in server.tables]
        if as_json:
            print(json.dumps({"address": server.address, "port": server.port, "tables": names}), flush=True)
        else:
            print(f"reverie: serving {', '.join(names)} on {server.address}; Ctrl-C stops", flush=True)
            print(f"  client = {_call(server, token_file, tls_cert, client_ca)}", flush=True)
        while not stop.wait(LOOK):
            _native._tell()
        print("reverie: stopping", file=sys.stderr, flush=True)
        if checkpointer is not None:
            try:
                print(f"reverie: saved as {server.stop(checkpoint=True)}", file=sys.stderr, flush=True)
            except reverie.ReplayError as error:
                complain(error)
                raise typer.Exit(EXIT_NOT_SAVED) from None


def _refuse_idle_flags(ctx: typer.Context, tables: str | None, sampler: str) -> None:
    """A flag that would change nothing is a mistake of the one who gave it."""
    given = [name for name in ONE_TABLE if getattr(ctx.get_parameter_source(name), "name", "") != "DEFAULT"]
    flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
    if tables is not None and given:
        raise ValueError(f"{flags}: the tables are those of {tables}; say it there, or leave out the file")
    if "priority_exponent" in given and sampler != "prioritized":
        raise ValueError(f"--priority-exponent is of --sampler prioritized, not of {sampler!r}")


def _call(server: reverie.Server, token: Path | None, cert: Path | None, client_ca: Path | None) -> str:
    """How a program makes a client of the server."""
    host, _, port = server.address.rpartition(":")
    if ipaddress.ip_address(host.strip("[]")).is_unspecified:
        host = socket.gethostname()
    arguments = [f'"{host}:{port}"']
    if token is not None:
        arguments.append(f"token=pathlib.Path({str(token)!r}).read_text().strip()")
    if cert is not None:
        mine = "" if client_ca is None else ", cert=..., key=..."
        arguments.append(f"tls=reverie.ClientTLS(ca=...{mine})")
    return f"reverie.Client({', '.join(arguments)})"


def _checkpointer(folder: Path | None, period: float | None) -> DefaultCheckpointer | None:
    if folder is None:
        if period is not None:
            raise ValueError("--checkpoint-every needs --checkpoints FOLDER")
        return None
    checkpointer = DefaultCheckpointer(folder, period=period)
    try:
        # Whether it can be written to is found out now, not when all that was collected is to be saved.
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"--checkpoints {folder} cannot be written to: {(error.strerror or '').lower()}") from None
    return checkpointer


def _check_safe(host: str, token: Path | None, cert: Path | None, *, insecure: bool) -> None:
    """What `Server` asks for off loopback, by the names of the flags."""
    try:
        alone = ipaddress.ip_address(host).is_loopback
    except ValueError:
        alone = host == "localhost"
    if alone:
        return
    if token is None:
        raise ValueError(
            f"{host} can be reached from other machines: name a token with --token-file FILE, or listen on 127.0.0.1"
        )
    if cert is None and not insecure:
        raise ValueError(
            f"{host} can be reached from other machines: name a certificate with --tls-cert and --tls-key, or send the"
            " token and all data in plain text with --insecure"
        )


def _one_table(
    name: str,
    max_size: int,
    sampler: str,
    priority_exponent: float,
    remover: str,
    min_size: int,
    samples_per_insert: float | None,
    error_buffer: float | None,
    max_times_sampled: int,
    is_shard: bool,
) -> reverie.Table:
    limiter: dict[str, Any] = {"kind": "min_size", "min_size_to_sample": min_size}
    if (samples_per_insert is None) != (error_buffer is None):
        raise ValueError("--samples-per-insert and --error-buffer belong together")
    if samples_per_insert is not None:
        limiter |= {
            "kind": "sample_to_insert_ratio",
            "samples_per_insert": samples_per_insert,
            "error_buffer": error_buffer,
        }
    if is_shard:
        if samples_per_insert is not None or min_size != 1:
            raise ValueError(
                "--shard: the limits over all shards are those of ShardedClient(rate_limiter=...); leave out"
                " --min-size, --samples-per-insert and --error-buffer"
            )
        limiter = {"kind": "rationed"}
    drawn: dict[str, Any] = {"kind": sampler}
    if sampler == "prioritized":
        drawn["priority_exponent"] = priority_exponent
    described = {
        "name": name,
        "max_size": max_size,
        "sampler": drawn,
        "remover": remover,
        "rate_limiter": limiter,
        "max_times_sampled": max_times_sampled,
    }
    return table_files.table_from(described, f"table '{name}'")


def _token(path: Path) -> str:
    token = path.read_text().strip()
    if not token:
        raise ValueError(f"the token file {path} is empty")
    return token


def _tls(cert: Path | None, key: Path | None, client_ca: Path | None) -> reverie.ServerTLS | None:
    if cert is None and key is None and client_ca is None:
        return None
    if cert is None or key is None:
        raise ValueError("--tls-cert and --tls-key belong together")
    return reverie.ServerTLS(cert=cert, key=key, client_ca=client_ca)
