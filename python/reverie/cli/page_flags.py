"""The flags of the page of a run, which `reverie train` and `reverie demo` have, and the page that they describe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reverie.cli.common import refuse
from reverie.pages import Page
from reverie.tls import ServerTLS
from reverie.tokens import Token

#: The group of these flags in `--help`.
PANEL = "Output"

Http = Annotated[
    str | None,
    typer.Option(
        metavar="[HOST:]PORT",
        help="Show the run, or the runs of --seeds, to browsers and monitoring on this port while it trains, on"
        " 127.0.0.1 if there is no HOST; port 0 picks a free port and prints it.",
        rich_help_panel=PANEL,
    ),
]
PageToken = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="File with the token that readers of the page must show; needs --http.",
        rich_help_panel=PANEL,
    ),
]
PageCert = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert",
        metavar="FILE",
        help="Certificate chain of the page, PEM; needs --http.",
        rich_help_panel=PANEL,
    ),
]
PageKey = Annotated[
    Path | None,
    typer.Option("--tls-key", metavar="FILE", help="Key of that certificate, PEM.", rich_help_panel=PANEL),
]
PageInsecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        help="Allow a page off loopback without TLS; the token is still required.",
        rich_help_panel=PANEL,
    ),
]


def page(http: str | None, token: Path | None, cert: Path | None, key: Path | None, *, insecure: bool) -> Page | None:
    """The page to open; ends the command for credentials without a page, and for a certificate without its key."""
    if http is None:
        given = {"--token-file": token, "--tls-cert": cert, "--tls-key": key, "--insecure": insecure or None}
        without_page = [flag for flag, value in given.items() if value is not None]
        if without_page:
            refuse(f"{without_page[0]} is for the page of the run: give --http, or leave it out")
        return None
    if (cert is None) != (key is None):
        refuse("--tls-cert and --tls-key belong together: give both or neither")
    tls = None if cert is None or key is None else ServerTLS(cert, key)
    return Page(http, None if token is None else Token.from_file(token), tls, insecure)
