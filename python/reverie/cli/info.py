"""`reverie info`: a server's tables, and the requests that wait."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from reverie.cli.common import duration, of_target
from reverie.cli.connecting import (
    Address,
    Ca,
    Cert,
    Credentials,
    Key,
    ServerName,
    Timeout,
    Token,
    watched,
)
from reverie.cli.figures import storage_lines
from reverie.cli.sizes import size

EPILOG = (
    "Exit codes: 0 the server responded; 1 it did not respond, or rejected the credentials; 2 malformed address, or"
    " unreadable file."
)


def info(
    address: Address,
    rate_seconds: Annotated[float, typer.Option(min=0.05, help="Seconds over which rates are measured.")] = 0.5,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    token_file: Token = None,
    tls_ca: Ca = None,
    tls_cert: Cert = None,
    tls_key: Key = None,
    tls_server_name: ServerName = None,
    timeout: Timeout = 10.0,
) -> None:
    """Show a server's tables: sizes, bytes, rates, and the requests that wait.

    The address of a page gives all figures of the page, a training run included.
    """
    credentials = Credentials(token=token_file, ca=tls_ca, cert=tls_cert, key=tls_key, server_name=tls_server_name)
    with watched(address, timeout, credentials) as look:
        before, started = look()
        time.sleep(rate_seconds)
        now, at = look()
        add_rates(before, now, at - started)
    now = {"address": address, **now}
    if as_json:
        print(json.dumps(now))
        return
    console = Console(highlight=False)
    console.print(f"{address} over {now['transport']} ({now['reason']}), {_bytes(now)} in chunks", soft_wrap=True)
    if now["max_memory"] is not None:
        network = f"{size(now['network_bytes'])} of {size(now['max_network_bytes'])}"
        console.print(f"memory limit {size(now['max_memory'])}; connections use {network}", soft_wrap=True)
    for line, _ in storage_lines(now):
        console.print(line, soft_wrap=True)
    for line in page_lines(now):
        console.print(line, soft_wrap=True)
    console.print(view(now))
    for table in now["tables"].values():
        if table["waiting_inserts"] or table["waiting_samples"] or table["stuck"]:
            console.print(table["why"], soft_wrap=True)


def page_lines(now: dict[str, Any]) -> list[str]:
    """The figures that only a page has, in lines: clients, the age of the checkpoint, trouble, the training run."""
    parts = []
    if now["uptime_seconds"] is not None:
        parts.append(f"up {duration(now['uptime_seconds'])}")
    if (clients := now["clients"]) is not None:
        parts.append(f"clients: {clients['grpc']} over gRPC, {clients['shared_memory']} over shared memory")
    if now["checkpoint_age_seconds"] is not None:
        parts.append(f"checkpoint {duration(now['checkpoint_age_seconds'])} old")
    if now["trouble"] is not None:
        parts.append(f"NOT READY: {now['trouble']}")
    lines = ["; ".join(parts)] if parts else []
    if (run := now["run"]) is not None:
        text = f"{run['agent']} on {run['env']}: {run['env_steps']:,} steps, {run['updates']:,} updates"
        if run["curve"]:
            text += f", greedy return {run['curve'][-1][2]:g}{of_target(run['target_return'])}"
        lines.append(text)
    return lines


def add_rates(before: dict[str, Any], now: dict[str, Any], seconds: float) -> None:
    """Adds `inserts_per_second`, `samples_per_second` and `updates_per_second` to every table of `now`.

    A table that was reset in between has no rates.
    """
    for name, table in now["tables"].items():
        earlier = before["tables"].get(name)
        for what in ("inserts", "samples", "updates"):
            done = None if earlier is None else table[what] - earlier[what]
            table[f"{what}_per_second"] = None if done is None or done < 0 or seconds <= 0 else done / seconds


def view(now: dict[str, Any]) -> Table:
    """A view of the tables, one line each."""
    grid = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("table", "items", "of", "bytes", "inserts", "/s", "samples", "/s", "updates/s", "waiting"):
        grid.add_column(heading, justify="left" if heading in ("table", "waiting") else "right")
    for name, table in now["tables"].items():
        grid.add_row(
            name,
            f"{table['size']:,}",
            f"{table['max_size']:,}",
            _bytes(table),
            f"{table['inserts']:,}",
            _rate(table["inserts_per_second"]),
            f"{table['samples']:,}",
            _rate(table["samples_per_second"]),
            _rate(table["updates_per_second"]),
            waiting(table),
        )
    return grid


def waiting(table: dict[str, Any]) -> str:
    """The waiting calls in a few words; a reason in brackets if none waits but a call would."""
    found = [f"{table[f'waiting_{what}']} {what}" for what in ("inserts", "samples") if table[f"waiting_{what}"]]
    if table["stuck"]:
        return f"STUCK: {', '.join(found)}" if found else "STUCK"
    return ", ".join(found) or "-"


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.0f}"


def _bytes(of: dict[str, Any]) -> str:
    bound = "" if of["max_bytes"] is None else f" of {size(of['max_bytes'])}"
    return size(of["size_bytes"]) + bound
