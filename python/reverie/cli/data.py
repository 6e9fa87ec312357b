"""`reverie data`: data sets on the disk into a table, out of one, and what they hold."""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as Grid

import reverie
from reverie import selectors
from reverie.checkpointers import CheckpointerBase, DefaultCheckpointer, FolderCopy
from reverie.cli import data_flags as flags
from reverie.cli import data_record, exits
from reverie.cli.common import EXIT_INTERRUPTED, print_error, refuse
from reverie.cli.connecting import Ca, Cert, Credentials, Key, ServerName, Token, connected
from reverie.cli.sizes import size
from reverie.integrations.datasets import DatasetSource, TransferReport, export_table, import_dataset, open_dataset
from reverie.rate_limiters import MinSize

EXIT_NOT_DONE = 1
#: The largest table that the engine makes: the size of a new table, whose server decides on another.
MAX_ITEMS = 1 << 27

EPILOG = (
    "Exit codes: 0 done, or stopped at a limit; 1 the server or the table ended it, and what was inserted stays; 2"
    " invalid arguments, or files that are damaged, of another format, or there already; 130 interrupted."
)

app = typer.Typer(
    name="data",
    help="Record, import and export data sets: Parquet, Minari and LeRobot.",
    no_args_is_help=True,
    epilog=EPILOG,
)


app.command("record", epilog=data_record.EPILOG)(data_record.record)


@app.command("import", epilog=EPILOG)
def import_(
    path: flags.Dataset,
    table: flags.Table,
    server: flags.Server = None,
    checkpoints: flags.Checkpoints = None,
    as_: flags.AsWhat = flags.RowLayout.auto,
    n_step: flags.NStep = 1,
    discount: flags.Discount = 0.99,
    length: flags.Length = None,
    period: flags.Period = None,
    burn_in: flags.BurnIn = 0,
    priority: flags.Priority = None,
    format: flags.InFormat = None,
    column: flags.Columns = None,
    rename: flags.Rename = None,
    episode: flags.Episode = None,
    max_bytes: flags.MaxBytes = None,
    max_steps: flags.MaxSteps = None,
    max_episodes: flags.MaxEpisodes = None,
    timeout: flags.ImportTimeout = 60.0,
    token_file: Token = None,
    tls_ca: Ca = None,
    tls_cert: Cert = None,
    tls_key: Key = None,
    tls_server_name: ServerName = None,
    as_json: flags.Json = False,
) -> None:
    """Insert a data set into a table of a server, or into a checkpoint for a server that starts later.

    Nothing is downloaded. Rows become items through the writers that an environment loop uses.
    """
    if (server is None) == (checkpoints is None):
        refuse("name where the table is: --server ADDR, or --checkpoints FOLDER")
    with _errors_reported():
        source = open_dataset(
            path,
            format=None if format is None else format.value,
            columns=column,
            rename=flags.pairs(rename, "--rename"),
            episode=episode,
        )
        total = min(value for value in (source.num_rows, max_steps, sys.maxsize) if value is not None)
        if checkpoints is None:
            assert server is not None
            credentials = Credentials(
                token=token_file, ca=tls_ca, cert=tls_cert, key=tls_key, server_name=tls_server_name
            )
            place = connected(server, timeout or 0.0, credentials)
        else:
            place = _checkpoint_to(checkpoints, table)
        with place as client, _bar(f"import into {table}", total) as progress:
            report = import_dataset(
                client,
                table,
                source,
                as_=as_.value,
                n_step=n_step,
                discount=discount,
                length=length,
                period=period,
                burn_in=burn_in,
                priority=priority,
                max_bytes=max_bytes,
                max_steps=max_steps,
                max_episodes=max_episodes,
                timeout=timeout,
                progress=progress,
            )
            held = client.server_info()[table].current_size
    _print(report, f"{path} into table '{table}', which has {held:,} items", as_json, items_in_table=held)


@app.command("export", epilog=EPILOG)
def export(
    source: flags.From,
    path: flags.Target,
    table: flags.Table,
    format: flags.OutFormat = flags.DatasetFormat.parquet,
    column: flags.Columns = None,
    option: flags.Option = None,
    max_bytes: flags.MaxBytes = None,
    max_steps: flags.MaxSteps = None,
    max_episodes: flags.MaxEpisodes = None,
    timeout: flags.ExportTimeout = 60.0,
    token_file: Token = None,
    tls_ca: Ca = None,
    tls_cert: Cert = None,
    tls_key: Key = None,
    tls_server_name: ServerName = None,
    as_json: flags.Json = False,
) -> None:
    """Write the items of a table to a file or folder, from a server that runs or from a checkpoint.

    Reading is not counted as sampling. A checkpoint is loaded into memory first. A folder is exported as a server that
    starts there would restore it: the newest checkpoint and the journal after it; nothing in the folder changes. A
    checkpoint's file is exported alone. A folder whose journal a server writes is refused: name the server's address.
    """
    with _errors_reported():
        options = flags.options_of(format, option)
        if Path(source).exists():
            place = _checkpoint_from(Path(source))
        else:
            credentials = Credentials(
                token=token_file, ca=tls_ca, cert=tls_cert, key=tls_key, server_name=tls_server_name
            )
            place = connected(source, timeout or 0.0, credentials)
        with place as client:
            info = client.server_info().get(table)
            with _bar(f"export {table}", 0 if info is None else info.current_size, "items") as progress:
                report = export_table(
                    client,
                    table,
                    path,
                    format=format.value,
                    columns=column,
                    max_bytes=max_bytes,
                    max_steps=max_steps,
                    max_episodes=max_episodes,
                    timeout=timeout,
                    progress=progress,
                    **options,
                )
    written = sum(file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file())
    _print(report, f"table '{table}' to {path}, {size(written)}", as_json, file_bytes=written)


@app.command("show", epilog=EPILOG)
def show(
    path: flags.Dataset,
    format: flags.InFormat = None,
    rename: flags.Rename = None,
    episode: flags.Episode = None,
    as_json: flags.Json = False,
) -> None:
    """Show what a data set holds: format, episodes, rows, columns with dtype and shape, and bytes."""
    with _errors_reported():
        source = open_dataset(
            path,
            format=None if format is None else format.value,
            rename=flags.pairs(rename, "--rename"),
            episode=episode,
        )
        found = _described(source)
    if as_json:
        print(json.dumps(found))
        return
    episodes = "" if found["episodes"] is None else f" in {found['episodes']:,} episodes"
    details = "".join(f", {name} {value}" for name, value in found["details"].items())
    print(f"{path}: {found['format']}{details}, {found['rows']:,} {found['layout']}{episodes}, {size(found['bytes'])}")
    grid = Grid(box=None, padding=(0, 2, 0, 0))
    for heading in ("column", "dtype", "shape"):
        grid.add_column(heading)
    for name, column in found["columns"].items():
        grid.add_row(name, column["dtype"], str(column["shape"]))
    Console(highlight=False).print(grid)


def _described(source: DatasetSource) -> dict[str, Any]:
    """The content of a data set, in the form of `--json`."""
    columns = {
        path: {"dtype": "text" if spec.dtype.kind in "SU" else spec.dtype.name, "shape": list(spec.shape)}
        for path, spec in source.columns.items()
    }
    return {
        "path": str(source.path),
        "format": source.format,
        "details": source.details,
        "layout": source.layout,
        "rows": source.num_rows,
        "episodes": source.count_episodes(),
        "bytes": source.size_bytes,
        "row_bytes": source.row_bytes,
        "columns": columns,
    }


@contextmanager
def _checkpoint_to(folder: Path, table: str) -> Iterator[reverie.Client]:
    """A client of the tables of the newest checkpoint in a folder, with `table` added; a checkpoint follows."""
    added = reverie.Table(table, selectors.Uniform(), selectors.Fifo(), MAX_ITEMS, MinSize(1))
    checkpointer = DefaultCheckpointer(folder)
    with reverie.Server([added], checkpointer=checkpointer, listen=False, restore_config="checkpoint") as server:
        client = server.client()
        yield client
        client.checkpoint()


@contextmanager
def _checkpoint_from(path: Path) -> Iterator[reverie.Client]:
    """A client of the tables of a checkpoint, or of those that a server has which starts in a folder.

    Nothing is written there.
    """
    with tempfile.TemporaryDirectory(prefix="reverie-export-") as own:
        checkpointer: CheckpointerBase
        if path.is_file():
            checkpointer = DefaultCheckpointer(own, fallback_checkpoint_path=path)
        else:
            try:
                checkpointer = FolderCopy(own, path)
            except FileNotFoundError:
                refuse(
                    f"there is no checkpoint in {path}; name the folder of a checkpointer or a journal, or a file in it"
                )
        with reverie.Server([], checkpointer=checkpointer, listen=False, restore_config="checkpoint") as server:
            yield server.client()


@contextmanager
def _errors_reported() -> Iterator[None]:
    """A context that reports errors in one line each, with their exit codes."""
    try:
        with exits.sigterm_as_ctrl_c():
            yield
    except KeyboardInterrupt:
        print("reverie: interrupted; what was inserted stays", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except reverie.DamagedError as error:
        refuse(error)
    except reverie.ReplayError as error:
        print_error(error)
        raise typer.Exit(EXIT_NOT_DONE) from None
    except (ValueError, TypeError, ImportError, OSError) as error:
        refuse(error)


@contextmanager
def _bar(title: str, total: int, unit: str = "rows") -> Iterator[Any]:
    """A progress bar on stderr, as a function that takes reports; it is drawn on terminals only."""
    console = Console(stderr=True)
    done = TextColumn("{task.completed:,.0f} of {task.total:,.0f} " + unit + ", {task.fields[read]}")
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), done, TimeRemainingColumn(), console=console, transient=True,
        disable=not console.is_terminal,
    )  # fmt: skip
    with bar:
        task = bar.add_task(title, total=total, read="0 B")

        def show(report: TransferReport) -> None:
            done = report.rows if unit == "rows" else report.items
            rate = f"{size(report.size_bytes)}, {size(report.size_bytes / max(report.seconds, 1e-9))}/s"
            bar.update(task, completed=done, read=rate)

        yield show


def _print(report: TransferReport, what: str, as_json: bool, **more: int) -> None:
    """Print the report: one line, or one JSON object."""
    if as_json:
        found = {("as" if name == "as_" else name): value for name, value in dataclasses.asdict(report).items()}
        print(json.dumps({**found, **more}))
        return
    left = f"; {report.left_out:,} left out" if report.left_out else ""
    stopped = f"; stopped at --{report.stopped_by.replace('_', '-')}" if report.stopped_by else ""
    seconds = max(report.seconds, 1e-9)
    print(
        f"{report.items:,} {report.as_} from {report.rows:,} rows ({size(report.size_bytes)}) of {what}, in"
        f" {seconds:.1f} s: {report.rows / seconds:,.0f} rows/s, {size(report.size_bytes / seconds)}/s{left}{stopped}"
    )
