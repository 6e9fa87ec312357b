"""The description of a LeRobot data set: `meta/info.json` and the places of its episodes, of versions 2 and 3."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from reverie.integrations.datasets.parquet import damage_named
from reverie.integrations.datasets.sources import DatasetError

__all__ = ["Episode", "LeRobotMeta", "column_of", "feature_of"]

#: Features that number rows, which the order of rows and episodes shows as well.
COUNTERS = ("index", "episode_index", "frame_index")
#: The columns of a step, by the names of their features.
COLUMNS = {"next.reward": "reward", "next.done": "terminated", "next.truncated": "truncated"}


@dataclasses.dataclass(frozen=True, slots=True)
class Episode:
    """The place of an episode."""

    index: int
    length: int
    data: Path
    """The Parquet file with its rows."""
    videos: dict[str, tuple[Path, float]]
    """The file of each video, and the second in it at which the episode begins."""


class LeRobotMeta:
    """The description of the data set in a folder.

    Raises:
        DatasetError: for a folder that is damaged, or of a version that is not 2 or 3.
    """

    def __init__(self, root: Path) -> None:
        self.root, file = root, root / "meta" / "info.json"
        try:
            self.info: dict[str, Any] = json.loads(file.read_text())
            self.version, self.features = str(self.info["codebase_version"]), dict(self.info["features"])
            self.fps, self._data_path = float(self.info["fps"]), str(self.info["data_path"])
            self.num_episodes, self.num_rows = int(self.info["total_episodes"]), int(self.info["total_frames"])
            self.shapes = {name: tuple(map(int, of["shape"])) for name, of in self.features.items()}
        except FileNotFoundError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DatasetError(f"{file}: not the description of a LeRobot data set: {error!r}") from error
        if not self.version.startswith(("v2.", "v3.")):
            raise DatasetError(
                f"{file}: version {self.version} is not known here; LeRobot's own scripts convert it to v3.0"
            )

    @property
    def videos(self) -> list[str]:
        """The features that are videos."""
        return [name for name, feature in self.features.items() if feature["dtype"] == "video"]

    def episodes(self) -> Iterator[Episode]:
        """The episodes in the order of their numbers."""
        try:
            rows = self._rows_of_3() if self.version.startswith("v3.") else self._rows_of_2()
            for row in sorted(rows, key=lambda row: int(row["episode_index"])):
                yield self._episode(row)
        except (KeyError, ValueError, TypeError) as error:
            if isinstance(error, DatasetError):
                raise
            raise DatasetError(f"{self.root / 'meta'}: damaged list of episodes: {error!r}") from error

    def _rows_of_2(self) -> list[dict[str, Any]]:
        file = self.root / "meta" / "episodes.jsonl"
        with damage_named(file):
            return [json.loads(line) for line in file.read_text().splitlines() if line.strip()]

    def _rows_of_3(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for file in sorted((self.root / "meta" / "episodes").rglob("*.parquet")):
            with damage_named(file):
                # Statistics are most of such a file.
                names = [name for name in pq.read_schema(file).names if not name.startswith(("stats/", "tasks"))]
                rows += pq.read_table(file, columns=names).to_pylist()
        return rows

    def _episode(self, row: dict[str, Any]) -> Episode:
        index, length = int(row["episode_index"]), int(row["length"])
        places: dict[str, tuple[dict[str, int], float]] = {}
        if self.version.startswith("v3."):
            where = {"chunk_index": int(row["data/chunk_index"]), "file_index": int(row["data/file_index"])}
            for name in self.videos:
                place = {part: int(row[f"videos/{name}/{part}"]) for part in ("chunk_index", "file_index")}
                places[name] = (place, float(row[f"videos/{name}/from_timestamp"]))
        else:
            chunk = index // int(self.info["chunks_size"])
            where = {"episode_chunk": chunk, "episode_index": index}
            places = dict.fromkeys(self.videos, (where, 0.0))
        video_path = str(self.info.get("video_path"))
        videos = {
            name: (self._inside(video_path.format(video_key=name, **place)), start)
            for name, (place, start) in places.items()
        }
        return Episode(index, length, self._inside(self._data_path.format(**where)), videos)

    def _inside(self, path: str) -> Path:
        """A path of the description; DatasetError for one that leaves the folder."""
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise DatasetError(f"{self.root / 'meta'}: the path {path!r} leaves the data set's folder")
        return self.root / path


def column_of(feature: str) -> str:
    """The path of a feature's column: `observation.state` is `obs/state`, `next.reward` is `reward`."""
    if feature in COLUMNS:
        return COLUMNS[feature]
    first, *rest = feature.split(".")
    if first in ("observation", "action"):
        return "/".join(["obs" if first == "observation" else first, *rest])
    return feature


def feature_of(column: str) -> str:
    """The feature of a column's path; the inverse of `column_of`."""
    for feature, name in COLUMNS.items():
        if name == column:
            return feature
    first, *rest = column.split("/")
    return ".".join(["observation" if first == "obs" else first, *rest])
