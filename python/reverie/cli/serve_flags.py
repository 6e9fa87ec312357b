"""The argument and flags of `reverie serve`, as its --help groups them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reverie.cli.common import flags_of
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
_disk = flags_of("Tables larger than memory")
Disk = Annotated[
    Path | None,
    _disk(
        metavar="FOLDER", help="Move chunks that do not fit in memory to files in FOLDER, which no other server uses."
    ),
]
Memory = Annotated[
    int | None,
    _disk(
        "--memory",
        parser=size_in_bytes,
        metavar="SIZE",
        help="Memory of all tables together, above which chunks move to the disk; needs --disk.",
    ),
]
DiskBytes = Annotated[
    int | None,
    _disk(
        "--disk-size",
        parser=size_in_bytes,
        metavar="SIZE",
        help="Maximum size of these files; needs --disk (default: what the disk has).",
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
        help="Also serve a page and metrics over HTTP on this port, on 127.0.0.1 if there is no HOST; port 0"
        " picks a free port and prints it.",
    ),
]
Tracing = Annotated[
    bool,
    typer.Option(
        "--tracing",
        help="Export an OpenTelemetry span of each traced request, as the variables OTEL_* set it; OTLP by default.",
    ),
]
LogLines = Annotated[
    LogFormat,
    typer.Option(metavar="FORMAT", help="The log on stderr: text, or json, an object with time and level per line."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object with the address, for scripts.")]

ONE_TABLE = "The table, if there is no FILE"
_one_table = flags_of(ONE_TABLE)
Name = Annotated[str, _one_table("--table", metavar="NAME", help="Name of the table.")]
MaxSize = Annotated[int, _one_table(min=1, metavar="N", help="Maximum number of items.")]
Sampler = Annotated[
    str, _one_table(metavar="KIND", help=f"Selector of the next item to sample: {', '.join(SELECTORS)}.")
]
PriorityExponent = Annotated[float, _one_table(metavar="X", help="Exponent of a prioritized sampler.")]
Remover = Annotated[str, _one_table(metavar="KIND", help="Selector of the item to evict when the table is full.")]
MinSize = Annotated[
    int, _one_table(min=1, metavar="N", help="Minimum number of items before the table can be sampled.")
]
SamplesPerInsert = Annotated[
    float | None,
    _one_table(metavar="X", help="Ratio that the table keeps by blocking samples or inserts; needs --error-buffer."),
]
ErrorBuffer = Annotated[float | None, _one_table(metavar="X", help="Allowed deviation from the ratio, in samples.")]
MaxTimesSampled = Annotated[int, _one_table(min=0, metavar="N", help="Remove an item after N samples; 0 means never.")]

_checkpoints = flags_of("Checkpoints")
Checkpoints = Annotated[
    Path | None, _checkpoints(metavar="FOLDER", help="Restore the newest checkpoint in FOLDER, and write one on stop.")
]
CheckpointEvery = Annotated[
    float | None,
    _checkpoints(metavar="SECONDS", help="Seconds between two checkpoints; needs --checkpoints or --journal."),
]
Journal = Annotated[
    Path | None,
    _checkpoints(
        metavar="FOLDER",
        help="Write every change to FOLDER before it is acknowledged; start with the changes there.",
    ),
]
Sync = Annotated[
    str,
    _checkpoints(
        metavar="WHEN", help="When the journal waits for the disk: os (rarely), interval, or always; needs --journal."
    ),
]
SyncInterval = Annotated[
    float,
    _checkpoints(
        metavar="SECONDS", help="Seconds between writes of priorities, and between waits for the disk; needs --journal."
    ),
]

JournalCheckpointBytes = Annotated[
    int,
    _checkpoints(
        parser=size_in_bytes,
        metavar="SIZE",
        help="Size of the journal after which a checkpoint shortens it; needs --journal.",
    ),
]

_access = flags_of("Access: off loopback a token and a certificate are required")
TokenFile = Annotated[Path | None, _access(metavar="FILE", help="File with the token that every client must send.")]
TlsCert = Annotated[Path | None, _access(metavar="FILE", help="Certificate chain, PEM.")]
TlsKey = Annotated[Path | None, _access(metavar="FILE", help="Key of the certificate, PEM.")]
ClientCa = Annotated[
    Path | None,
    _access(metavar="FILE", help="CA certificates, PEM: every client must have a certificate signed by one of them."),
]
Insecure = Annotated[
    bool, _access("--insecure", help="Allow connections without TLS on any address; the token is still required.")
]
MaxConnections = Annotated[
    int,
    _access(min=1, metavar="N", help="Maximum number of clients over gRPC, and the same number over shared memory."),
]
