"""Data sets in Parquet: files that `export_table` wrote, exactly, and files of other programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise ImportError('pyarrow is missing: pip install "reverie[parquet]"') from error

from reverie import _native
from reverie.integrations.datasets import arrow_columns, nests
from reverie.integrations.datasets.drafts import draft_of, publish
from reverie.integrations.datasets.sources import (
    DatasetError,
    DatasetSource,
    Layout,
    RowBlock,
    chosen,
    flags_of,
    nest_of,
)
from reverie.specs import TensorSpec

__all__ = ["ParquetSource", "ParquetWriter"]

#: The columns that a file has in addition to those of a row.
EPISODE, PRIORITY = "__episode", "__priority"
#: Columns that number the episodes in files of other programs.
EPISODE_NAMES = ("episode_index", "episode_id", "episode")
#: The version of the file's metadata.
VERSION = 1
#: Bytes of the arrays that one block holds at most, and those of a row group.
BLOCK_BYTES, ROW_GROUP_BYTES = 4 << 20, 32 << 20
#: Bytes of a column that are read at a time; without it, a column is read for a whole row group.
READ_BYTES = 1 << 20
DESCRIPTION = b"reverie_description"
COMPRESSIONS = ("zstd", "snappy", "lz4", "gzip", "none")


@contextmanager
def damage_named(path: object) -> Iterator[None]:
    """A context in which errors of Arrow, and those of reading a file, become DatasetErrors with the path."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DatasetError(f"{path}: not a readable Parquet file: {reason}") from error


class ParquetSource(DatasetSource):
    """The rows of a Parquet file, or of all Parquet files of a folder in the order of their names.

    Args:
        path: the file or folder.
        columns: the columns to read, by their names after `rename`; None means all. A name stands for all below it.
        rename: new names by the names in the file; a "/" in a new name makes a nest.
        episode: the column that numbers the episodes, in a file of another program. None takes "episode_index",
            "episode_id" or "episode"; without such a column an episode ends where `terminated` or `truncated` is true.

    Raises:
        DatasetError: for files that are damaged, differ in their columns, or hold what no array can hold.
        FileNotFoundError.
    """

    format = "parquet"

    def __init__(
        self,
        path: str | Path,
        *,
        columns: Sequence[str] | None = None,
        rename: Mapping[str, str] | None = None,
        episode: str | None = None,
    ) -> None:
        self.path, self._rename = Path(path), rename
        self._files = files_of(self.path)
        with damage_named(self._files[0]):
            schema, self.num_rows = pq.read_schema(self._files[0]), 0
        for file in self._files:
            with damage_named(file):
                footer = pq.read_metadata(file)
            self.num_rows += footer.num_rows
            if not footer.schema.to_arrow_schema().equals(schema):
                raise DatasetError(f"{file}: its columns differ from those of {self._files[0]}; import it alone")
        about = (schema.metadata or {}).get(arrow_columns.KEY)
        self._is_ours = about is not None
        self._priority = PRIORITY if PRIORITY in schema.names and self._is_ours else None
        if about is not None and not rename and episode is None:
            self._open_own(json.loads(about), schema, columns)
        else:
            self._open_other(schema, columns, dict(rename or {}), episode)

    def _open_own(self, about: dict[str, Any], schema: pa.Schema, columns: Sequence[str] | None) -> None:
        if about["version"] > VERSION:
            raise DatasetError(f"{self.path}: written by a newer version of Reverie (metadata {about['version']})")
        self.layout, self._episode = about["layout"], EPISODE if about["layout"] == "steps" else None
        _, structure = _native.flatten(nests.rebuilt(about["structure"]))
        kept = chosen(structure.paths, columns, self.path)
        if columns is None:
            self.structure = structure
        else:
            _, self.structure = _native.flatten(nest_of({structure.paths[index]: None for index in kept}))
            kept.sort(key=lambda index: self.structure.paths.index(structure.paths[index]))
        self._columns = [
            cast("arrow_columns.FileColumn", arrow_columns.written_by_reverie(schema.field(structure.paths[index])))
            for index in kept
        ]
        self.specs = [column.spec for column in self._columns]
        self.num_episodes = self._counted_episodes() if self.layout == "steps" else None

    @property
    def details(self) -> dict[str, str | int | float]:
        """The facts that `describe` wrote into the first file: a recording's environment, agent and mean return."""
        with damage_named(self._files[0]):
            found = (pq.read_metadata(self._files[0]).metadata or {}).get(DESCRIPTION)
        return {} if found is None else json.loads(found)

    def _counted_episodes(self) -> int | None:
        """The episodes that the writers of the files counted."""
        total = 0
        for file in self._files:
            with damage_named(file):
                count = (pq.read_metadata(file).metadata or {}).get(b"reverie_episodes")
            if count is None:
                return None
            total += int(count)
        return total

    def _open_other(
        self, schema: pa.Schema, columns: Sequence[str] | None, rename: dict[str, str], episode: str | None
    ) -> None:
        for name in [*rename, *([episode] if episode is not None else [])]:
            if name not in schema.names:
                raise DatasetError(f"{self.path}: there is no column '{name}'; there is {', '.join(schema.names)}")
        known = [*([EPISODE] if self._is_ours else []), *EPISODE_NAMES]
        self._episode = episode or next((name for name in known if name in schema.names), None)
        names = {
            rename.get(path, path): path for path in _flat_names(schema) if path not in (self._episode, self._priority)
        }
        kept = chosen(list(names), columns, self.path)
        paths = {name: names[name] for index, name in enumerate(names) if index in kept}
        _, self.structure = _native.flatten(nest_of(dict.fromkeys(paths)))
        first = self._first_batch([paths[name] for name in self.structure.paths])
        self._columns = []
        for name in self.structure.paths:
            field = _inner_field(schema, paths[name])
            own = arrow_columns.written_by_reverie(field)
            column = own or arrow_columns.inferred(field, _inner(first, paths[name]), str(self.path))
            column.path = paths[name]
            self._columns.append(column)
        self.specs = [column.spec for column in self._columns]
        flags = [path for path in ("terminated", "truncated") if path in self.structure.paths]
        self._flags = [self.structure.paths.index(path) for path in flags]
        self.layout = "steps" if self._episode is not None or self._flags else "items"
        self.ends_by_flags = self._episode is None and bool(self._flags)
        self.num_episodes = None

    def _first_batch(self, paths: list[str]) -> pa.RecordBatch:
        with damage_named(self._files[0]), pq.ParquetFile(self._files[0], buffer_size=READ_BYTES) as file:
            for batch in file.iter_batches(1, columns=sorted(paths)):
                return batch
            return _no_rows(file.schema_arrow)

    def blocks(self) -> Iterator[RowBlock]:
        """The rows; a block has at most 4 MiB of arrays, or one row."""
        size = self.row_bytes
        rows = max(1, min(8192, BLOCK_BYTES // max(size, 1))) if size is not None else 512
        names = sorted({column.path for column in self._columns})
        extra = [name for name in (self._episode, self._priority) if name is not None]
        passed = row = 0
        for number, path in enumerate(self._files):
            if self._is_ours and self._episode is not None:
                passed = number << 40  # The episodes of each file are numbered from 0.
            with damage_named(path), pq.ParquetFile(path, buffer_size=READ_BYTES) as file:
                for batch in batches_of(file, rows, [*names, *extra]):
                    block = self._block(batch, passed, row)
                    row += len(block)
                    yield block
                    if block.episodes is not None and self._episode is None and len(block):
                        passed = int(block.episodes[-1]) + self._ends(block, len(block) - 1)

    def count_episodes(self) -> int | None:
        """The number of episodes. Reads the columns that number or end them, where the files do not have the count."""
        if self.num_episodes is None and self.layout == "steps":
            flags = [self.structure.paths[index] for index in self._flags] if self._episode is None else []
            counted = ParquetSource(self.path, columns=flags, rename=self._rename, episode=self._episode)
            self.num_episodes, before = 0, None
            for block in counted.blocks():
                assert block.episodes is not None
                numbers = [*([] if before is None else [before]), *block.episodes.tolist()]
                self.num_episodes += int(np.count_nonzero(np.diff(numbers))) + (before is None)
                before = numbers[-1]
        return self.num_episodes

    def _block(self, batch: pa.RecordBatch, passed: int, row: int) -> RowBlock:
        columns = [column.read(_inner(batch, column.path)) for column in self._columns]
        episodes = priorities = None
        if self._episode is not None:
            values = batch.column(self._episode)
            arrow_columns.refuse_nulls(values, self._episode, str(self.path))
            episodes = values.to_numpy(zero_copy_only=False).astype(np.int64) + (passed if self._is_ours else 0)
        elif self.layout == "steps":
            ends = np.zeros(batch.num_rows, bool)
            for index in self._flags:
                ends |= flags_of(columns[index], self.structure.paths[index], self.path, row)
            episodes = passed + np.concatenate([[0], np.cumsum(ends)[:-1]]).astype(np.int64)
        if self._priority is not None:
            priorities = batch.column(self._priority).to_numpy(zero_copy_only=False)
        return RowBlock(columns, episodes, priorities)

    def _ends(self, block: RowBlock, row: int) -> bool:
        return any(bool(block.columns[index][row]) for index in self._flags)


class ParquetWriter:
    """Writes rows to a Parquet file, which has its name only once it is complete.

    Args:
        path: the file; it must not exist.
        like: a nest of the form of a row.
        specs: the dtype and shape of each column, in flattening order.
        layout: what a row is.
        compression: "zstd", "snappy", "lz4", "gzip" or "none".

    Raises:
        FileExistsError; ValueError for another compression.
    """

    def __init__(
        self, path: Path, like: Any, specs: Sequence[TensorSpec], layout: Layout, *, compression: str = "zstd"
    ) -> None:
        if path.exists():
            raise FileExistsError(17, "exists already; name another file", str(path))
        if compression not in COMPRESSIONS:
            raise ValueError(f"compression must be one of {', '.join(map(repr, COMPRESSIONS))}, got {compression!r}")
        _, structure = _native.flatten(like)
        self._path, self._partial = path, draft_of(path)
        self._fields = [arrow_columns.field_of(*of) for of in zip(structure.paths, specs, strict=True)]
        about = {"version": VERSION, "layout": layout, "structure": nests.described(like)}
        own = [pa.field(EPISODE, pa.int64(), nullable=False)] if layout == "steps" else []
        own.append(pa.field(PRIORITY, pa.float64(), nullable=False))
        self._schema = pa.schema([*self._fields, *own], metadata={arrow_columns.KEY: json.dumps(about)})
        kind = None if compression == "none" else compression
        # A dictionary saves nothing where values hardly repeat, and costs a third of the time.
        self._writer = pq.ParquetWriter(self._partial, self._schema, compression=kind, use_dictionary=False)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._episodes = 0

    def write(self, block: RowBlock) -> None:
        """Appends rows. Blocks while a row group is written to the disk."""
        pairs = zip(block.columns, self._fields, strict=True)
        arrays = [arrow_columns.to_arrow(column, field) for column, field in pairs]
        if block.episodes is not None:
            arrays.append(pa.array(block.episodes))
            self._episodes = max(self._episodes, int(block.episodes[-1]) + 1)
        priorities = np.ones(len(block)) if block.priorities is None else block.priorities
        batch = pa.RecordBatch.from_arrays([*arrays, pa.array(priorities)], schema=self._schema)
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def write_episode(self, columns: Sequence[npt.NDArray[Any]]) -> None:
        """Appends the rows of one episode, columns `[T, ...]`, as `write` does."""
        self.write(RowBlock(list(columns), np.full(len(columns[0]), self._episodes, np.int64), None))

    def describe(self, about: Mapping[str, str | int | float]) -> None:
        """Adds facts about the file, which `ParquetSource.details` returns."""
        self._writer.add_key_value_metadata({DESCRIPTION.decode(): json.dumps(about)})

    def _flush(self) -> None:
        if self._waiting:
            rows = sum(batch.num_rows for batch in self._waiting)
            self._writer.write_table(pa.Table.from_batches(self._waiting), row_group_size=rows)
        self._waiting, self._waiting_bytes = [], 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._flush()
                self._writer.add_key_value_metadata({"reverie_episodes": str(self._episodes)})
            self._writer.close()
            if kind is None:
                publish(self._partial, self._path)
        finally:
            self._partial.unlink(missing_ok=True)


def batches_of(file: pq.ParquetFile, rows: int, columns: list[str]) -> Iterator[Any]:
    """Record batches of at most `rows` rows, one row group after another.

    An iterator of pyarrow over several row groups keeps what it has read of each until it ends.
    """
    for group in range(file.num_row_groups):
        yield from file.iter_batches(rows, row_groups=[group], columns=columns)


def files_of(path: Path) -> list[Path]:
    """The Parquet files at a path, in the order of their names.

    Raises:
        FileNotFoundError, and DatasetError for a folder without them.
    """
    if path.is_dir():
        found = sorted(path.rglob("*.parquet"))
        if not found:
            raise DatasetError(f"{path}: there is no file *.parquet in this folder")
        return found
    path.stat()
    return [path]


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], type=field.type) for field in schema], schema=schema)


def _flat_names(schema: pa.Schema) -> list[str]:
    """The names of all columns; of a struct, those of its fields with the struct's name and a dot before them."""

    def names(prefix: str, field: pa.Field) -> Iterator[str]:
        if pa.types.is_struct(field.type) and not arrow_columns.is_image(field.type):
            for index in range(field.type.num_fields):
                yield from names(
                    f"{prefix}.", field.type.field(index).with_name(f"{prefix}.{field.type.field(index).name}")
                )
        else:
            yield field.name

    return [name for field in schema for name in names(field.name, field)]


def _inner_field(schema: pa.Schema, path: str) -> pa.Field:
    """The field of a path of `_flat_names`."""
    if path in schema.names:
        return schema.field(path)
    name = next(name for name in schema.names if path.startswith(f"{name}."))
    field = schema.field(name)
    for part in path[len(name) + 1 :].split("."):
        field = field.type.field(part)
    return field


def _inner(batch: pa.RecordBatch, path: str) -> Any:
    """The values of a path of `_flat_names`."""
    if path in batch.schema.names:
        return batch.column(path)
    name = next(name for name in batch.schema.names if path.startswith(f"{name}."))
    values = batch.column(name)
    for part in path[len(name) + 1 :].split("."):
        values = values.field(part)
    return values
