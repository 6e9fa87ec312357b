"""`reverie checkpoint`: look into the checkpoints and the journal of a server, check and repair them."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from reverie import _native, selectors
from reverie.cli.common import refuse
from reverie.errors import DamagedError, ReplayError

EXIT_INTACT = 0
EXIT_DAMAGED = 1

EPILOG = (
    "Exit codes: 0 no damage in what was read; 1 a checkpoint or journal is damaged, and the output names it; 2 there"
    " is no checkpoint at PATH."
)

VERIFY_EPILOG = (
    EPILOG.removesuffix(".")
    + ", a server writes its journal there, or files of that which the newest needs were removed."
)

REPAIR_EPILOG = (
    "Exit codes: 0 nothing was damaged; 1 something was left out, and the output names it; 2 nothing was saved: there"
    " is no readable checkpoint, a server uses FOLDER, or --to has a checkpoint already."
)

app = typer.Typer(
    name="checkpoint",
    help="Show, verify and repair the checkpoints and the journal of a server's tables.",
    no_args_is_help=True,
    epilog=EPILOG,
)

Where = Annotated[Path, typer.Argument(metavar="PATH", help="A folder of checkpoints, or one checkpoint's file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout instead of text.")]


@app.command("ls", epilog=EPILOG)
def ls(path: Where, as_json: AsJson = False) -> None:
    """List the checkpoints at PATH with their contents, oldest first. Does not read items."""
    found = [summary for one in _checkpoints(path) if (summary := _summary(one)) is not None]
    if not found:
        refuse(f"the server that saves in {path} has removed what was listed; try again")
    if as_json:
        print(json.dumps({"checkpoints": found}))
    else:
        for one in found:
            print(_line(one))
    raise typer.Exit(EXIT_DAMAGED if any("damage" in one for one in found) else EXIT_INTACT)


@app.command("show", epilog=EPILOG)
def show(path: Where, as_json: AsJson = False) -> None:
    """Show the newest checkpoint at PATH: its tables, their options and counts. Does not read items."""
    newest = _summary(last := _checkpoints(path)[-1])
    if newest is None:
        refuse(f"{last} was removed by the server that saves there; try again")
    if as_json:
        print(json.dumps(newest))
    else:
        print(_line(newest))
        for table in newest.get("tables", ()):
            print(f"\n{table['name']}")
            for name, value in table.items():
                if name != "name":
                    print(f"  {name:18} {value}")
    raise typer.Exit(EXIT_DAMAGED if "damage" in newest else EXIT_INTACT)


@app.command("verify", epilog=VERIFY_EPILOG)
def verify(path: Where, as_json: AsJson = False) -> None:
    """Check every byte of every checkpoint at PATH, and of the journal in a folder.

    A folder whose journal a server writes is refused; one checkpoint's file can be checked meanwhile.
    """
    results: list[dict[str, Any]] = []
    checkpoints = _checkpoints(path)
    # First: a journal that is being written is refused before the checkpoints are read.
    journal = _journal(path) if path.is_dir() else None
    if journal is not None and not as_json:
        print(_journal_line(path, journal), flush=True)
    for one in checkpoints:
        try:
            items, chunks, size = _native.verify_checkpoint(one)
        except DamagedError as error:
            if _was_removed(one):
                continue
            results.append({"path": one, "damage": _damage(error)})
            text = f"damaged  {error}"
        except ReplayError as error:
            refuse(error)
        else:
            results.append({"path": one, "num_items": items, "num_chunks": chunks, "size_bytes": size})
            text = f"intact   {one}: {items:,} items in {chunks:,} chunks, {_bytes(size)}"
        if not as_json:
            print(text, flush=True)
    if not results and journal is None:
        refuse(f"the server that saves in {path} has removed what was listed; try again")
    if as_json:
        print(json.dumps({"checkpoints": results, "journal": journal}))
    damaged = any("damage" in result for result in [*results, *([] if journal is None else [journal])])
    raise typer.Exit(EXIT_DAMAGED if damaged else EXIT_INTACT)


@app.command("repair", epilog=REPAIR_EPILOG)
def repair(
    path: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of checkpoints, with a journal or without.")],
    to: Annotated[Path, typer.Option("--to", help="New folder for the undamaged part. FOLDER is not changed.")],
    as_json: AsJson = False,
) -> None:
    """Save the undamaged part of FOLDER as a checkpoint in a new folder, and list what was left out.

    Uses the newest checkpoint that can be read, the journal up to the first damage, and the items whose bytes are as
    they were written. A server starts with the new folder as with any other.
    """
    if not path.is_dir():
        refuse(f"there is no folder {path}")
    try:
        repaired = _native.repair_checkpoint(str(path), str(to))
    except DamagedError as error:
        refuse(f"no checkpoint in {path} can be read: {error}")
    except (ReplayError, ValueError) as error:
        refuse(error)
    if as_json:
        print(
            json.dumps({key: repaired[key] for key in ("path", "num_items", "num_chunks", "bytes_written", "losses")})
        )
    else:
        for loss in repaired["losses"]:
            print(f"lost     {loss}")
        print(f"saved    {repaired['path']}: {repaired['num_items']:,} items in {repaired['num_chunks']:,} chunks")
    raise typer.Exit(EXIT_DAMAGED if repaired["losses"] else EXIT_INTACT)


def _journal(folder: Path) -> dict[str, Any] | None:
    """The journal of a folder in the form of `--json`, or its damage; None if there is none."""
    try:
        return _native.verify_journal(str(folder))
    except DamagedError as error:
        return {"damage": _damage(error)}
    except (ReplayError, ValueError) as error:  # the latter: files that the newest checkpoint needs were removed
        refuse(error)


def _journal_line(folder: Path, journal: dict[str, Any]) -> str:
    if "damage" in journal:
        damage = journal["damage"]
        return (
            f"damaged  the journal in {folder}: {damage['file']} at byte {damage['offset']}: {damage['what']}; "
            f"`reverie checkpoint repair {folder} --to NEW` saves the undamaged part"
        )
    line = f"intact   the journal in {folder}: {journal['num_commits']:,} commits after {journal['checkpoint']}"
    line += f", {journal['num_items']:,} items in {journal['num_chunks']:,} chunks, {_bytes(journal['size_bytes'])}"
    if journal["torn"] is not None:
        file, offset = journal["torn"]
        line += f"; {file} ends at byte {offset} within a record that was never acknowledged"
    return line


def _checkpoints(path: Path) -> Sequence[str]:
    """The checkpoints at a path, oldest first; ends the command if there are none."""
    if path.is_file():
        return [str(path)]
    if not path.is_dir():
        refuse(f"there is no file or folder {path}")
    try:
        found = _native.list_checkpoints(str(path))
    except ReplayError as error:
        refuse(error)
    if not found:
        _journal(path)  # names the commits of a journal without a checkpoint
        refuse(f"there is no checkpoint in {path}; name a checkpointer's folder, or a file in it")
    return found


def _was_removed(checkpoint: str) -> bool:
    """True where a server has removed the checkpoint since it was listed: its file goes before those that it needs."""
    return not Path(checkpoint).exists()


def _summary(path: str) -> dict[str, Any] | None:
    """The contents of a checkpoint in the form of `--json`, or its damage; None where it was removed meanwhile."""
    try:
        found = _native.describe_checkpoint(path)
    except DamagedError as error:
        if _was_removed(path):
            return None
        return {"path": path, "damage": _damage(error)}
    except ReplayError as error:
        refuse(error)
    found["tables"] = [_table(table) for table in found["tables"]]
    found["created"] = datetime.datetime.fromtimestamp(found["created"], datetime.UTC).isoformat(" ", "seconds")
    return found


def _damage(error: DamagedError) -> dict[str, Any]:
    return {"file": error.path, "what": error.what, "offset": error.offset}


def _table(table: dict[str, Any]) -> dict[str, Any]:
    """A table's options in the form in which users write them."""
    for role in ("sampler", "remover"):
        table[role] = _selector(selectors.from_engine(table[role]))
    names = ("samples_per_insert", "min_size_to_sample", "min_diff", "max_diff")
    limits = zip(names, table["rate_limiter"], strict=True)
    table["rate_limiter"] = f"RateLimiter({', '.join(f'{name}={value:g}' for name, value in limits)})"
    if table["signature"] is not None:
        _, columns = table["signature"]
        table["signature"] = {path: f"{dtype} {list(shape)}" for path, dtype, shape in columns}
    return table


def _selector(selector: selectors.Selector) -> str:
    """A selector's class, and its arguments that differ from the defaults."""
    values = [(of, getattr(selector, of.name)) for of in dataclasses.fields(selector)]
    return f"{type(selector).__name__}({', '.join(f'{of.name}={v!r}' for of, v in values if v != of.default)})"


def _line(summary: dict[str, Any]) -> str:
    if "damage" in summary:
        damage = summary["damage"]
        return f"{summary['path']}  damaged: {damage['file']} at byte {damage['offset']}: {damage['what']}"
    tables = ", ".join(f"{table['name']} {table['size']:,}" for table in summary["tables"])
    size = _bytes(summary["manifest_bytes"] + summary["chunk_bytes"])
    return f"{summary['path']}  {summary['created']}  {size} in {summary['num_chunks']:,} chunks  items: {tables}"


def _bytes(size: int) -> str:
    return f"{size:,} bytes" if size < 1 << 20 else f"{size / (1 << 20):,.1f} MiB"
