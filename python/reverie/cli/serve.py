"""`reverie serve`: tables for other processes and other machines."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
import signal
import socket
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import typer

import reverie
from reverie import _checks, _native, spans
from reverie.checkpointers import DefaultCheckpointer
from reverie.cli import serve_flags as flags
from reverie.cli import table_files
from reverie.cli.common import EXIT_REFUSED, in_one_line, refuse
from reverie.cli.log_lines import LogFormat, write_log_lines
from reverie.cli.service_manager import ServiceManager

EXIT_NOT_SAVED = 1
_LOG = logging.getLogger("reverie")
#: Seconds between two checks for log lines of the network.
LOG_PERIOD = 0.5

EPILOG = (
    "Exit codes: 0 stopped by SIGINT or SIGTERM; 1 stopped, and the last checkpoint or the end of the journal could"
    " not be written; 2 invalid or unsafe arguments. On other addresses than loopback a server needs a token and a"
    " certificate: docs/guides/secure-a-server.md."
)


def serve(
    ctx: typer.Context,
    tables: flags.Tables = None,
    host: flags.Host = "127.0.0.1",
    port: flags.Port = 0,
    table: flags.Name = "replay",
    max_size: flags.MaxSize = 1_000_000,
    sampler: flags.Sampler = "uniform",
    priority_exponent: flags.PriorityExponent = 0.6,
    remover: flags.Remover = "fifo",
    min_size: flags.MinSize = 1,
    samples_per_insert: flags.SamplesPerInsert = None,
    error_buffer: flags.ErrorBuffer = None,
    max_times_sampled: flags.MaxTimesSampled = 0,
    shard: flags.Shard = None,
    max_bytes: flags.MaxBytes = None,
    max_memory: flags.MaxMemory = None,
    disk: flags.Disk = None,
    memory_bytes: flags.Memory = None,
    disk_bytes: flags.DiskBytes = None,
    checkpoints: flags.Checkpoints = None,
    checkpoint_every: flags.CheckpointEvery = None,
    journal: flags.Journal = None,
    sync: flags.Sync = "interval",
    sync_interval: flags.SyncInterval = 1.0,
    journal_checkpoint_bytes: flags.JournalCheckpointBytes = 4 << 30,
    token_file: flags.TokenFile = None,
    tls_cert: flags.TlsCert = None,
    tls_key: flags.TlsKey = None,
    client_ca: flags.ClientCa = None,
    insecure: flags.Insecure = False,
    max_connections: flags.MaxConnections = 4096,
    grace: flags.Grace = 5.0,
    session_timeout: flags.SessionTimeout = 60.0,
    http: flags.Http = None,
    tracing: flags.Tracing = False,
    log_format: flags.LogLines = LogFormat.text,
    as_json: flags.Json = False,
) -> None:
    """Serve tables until SIGINT or SIGTERM.

    Clients on this host use shared memory, others gRPC; both connect with `reverie.Client("HOST:PORT")`.
    """
    # Installed first: a signal during the start of the server must end it as cleanly as a later one.
    stop = _stop_lock()
    write_log_lines(log_format)
    manager = ServiceManager()
    try:
        _refuse_flags_without_effect(ctx, tables, sampler)
        _check_safe(host, token_file, tls_cert, insecure=insecure)
        if http is not None:
            _check_safe(_checks.host_and_port("--http", http)[0], token_file, tls_cert, insecure=insecure)
        checkpointer = _checkpointer(checkpoints, checkpoint_every, journal)
        if tracing:
            spans.provide()
        kept = _journal(ctx, journal, sync, sync_interval, checkpoint_every, journal_checkpoint_bytes)
        server = reverie.Server(
            [_one_table(ctx.params)] if tables is None else table_files.load(tables),
            port=port,
            checkpointer=checkpointer,
            journal=kept,
            host=host,
            token=None if token_file is None else _token(token_file),
            tls=_tls(tls_cert, tls_key, client_ca),
            insecure=insecure,
            max_bytes=max_bytes,
            max_memory=max_memory,
            disk=_disk(disk, memory_bytes, disk_bytes),
            memory_bytes=memory_bytes,
            disk_bytes=disk_bytes,
            grace=grace,
            session_timeout=session_timeout,
            max_connections=max_connections,
            http=http,
            shard=shard or 0,
            tracing=tracing,
        )
    except (ImportError, ValueError, TypeError, OSError, reverie.ReplayError) as error:
        if log_format is LogFormat.text:
            refuse(error)
        _LOG.error("%s", in_one_line(error))
        raise typer.Exit(EXIT_REFUSED) from None
    try:
        with server:
            _print_address(
                server,
                _client_expression(server, token_file, tls_cert, client_ca),
                as_json=as_json,
                as_log=log_format is LogFormat.json,
                page=_page(server, tls_cert) if http else None,
            )
            manager.ready(f"serving {', '.join(table.name for table in server.tables)} on {server.address}")
            _run(server, stop, manager)
            manager.stopping()
            _stop(server, saves=checkpointer is not None)
    except reverie.StorageError as error:  # of the stop: the end of the journal
        _LOG.error("%s", in_one_line(error))
        raise typer.Exit(EXIT_NOT_SAVED) from None


def _stop_lock() -> threading.Lock:
    """Held until SIGINT or SIGTERM arrives; later ones are ignored until the process has ended.

    Python gives its handlers back before that. An `Event` would not do: a signal that arrives while its lock is held
    would wait for that lock.
    """
    stop = threading.Lock()
    stop.acquire()

    def end(number: int, frame: FrameType | None) -> None:
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, signal.SIG_IGN)
        with contextlib.suppress(RuntimeError):  # released by a signal that interrupted this one
            stop.release()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    return stop


def _run(server: reverie.Server, stop: threading.Lock, manager: ServiceManager) -> None:
    """Return when a signal asks for the end; meanwhile write log lines, and report to a watchdog."""
    period, client = LOG_PERIOD, server.client()
    if manager.watchdog_seconds is not None:
        period = min(period, manager.watchdog_seconds / 6)
    while not stop.acquire(timeout=period):
        _native._deliver_logs()
        if manager.is_due:
            client.info()  # returns only if each table can be locked
            manager.alive()


def _print_address(server: reverie.Server, call: str, *, as_json: bool, as_log: bool, page: str | None) -> None:
    """Report where the server listens: on stdout, or in the log if that is read by programs (`as_log`)."""
    names = [table.name for table in server.tables]
    if as_json:
        hello = {"address": server.address, "port": server.port, "tables": names}
        print(json.dumps(hello if page is None else hello | {"page": page}), flush=True)
    elif as_log:
        fields = {"address": server.address, "port": str(server.port), "tables": ",".join(names)}
        words = f"serving {', '.join(names)} on {server.address}; client = {call}"
        _LOG.info("%s", words, extra={"fields": fields})
        if page is not None:
            _LOG.info("page and metrics: %s", page, extra={"fields": {"page": page}})
    else:
        print(f"reverie: serving {', '.join(names)} on {server.address}; Ctrl-C stops", flush=True)
        print(f"  client = {call}", flush=True)
        if page is not None:
            print(f"  page and metrics: {page}", flush=True)


def _page(server: reverie.Server, cert: Path | None) -> str:
    """The address of the page, for a browser."""
    return f"{'http' if cert is None else 'https'}://{server.http_address}/"


def _stop(server: reverie.Server, *, saves: bool) -> None:
    _native._deliver_logs()  # the lines of before
    _LOG.info("stopping")
    if saves:
        try:
            _LOG.info("saved as %s", server.stop(checkpoint=True))
        except reverie.ReplayError as error:
            _LOG.error("%s", in_one_line(error))
            raise typer.Exit(EXIT_NOT_SAVED) from None


def _refuse_flags_without_effect(ctx: typer.Context, tables: str | None, sampler: str) -> None:
    """Raise an error for a flag that would have no effect, which is a mistake of the user."""
    own = [one for one in ctx.command.params if getattr(one, "rich_help_panel", None) == flags.ONE_TABLE]
    given = [one for one in own if getattr(ctx.get_parameter_source(one.name or ""), "name", "") != "DEFAULT"]
    if tables is not None and given:
        named = ", ".join(one.opts[0] for one in given)
        raise ValueError(f"{named}: the tables come from {tables}; set it there, or leave out the file")
    if "priority_exponent" in [one.name for one in given] and sampler != "prioritized":
        raise ValueError(f"--priority-exponent is for --sampler prioritized, and --sampler is {sampler!r}")


def _client_expression(server: reverie.Server, token: Path | None, cert: Path | None, client_ca: Path | None) -> str:
    """The Python expression that makes a client of the server."""
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


def _checkpointer(folder: Path | None, period: float | None, journal: Path | None) -> DefaultCheckpointer | None:
    if folder is None:
        if period is not None and journal is None:
            raise ValueError("--checkpoint-every needs --checkpoints FOLDER or --journal FOLDER")
        return None
    checkpointer = DefaultCheckpointer(folder, period=period)
    _check_writable("--checkpoints", folder)
    return checkpointer


def _journal(
    ctx: typer.Context, folder: Path | None, sync: str, interval: float, period: float | None, checkpoint_bytes: int
) -> reverie.Journal | None:
    if folder is None:
        for name in ("sync", "sync_interval", "journal_checkpoint_bytes"):
            if getattr(ctx.get_parameter_source(name), "name", "") != "DEFAULT":
                raise ValueError(f"--{name.replace('_', '-')} needs --journal FOLDER")
        return None
    _check_writable("--journal", folder)
    options: dict[str, Any] = {} if period is None else {"checkpoint_period": period}
    return reverie.Journal(
        folder,
        sync=sync,  # type: ignore[arg-type]  # checked there
        interval=interval,
        checkpoint_bytes=checkpoint_bytes,
        **options,
    )


def _disk(folder: Path | None, memory_bytes: int | None, disk_bytes: int | None) -> Path | None:
    for flag, value in (("--memory", memory_bytes), ("--disk-size", disk_bytes)):
        if value is not None and folder is None:
            raise ValueError(f"{flag} needs --disk FOLDER")
    return folder


def _check_writable(flag: str, folder: Path) -> None:
    """Checked at the start, not when the collected data is to be saved."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"{flag} {folder} cannot be written to: {(error.strerror or '').lower()}") from None


def _check_safe(host: str, token: Path | None, cert: Path | None, *, insecure: bool) -> None:
    """Check the credentials that `Server` requires off loopback, with the names of the flags."""
    if _checks.is_loopback(host):
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


def _one_table(given: Mapping[str, Any]) -> reverie.Table:
    """The table that the flags describe, by the names of the parameters."""
    min_size, ratio, buffer = given["min_size"], given["samples_per_insert"], given["error_buffer"]
    limiter: dict[str, Any] = {"kind": "min_size", "min_size_to_sample": min_size}
    if (ratio is None) != (buffer is None):
        raise ValueError("--samples-per-insert and --error-buffer must be given together")
    if ratio is not None:
        limiter |= {"kind": "sample_to_insert_ratio", "samples_per_insert": ratio, "error_buffer": buffer}
    if given["shard"] is not None:
        if ratio is not None or min_size != 1:
            raise ValueError(
                "--shard: Client([...], rate_limiter=...) sets the limits over all shards; leave out"
                " --min-size, --samples-per-insert and --error-buffer"
            )
        limiter = {"kind": "rationed"}
    sampler: dict[str, Any] = {"kind": given["sampler"]}
    if given["sampler"] == "prioritized":
        sampler["priority_exponent"] = given["priority_exponent"]
    alike = {name: given[name] for name in ("max_size", "remover", "max_times_sampled")}
    described = {"name": given["table"], "sampler": sampler, "rate_limiter": limiter, **alike}
    return table_files.table_from(described, f"table '{given['table']}'")


def _token(path: Path) -> str:
    token = path.read_text().strip()
    if not token:
        raise ValueError(f"the token file {path} is empty")
    return token


def _tls(cert: Path | None, key: Path | None, client_ca: Path | None) -> reverie.ServerTLS | None:
    if cert is None and key is None and client_ca is None:
        return None
    if cert is None or key is None:
        raise ValueError("--tls-cert and --tls-key must be given together")
    return reverie.ServerTLS(cert=cert, key=key, client_ca=client_ca)
