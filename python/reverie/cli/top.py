"""`reverie top`: a server's tables, live."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from reverie.cli.connecting import Address, Ca, Cert, Credentials, Key, ServerName, Timeout, Token, watched
from reverie.cli.figures import storage_lines
from reverie.cli.info import add_rates, page_lines, view

EPILOG = (
    "Ctrl-C ends it. Exit codes: 0 ended by Ctrl-C or after --count; 1 the server does not respond, or rejected the"
    " credentials; 2 malformed address, or unreadable file."
)


def top(
    address: Address,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between updates.")] = 1.0,
    count: Annotated[int, typer.Option(min=0, help="Number of updates; 0 means no limit.")] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each update, one per line.")
    ] = False,
    token_file: Token = None,
    tls_ca: Ca = None,
    tls_cert: Cert = None,
    tls_key: Key = None,
    tls_server_name: ServerName = None,
    timeout: Timeout = 10.0,
) -> None:
    """Show sizes, rates and waiting requests of a server's tables, live.

    The address of a page gives all figures of the page, a training run included.
    """
    credentials = Credentials(token=token_file, ca=tls_ca, cert=tls_cert, key=tls_key, server_name=tls_server_name)
    console = Console(highlight=False)
    with watched(address, timeout, credentials) as look:
        live = None if as_json or not console.is_terminal else Live(console=console, auto_refresh=False, screen=True)
        (before, measured_at), updates = look(), 0
        try:
            if live is not None:
                live.start()
            while not count or updates < count:
                time.sleep(interval)
                now, at = look()
                add_rates(before, now, at - measured_at)
                before, measured_at, updates = now, at, updates + 1
                if as_json:
                    print(json.dumps({"address": address, **now}), flush=True)
                elif live is not None:
                    live.update(_page(address, now, interval), refresh=True)
                else:
                    console.print(_page(address, now, interval))
        except KeyboardInterrupt:
            return
        finally:
            if live is not None:
                live.stop()


def _page(address: str, now: dict[str, Any], interval: float) -> Group:
    head = Text(f"{address}  {now['transport']}  every {interval:g} s  Ctrl-C ends", style="dim")
    reasons = [
        Text(table["why"], style="bold red" if table["stuck"] else "yellow")
        for table in now["tables"].values()
        if table["waiting_inserts"] or table["waiting_samples"] or table["stuck"]
    ]
    for line, is_error in storage_lines(now):
        head.append(f"\n{line}", style="bold red" if is_error else "dim")
    for line in page_lines(now):
        head.append(f"\n{line}", style="dim" if now["trouble"] is None else "bold red")
    return Group(head, Text(), view(now), Text(), *reasons)
