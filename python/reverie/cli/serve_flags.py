"""The argument and flags of `reverie serve`, as its --help groups them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reverie.cli.log_lines import LogFormat
from reverie.cli.sizes import HELP, size_in_bytes
from reverie.cli.table_files import SELECTORS

Tables = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE",
        help="Definition of the tables: FILE.toml, FILE.yaml, or FILE.py[:NAME] with a list of tables or a function"
        " that returns one. Without it, the flags describe one table.",
    ),
]
Host = Annotated[str, typer.Option(metavar="HOST", help="Address to listen on; 0.0.0.0 means all IPv4 addresses.")]
Port = Annotated[
    int, typer.Option(min=0, max=65535, metavar="PORT", help="Port to listen on; 0 picks a free port and prints it.")
]
MaxBytes = Annotated[
    int | None,
    typer.Option(parser=size_in_bytes, metavar="SIZE", help=f"Maximum size of all tables together, {HELP}."),
]
MaxMemory = Annotated[
    int | None,
    typer.Option(
        parser=size_in_bytes,
        metavar="SIZE",
        help="Maximum memory of tables and connections together (default: three quarters of what the process may use).",
    ),
]
_DISK = "Tables larger than memory"
Disk = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Move chunks that do not fit in memory to files in FOLDER, which no other server uses.",
        rich_help_panel=_DISK,
    ),
]
Memory = Annotated[
    int | None,
    typer.Option(
        "--memory",
        parser=size_in_bytes,
        metavar="SIZE",
        help="Memory of all tables together, above which chunks move to the disk; needs --disk.",
        rich_help_panel=_DISK,
    ),
]
DiskBytes = Annotated[
    int | None,
    typer.Option(
        "--disk-size",
        parser=size_in_bytes,
        metavar="SIZE",
        help="Maximum size of these files; needs --disk (default: what the disk has).",
        rich_help_panel=_DISK,
    ),
]
Shard = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=63,
        metavar="N",
        help="Number of this server among several that are one replay. Its table is then rationed: inserts wait until"
        " the client of all of them, which has the rate limiter, admits them.",
    ),
]
Grace = Annotated[
    float, typer.Option(min=0, metavar="SECONDS", help="Seconds that a stop gives clients to read their responses.")
]
SessionTimeout = Annotated[
    float,
    typer.Option(
        min=0,
        metavar="SECONDS",
        help="Seconds that a session survives its lost connection, with its unacknowledged samples.",
    ),
]
Http = Annotated[
    str | None,
    typer.Option(
        metavar="[HOST:]PORT",
        help="Also show a page and metrics to browsers and monitoring there, on 127.0.0.1 if there is no HOST; port 0"
        " picks a free port and prints it.",
    ),
]
Tracing = Annotated[
    bool,
    typer.Option(
        "--tracing",
        help="Export an OpenTelemetry span of each traced request, as the variables OTEL_* say; OTLP by default.",
    ),
]
LogLines = Annotated[
    LogFormat,
    typer.Option(metavar="FORMAT", help="The log on stderr: text, or json, an object with time and level per line."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object with the address, for scripts.")]

ONE_TABLE = "The table, if there is no FILE"
Name = Annotated[str, typer.Option("--table", metavar="NAME", help="Name of the table.", rich_help_panel=ONE_TABLE)]
MaxSize = Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of items.", rich_help_panel=ONE_TABLE)]
Sampler = Annotated[
    str,
    typer.Option(
        metavar="KIND", help=f"Selector of the next item to sample: {', '.join(SELECTORS)}.", rich_help_panel=ONE_TABLE
    ),
]
PriorityExponent = Annotated[
    float, typer.Option(metavar="X", help="Exponent of a prioritized sampler.", rich_help_panel=ONE_TABLE)
]
Remover = Annotated[
    str,
    typer.Option(
        metavar="KIND", help="Selector of the item to evict when the table is full.", rich_help_panel=ONE_TABLE
    ),
]
MinSize = Annotated[
    int,
    typer.Option(
        min=1, metavar="N", help="Minimum number of items before the table can be sampled.", rich_help_panel=ONE_TABLE
    ),
]
SamplesPerInsert = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        help="Ratio that the table keeps by blocking samples or inserts; needs --error-buffer.",
        rich_help_panel=ONE_TABLE,
    ),
]
ErrorBuffer = Annotated[
    float | None,
    typer.Option(metavar="X", help="Allowed deviation from the ratio, in samples.", rich_help_panel=ONE_TABLE),
]
MaxTimesSampled = Annotated[
    int,
    typer.Option(min=0, metavar="N", help="Remove an item after N samples; 0 means never.", rich_help_panel=ONE_TABLE),
]

_CHECKPOINTS = "Checkpoints"
Checkpoints = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Restore the newest checkpoint in FOLDER, and write one on stop.",
        rich_help_panel=_CHECKPOINTS,
    ),
]
CheckpointEvery = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="Seconds between two checkpoints; needs --checkpoints or --journal.",
        rich_help_panel=_CHECKPOINTS,
    ),
]
Journal = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Write every change to FOLDER before it is acknowledged, and start with what is there.",
        rich_help_panel=_CHECKPOINTS,
    ),
]
Sync = Annotated[
    str,
    typer.Option(
        metavar="WHEN",
        help="When the journal waits for the disk: os (rarely), interval, or always; needs --journal.",
        rich_help_panel=_CHECKPOINTS,
    ),
]
SyncInterval = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        help="Seconds between writes of priorities, and between waits for the disk; needs --journal.",
        rich_help_panel=_CHECKPOINTS,
    ),
]

JournalCheckpointBytes = Annotated[
    int,
    typer.Option(
        parser=size_in_bytes,
        metavar="SIZE",
        help="Size of the journal after which a checkpoint shortens it; needs --journal.",
        rich_help_panel=_CHECKPOINTS,
    ),
]

_ACCESS = "Access: off loopback a token and a certificate are required"
TokenFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File with the token that every client must send.", rich_help_panel=_ACCESS),
]
TlsCert = Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate chain, PEM.", rich_help_panel=_ACCESS)]
TlsKey = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Key of the certificate, PEM.", rich_help_panel=_ACCESS)
]
ClientCa = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="CA certificates, PEM: every client must have a certificate signed by one of them.",
        rich_help_panel=_ACCESS,
    ),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        help="Allow connections off loopback without TLS; the token is still required.",
        rich_help_panel=_ACCESS,
    ),
]
MaxConnections = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="N",
        help="Maximum number of clients over gRPC, and the same number over shared memory.",
        rich_help_panel=_ACCESS,
    ),
]
