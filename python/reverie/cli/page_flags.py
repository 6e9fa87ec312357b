"""The flags of the page of a run, which `reverie train` and `reverie demo` have, and the page that they describe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from reverie.cli.common import flags_of, refuse
from reverie.pages import Page
from reverie.tls import ServerTLS
from reverie.tokens import Token

_output = flags_of("Output")

Http = Annotated[
    str | None,
    _output(
        metavar="[HOST:]PORT",
        help="Serve a page and metrics of the training on this port while it runs, on 127.0.0.1 without a HOST;"
        " port 0 picks a free port and prints it.",
    ),
]
PageToken = Annotated[
    Path | None,
    _output(
        "--token-file", metavar="FILE", help="File with the token that readers of the page must show; needs --http."
    ),
]
PageCert = Annotated[
    Path | None, _output("--tls-cert", metavar="FILE", help="Certificate chain of the page, PEM; needs --http.")
]
PageKey = Annotated[Path | None, _output("--tls-key", metavar="FILE", help="Key of that certificate, PEM.")]
PageInsecure = Annotated[
    bool, _output("--insecure", help="Allow a page without TLS on any address; the token is still required.")
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
