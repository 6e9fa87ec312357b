"""LeRobot's data sets of versions 2 and 3: local folders of Parquet files and videos."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from reverie import _native
from reverie.integrations.datasets import arrow_columns, videos
from reverie.integrations.datasets.lerobot_meta import COUNTERS, Episode, LeRobotMeta, column_of
from reverie.integrations.datasets.parquet import BLOCK_BYTES, READ_BYTES, batches_of, damage_named
from reverie.integrations.datasets.sources import DatasetError, DatasetSource, RowBlock, chosen, mismatch, nest_of
from reverie.specs import TensorSpec

__all__ = ["LeRobotSource"]


class LeRobotSource(DatasetSource):
    """The frames of a LeRobot data set as steps.

    `observation.state` is the column `obs/state`, `action` is `action`, `next.reward` is `reward`, `next.done` is
    `terminated` and `next.truncated` is `truncated`; other features keep their names. Numbers that only count rows
    (`index`, `episode_index`, `frame_index`) are left out. A feature of shape `[1]` is one number. Videos and images
    are uint8, in the shape that `meta/info.json` has; videos are decoded by PyAV, one frame at a time.

    Args:
        path: the folder of the data set.
        columns: the columns to read, by their names here; None means all. Videos that are left out are not decoded.
        rename: other names, by the names of the features; a "/" makes a nest.

    Raises:
        DatasetError: for a folder that is damaged, or features that no array can hold.
        ImportError: PyAV is missing, and a video is to be read.
    """

    format = "lerobot"
    layout = "steps"

    def __init__(
        self, path: str | Path, *, columns: Sequence[str] | None = None, rename: Mapping[str, str] | None = None
    ) -> None:
        self.path = Path(path)
        self.meta = LeRobotMeta(self.path)
        self.num_episodes, self.num_rows = self.meta.num_episodes, self.meta.num_rows
        rename = dict(rename or {})
        for feature in rename:
            if feature not in self.meta.features:
                have = ", ".join(self.meta.features)
                raise DatasetError(f"{self.path}: there is no feature '{feature}'; there is {have}")
        features = [name for name in self.meta.features if name in rename or name not in COUNTERS]
        names = {rename.get(feature, column_of(feature)): feature for feature in features}
        if len(names) < len(features):
            raise DatasetError(f"{self.path}: two of the features {', '.join(features)} have one name: rename one")
        kept = [list(names)[index] for index in chosen(list(names), columns, self.path)]
        _, self.structure = _native.flatten(nest_of(dict.fromkeys(kept)))
        self._features = [names[path] for path in self.structure.paths]
        self._videos = [feature for feature in self._features if feature in self.meta.videos]
        for path, feature in zip(self.structure.paths, self._features, strict=True):
            self._refuse(path, feature)
        self._episodes = list(self.meta.episodes())
        if not self._episodes:
            raise DatasetError(f"{self.path}: a data set without episodes")
        self._columns = self._readers(self._episodes[0].data)
        self.specs = [
            TensorSpec(self.meta.shapes[feature], np.uint8)
            if self.meta.features[feature]["dtype"] in ("video", "image")
            else self._columns[feature].spec
            for feature in self._features
        ]

    @property
    def details(self) -> dict[str, str | int | float]:
        """The version, the frames in a second, the numbers of tasks and videos, and the robot."""
        info = self.meta.info
        found = {"version": self.meta.version, "fps": self.meta.fps, "videos": len(self.meta.videos)}
        more = {"tasks": info.get("total_tasks"), "robot": info.get("robot_type")}
        return {**found, **{name: value for name, value in more.items() if value is not None}}

    def _refuse(self, path: str, feature: str) -> None:
        about = self.meta.features[feature]
        shape = self.meta.shapes[feature]
        info = {**(about.get("info") or {}), **(about.get("video_info") or {})}
        if info.get("is_depth_map") or info.get("video.is_depth_map"):
            raise DatasetError(f"{self.path}: column '{path}' is a depth map; leave it out with columns=")
        if about["dtype"] in ("video", "image") and (len(shape) != 3 or 3 not in (shape[0], shape[-1])):
            raise DatasetError(f"{self.path}: column '{path}' has images of shape {list(shape)}, not of 3 channels")
        if about["dtype"] == "video":
            videos.require(path)

    def _readers(self, file: Path) -> dict[str, arrow_columns.FileColumn]:
        """The columns of the Parquet files, by their features."""
        names = [feature for feature in self._features if feature not in self._videos]
        with damage_named(file), pq.ParquetFile(file) as opened:
            schema = opened.schema_arrow
            missing = [name for name in [*names, "episode_index", "timestamp"] if name not in schema.names]
            if missing:
                raise DatasetError(f"{file}: there is no column '{missing[0]}', which meta/info.json names")
            first = next(iter(opened.iter_batches(1, columns=[*names, "episode_index"])))
        return {
            name: arrow_columns.written_by_reverie(schema.field(name))
            or arrow_columns.inferred(schema.field(name), first.column(name), str(file))
            for name in names
        }

    def blocks(self) -> Iterator[RowBlock]:
        """The rows; a block has at most 4 MiB of arrays, or one row, and rows of one episode."""
        size = self.row_bytes
        rows = max(1, min(4096, BLOCK_BYTES // max(size, 1))) if size is not None else 512
        names = [*self._columns, "episode_index", "timestamp"]
        episodes = {episode.index: episode for episode in self._episodes}
        read = dict.fromkeys(episodes, 0)
        open_videos: dict[str, videos.VideoReader] = {}
        try:
            for file in dict.fromkeys(episode.data for episode in self._episodes):
                with damage_named(file), pq.ParquetFile(file, buffer_size=READ_BYTES) as opened:
                    for batch in batches_of(opened, rows, names):
                        for part, index in _parts(batch):
                            if index not in episodes or episodes[index].data != file:
                                raise DatasetError(f"{file}: it has rows of episode {index}, which is not described")
                            columns = self._rows(part, episodes[index], read[index] == 0, open_videos)
                            read[index] += part.num_rows
                            yield RowBlock(columns, np.full(part.num_rows, index, np.int64))
        finally:
            for video in open_videos.values():
                video.close()
        short = next((episode for episode in self._episodes if read[episode.index] != episode.length), None)
        if short is not None:
            got = f"{read[short.index]} rows, and its description {short.length}"
            raise DatasetError(f"{short.data}: episode {short.index} has {got}")

    def _rows(
        self, part: Any, episode: Episode, is_first: bool, open_videos: dict[str, videos.VideoReader]
    ) -> list[npt.NDArray[Any]]:
        """The columns of rows of one episode."""
        columns = []
        for feature, spec in zip(self._features, self.specs, strict=True):
            if feature in self._videos:
                seconds = part.column("timestamp").to_numpy().astype(np.float64)
                video = self._video(feature, episode, float(seconds[0]), is_first, open_videos)
                start = episode.videos[feature][1]
                column = np.stack([video.frame(start + second) for second in seconds])
            else:
                column = self._columns[feature].read(part.column(feature))
            if self.meta.features[feature]["dtype"] in ("video", "image"):
                column = self._in_shape(column, spec, feature, episode)
            if (found := mismatch(column, spec)) is not None:
                raise DatasetError(f"{self.path}, episode {episode.index}: '{feature}' is {found}")
            columns.append(column)
        return columns

    def _video(
        self,
        feature: str,
        episode: Episode,
        second: float,
        is_first: bool,
        open_videos: dict[str, videos.VideoReader],
    ) -> videos.VideoReader:
        path, start = episode.videos[feature]
        video = open_videos.get(feature)
        if video is None or video.path != path:
            if video is not None:
                video.close()
            video = open_videos[feature] = videos.VideoReader(path, 0.5 / self.meta.fps)
        if is_first:
            video.begin(start + second)
        return video

    def _in_shape(self, images: npt.NDArray[Any], spec: TensorSpec, feature: str, episode: Episode) -> npt.NDArray[Any]:
        """Images `[N, height, width, 3]` in the shape that the description has."""
        if images.shape[1:] == spec.shape:
            return images
        turned = images.transpose(0, 3, 1, 2) if images.ndim == 4 else images
        if turned.shape[1:] != spec.shape:
            got, want = list(images.shape[1:]), list(spec.shape)
            raise DatasetError(f"{self.path}, episode {episode.index}: '{feature}' has images {got}, described {want}")
        return turned


def _parts(batch: Any) -> Iterator[tuple[Any, int]]:
    """The parts of a batch that belong to one episode each, with its number."""
    numbers = batch.column("episode_index").to_numpy()
    borders = np.flatnonzero(np.diff(numbers)) + 1
    for start, stop in zip([0, *borders], [*borders, len(numbers)], strict=True):
        if stop > start:
            yield batch.slice(start, stop - start), int(numbers[start])
