"""Writes LeRobot data sets of version 3: Parquet files with images as PNG, and their description."""

from __future__ import annotations

import io
import json
import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise ImportError('pyarrow is missing: pip install "reverie[lerobot]"') from error

from reverie import _checks, _native
from reverie.integrations.datasets import arrow_columns
from reverie.integrations.datasets.drafts import draft_of, publish
from reverie.integrations.datasets.lerobot_meta import COUNTERS, feature_of
from reverie.integrations.datasets.sources import DatasetError, shape_of
from reverie.specs import TensorSpec

__all__ = ["LeRobotWriter"]

VERSION = "v3.0"
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
#: Files of a folder, and bytes of a file, as LeRobot has them by default.
CHUNK_SIZE, FILE_BYTES = 1000, 100 << 20
#: Columns of every LeRobot data set; the writer makes those that the table lacks.
OWN = {
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}


class LeRobotWriter:
    """Writes episodes as a LeRobot data set, one file of rows for about 100 MB, one row group for each episode.

    `obs/state` becomes the feature `observation.state`, `reward` `next.reward`, `terminated` `next.done` and
    `truncated` `next.truncated`. uint8 columns `[height, width, 3]` and `[3, height, width]` become images (PNG,
    without loss). LeRobot has no row after an episode's end: a last row that only has the last observation is left out.

    Args:
        path: the folder, which must not exist.
        like: a nest of a row.
        specs: the dtype and shape of each column, in flattening order.
        fps: frames in a second; `timestamp` counts by it where the table has no such column.
        task: what the episodes do, as LeRobot stores it; one text, or one for each number in the column `task_index`.
        robot_type: the robot's name.

    Raises:
        DatasetError: for columns that LeRobot does not have.
        FileExistsError.
    """

    def __init__(
        self,
        path: Path,
        like: Any,
        specs: Sequence[TensorSpec],
        *,
        fps: float,
        task: str | Sequence[str] = "",
        robot_type: str | None = None,
    ) -> None:
        if path.exists():
            raise FileExistsError(17, "exists already; name another folder", str(path))
        if not (fps := _checks.number("fps", fps)) > 0:
            raise ValueError(f"fps must be above 0, got {fps}")
        _, structure = _native.flatten(like)
        self._fps, self._tasks = fps, [task] if isinstance(task, str) else list(task)
        self._robot_type = robot_type
        self._columns: list[_Column] = []
        for column, spec in zip(structure.paths, specs, strict=True):
            feature = feature_of(column)
            if feature in COUNTERS:
                raise DatasetError(f"column '{column}' has the name of a counter of LeRobot; choose with columns=")
            self._columns.append(_Column(column, feature, spec))
        self._paths = structure.paths
        self._path, self._partial = path, draft_of(path)
        (self._partial / "meta").mkdir(parents=True)
        self._file = 0
        self._writer: pq.ParquetWriter | None = None
        self._episodes: list[dict[str, Any]] = []
        self._rows = 0
        #: Last observations, which LeRobot has no row for.
        self.num_left_out = 0

    def write_episode(self, columns: Sequence[npt.NDArray[Any]]) -> None:
        """Appends an episode: columns `[T, ...]`. Blocks while it is written.

        Raises:
            DatasetError: for a `task_index` without a task.
        """
        rows = self._steps(columns)
        named = {column.feature: values[:rows] for column, values in zip(self._columns, columns, strict=True)}
        own = {
            "timestamp": np.arange(rows, dtype=np.float64) / self._fps,
            "frame_index": np.arange(rows),
            "episode_index": np.full(rows, len(self._episodes)),
            "index": np.arange(self._rows, self._rows + rows),
            "task_index": np.zeros(rows),
        }
        tasks = np.unique(named.get("task_index", own["task_index"])).astype(int)
        if len(tasks) and not 0 <= tasks.min() <= tasks.max() < len(self._tasks):
            raise DatasetError(
                f"episode {len(self._episodes)} has the task_index {tasks.max()}, and there are {len(self._tasks)}"
                " tasks: give a task for each with task="
            )
        fields = [column.field for column in self._columns]
        arrays = [column.stored(named[column.feature]) for column in self._columns]
        for name, dtype in OWN.items():
            if name not in named:
                fields.append(pa.field(name, pa.from_numpy_dtype(np.dtype(dtype))))
                arrays.append(pa.array(own[name].astype(dtype)))
        batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
        chunk, file = self._place(batch)
        self._episodes.append(
            {
                "episode_index": len(self._episodes),
                "tasks": [self._tasks[index] for index in tasks],
                "length": rows,
                "data/chunk_index": chunk,
                "data/file_index": file,
                "dataset_from_index": self._rows,
                "dataset_to_index": self._rows + rows,
                "meta/episodes/chunk_index": 0,
                "meta/episodes/file_index": 0,
            }
        )
        self._rows += rows

    def _steps(self, columns: Sequence[npt.NDArray[Any]]) -> int:
        """The rows of an episode without the last observation."""
        rows = len(columns[0])
        flags = [columns[self._paths.index(flag)] for flag in ("terminated", "truncated") if flag in self._paths]
        if rows > 1 and any(flag.reshape(rows)[-2] for flag in flags):
            self.num_left_out += 1
            return rows - 1
        return rows

    def _place(self, batch: Any) -> tuple[int, int]:
        """Writes an episode; the numbers of its folder and file."""
        place = divmod(self._file, CHUNK_SIZE)
        path = self._partial / DATA_PATH.format(chunk_index=place[0], file_index=place[1])
        if self._writer is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(path, batch.schema, compression="snappy")
        self._writer.write_table(pa.Table.from_batches([batch]), row_group_size=batch.num_rows)
        if path.stat().st_size >= FILE_BYTES:
            self._writer.close()
            self._writer, self._file = None, self._file + 1
        return place

    def _describe(self) -> None:
        """Writes the folder `meta`."""
        meta = self._partial / "meta"
        features = {column.feature: column.about() for column in self._columns}
        features |= {
            name: {"dtype": dtype, "shape": [1], "names": None} for name, dtype in OWN.items() if name not in features
        }
        info = {
            "codebase_version": VERSION,
            "robot_type": self._robot_type,
            "total_episodes": len(self._episodes),
            "total_frames": self._rows,
            "total_tasks": len(self._tasks),
            "chunks_size": CHUNK_SIZE,
            "data_files_size_in_mb": FILE_BYTES >> 20,
            "video_files_size_in_mb": 200,
            "fps": int(self._fps) if self._fps == int(self._fps) else self._fps,
            "splits": {"train": f"0:{len(self._episodes)}"},
            "data_path": DATA_PATH,
            "video_path": None,
            "features": features,
        }
        (meta / "info.json").write_text(json.dumps(info, indent=4))
        stats = {column.feature: column.stats() for column in self._columns if column.has_stats}
        (meta / "stats.json").write_text(json.dumps(stats, indent=4))
        folder = meta / "episodes" / "chunk-000"
        folder.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(self._episodes), folder / "file-000.parquet")
        tasks = pa.table({"task_index": pa.array(range(len(self._tasks)), pa.int64()), "task": self._tasks})
        # LeRobot reads this file with pandas, and expects the texts as its index.
        columns = [_pandas_column("task_index", "int64", "int64"), _pandas_column("task", "unicode", "object")]
        pandas = {"index_columns": ["task"], "column_indexes": [], "columns": columns, "pandas_version": "2.2.0"}
        pq.write_table(tasks.replace_schema_metadata({"pandas": json.dumps(pandas)}), meta / "tasks.parquet")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._writer is not None:
                self._writer.close()
            if kind is None:
                self._describe()
                publish(self._partial, self._path)
        finally:
            shutil.rmtree(self._partial, ignore_errors=True)


class _Column:
    """A column of a table as a feature of LeRobot.

    Raises:
        DatasetError: for a dtype that LeRobot does not have.
    """

    def __init__(self, path: str, feature: str, spec: TensorSpec) -> None:
        self.feature, self._spec = feature, spec
        shape = spec.shape
        self._is_image = spec.dtype == np.uint8 and len(shape) == 3 and 3 in (shape[0], shape[-1])
        kind, size = spec.dtype.kind, math.prod(shape_of(spec))
        if kind not in "biufU" or (kind == "U" and shape) or not size:
            raise DatasetError(f"column '{path}' is {spec.dtype} {list(shape)}, which LeRobot does not have")
        self.has_stats = kind != "U"
        self.field, self._store = self._stored_as(kind)
        #: Count, sum, sum of squares, smallest and largest of the numbers, or of the channels of images.
        self._count, self._sums = 0, np.zeros(0)
        self._squares = self._least = self._most = self._sums

    def _stored_as(self, kind: str) -> tuple[pa.Field, Callable[[npt.NDArray[Any]], pa.Array]]:
        shape = self._spec.shape
        if self._is_image:
            image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
            return pa.field(self.feature, image), lambda rows: _encoded(rows, image)
        if kind == "U":
            return pa.field(self.feature, pa.string()), lambda rows: pa.array(rows.tolist(), pa.string())
        value = pa.from_numpy_dtype(self._spec.dtype)
        if shape in ((), (1,)):
            # LeRobot stores an array of one number as that number; the metadata has the shape that the table had.
            about = {"dtype": self._spec.dtype.name, "shape": list(shape)}
            field = pa.field(self.feature, value, metadata={arrow_columns.KEY: json.dumps(about)})
            return field, lambda rows: pa.array(np.ascontiguousarray(rows).reshape(-1), value)
        kinds = [pa.list_(value, shape[-1])] if len(shape) == 1 else [pa.list_(value)]
        for _ in shape[:-1]:
            kinds.append(pa.list_(kinds[-1]))
        return pa.field(self.feature, kinds[-1]), lambda rows: _nested(rows, kinds)

    def stored(self, rows: npt.NDArray[Any]) -> Any:
        """Rows as values of the file; their statistics are counted."""
        if self.has_stats and len(rows):
            self._add(rows)
        return self._store(rows)

    def _add(self, rows: npt.NDArray[Any]) -> None:
        flat = np.ascontiguousarray(rows).reshape(len(rows), -1)
        if self._is_image:
            channels = 1 if self._spec.shape[0] == 3 and self._spec.shape[-1] != 3 else 3
            flat = np.moveaxis(rows, channels, -1).reshape(-1, 3)
        # Images are in [0, 1] in LeRobot's statistics.
        numbers = flat.astype(np.float64) / (255.0 if self._is_image else 1.0)
        parts = numbers.sum(0), np.square(numbers).sum(0), numbers.min(0), numbers.max(0)
        if not self._count:
            self._sums, self._squares, self._least, self._most = parts
        else:
            self._sums, self._squares = self._sums + parts[0], self._squares + parts[1]
            self._least, self._most = np.minimum(self._least, parts[2]), np.maximum(self._most, parts[3])
        self._count += len(numbers)

    def about(self) -> dict[str, Any]:
        """The feature in `meta/info.json`."""
        shape = list(self._spec.shape) or [1]
        if self._is_image:
            last = shape[-1] == 3
            names = ["height", "width", "channels"] if last else ["channels", "height", "width"]
            return {"dtype": "image", "shape": shape, "names": names}
        return {
            "dtype": "string" if self._spec.dtype.kind == "U" else self._spec.dtype.name,
            "shape": shape,
            "names": None,
        }

    def stats(self) -> dict[str, Any]:
        """Mean, standard deviation and limits, as `meta/stats.json` has them."""
        shape = (3, 1, 1) if self._is_image else shape_of(self._spec) or (1,)
        mean = self._sums / max(self._count, 1)
        spread = np.sqrt(np.maximum(self._squares / max(self._count, 1) - np.square(mean), 0.0))
        found = {"min": self._least, "max": self._most, "mean": mean, "std": spread}
        return {**{name: of.reshape(shape).tolist() for name, of in found.items()}, "count": [self._count]}


def _pandas_column(name: str, kind: str, numpy_type: str) -> dict[str, Any]:
    """A column in the metadata that pandas reads."""
    return {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": numpy_type, "metadata": None}


def _nested(rows: npt.NDArray[Any], kinds: list[Any]) -> pa.Array:
    """Rows `[N, ...]` as lists in lists."""
    flat, sizes = pa.array(np.ascontiguousarray(rows).reshape(-1)), rows.shape[:0:-1]
    for kind, size in zip(kinds, sizes, strict=True):
        if pa.types.is_fixed_size_list(kind):
            flat = pa.FixedSizeListArray.from_arrays(flat, type=kind)
        else:
            offsets = pa.array(np.arange(len(flat) // size + 1, dtype=np.int32) * np.int32(size))
            flat = pa.ListArray.from_arrays(offsets, flat, type=kind)
    return flat


def _encoded(rows: npt.NDArray[np.uint8], kind: Any) -> pa.Array:
    """Images as PNG."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError('images need Pillow, which is missing: pip install "reverie[lerobot]"') from error
    images = rows if rows.shape[-1] == 3 else rows.transpose(0, 2, 3, 1)
    encoded = []
    for image in images:
        file = io.BytesIO()
        # The least effort: encoding takes less time than by default, and the files are a little larger.
        Image.fromarray(np.ascontiguousarray(image)).save(file, format="PNG", compress_level=1)
        encoded.append({"bytes": file.getvalue(), "path": None})
    return pa.array(encoded, type=kind)
