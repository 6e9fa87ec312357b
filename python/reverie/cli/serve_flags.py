"""The argument and flags of `reverie serve`, as its --help groups them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reverie.cli.table_files import SELECTORS

Tables = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE",
        help="Where the tables come from: FILE.toml, FILE.yaml, or FILE.py[:NAME] with a list of tables or a function"
        " that makes one. Without it the flags describe one table.",
    ),
]
Host = Annotated[str, typer.Option(metavar="HOST", help="The address to listen on; 0.0.0.0 is all of IPv4.")]
Port = Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="0 takes a free one and prints it.")]
MaxBytes = Annotated[int | None, typer.Option(min=1, metavar="BYTES", help="Bytes that all tables may hold together.")]
MaxMemory = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="BYTES",
        help="Bytes that the server keeps to, for tables and connections together; without it three quarters of what it"
        " may use.",
    ),
]
Shard = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=63,
        metavar="N",
        help="Number among the shards of a ShardedClient. The one table of the flags is then rationed: inserts wait for"
        " the client that has the limits of all shards.",
    ),
]
Grace = Annotated[
    float, typer.Option(min=0, metavar="SECONDS", help="Seconds that a stop waits for what is being done.")
]
SessionTimeout = Annotated[
    float,
    typer.Option(
        min=0,
        metavar="SECONDS",
        help="How long a client whose connection was lost is remembered, with the draws that it has not acknowledged.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object with the address, for scripts.")]

ONE_TABLE = "The one table, where no file describes any"
Name = Annotated[str, typer.Option("--table", metavar="NAME", help="Its name.", rich_help_panel=ONE_TABLE)]
MaxSize = Annotated[
    int, typer.Option(min=1, metavar="N", help="Items that it holds at most.", rich_help_panel=ONE_TABLE)
]
Sampler = Annotated[
    str,
    typer.Option(metavar="KIND", help=f"Which item is sampled: {', '.join(SELECTORS)}.", rich_help_panel=ONE_TABLE),
]
PriorityExponent = Annotated[
    float, typer.Option(metavar="X", help="Of a prioritized sampler.", rich_help_panel=ONE_TABLE)
]
Remover = Annotated[
    str,
    typer.Option(metavar="KIND", help="Which item leaves when the table is full.", rich_help_panel=ONE_TABLE),
]
MinSize = Annotated[
    int,
    typer.Option(
        min=1, metavar="N", help="Items that must be there before anything is sampled.", rich_help_panel=ONE_TABLE
    ),
]
SamplesPerInsert = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        help="Hold this ratio by blocking either side; needs --error-buffer.",
        rich_help_panel=ONE_TABLE,
    ),
]
ErrorBuffer = Annotated[
    float | None,
    typer.Option(metavar="X", help="How far the ratio may stray, in samples.", rich_help_panel=ONE_TABLE),
]
MaxTimesSampled = Annotated[
    int,
    typer.Option(min=0, metavar="N", help="An item leaves after so many draws; 0 is never.", rich_help_panel=ONE_TABLE),
]

_CHECKPOINTS = "Checkpoints"
Checkpoints = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Tables start from the newest checkpoint in it, and a stop writes one.",
        rich_help_panel=_CHECKPOINTS,
    ),
]
CheckpointEvery = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", help="Seconds between two checkpoints; needs --checkpoints.", rich_help_panel=_CHECKPOINTS
    ),
]

_WHO = "Who may connect: off loopback a token and a certificate are asked for"
TokenFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A file with the token that every client must show.", rich_help_panel=_WHO),
]
TlsCert = Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate chain, PEM.", rich_help_panel=_WHO)]
TlsKey = Annotated[Path | None, typer.Option(metavar="FILE", help="Its key, PEM.", rich_help_panel=_WHO)]
ClientCa = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Clients must show a certificate signed by these, PEM.", rich_help_panel=_WHO),
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Give up TLS off loopback (never the token).", rich_help_panel=_WHO)
]
MaxConnections = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="N",
        help="Clients that are connected at a time: so many over gRPC, and so many over shared memory.",
        rich_help_panel=_WHO,
    ),
]
