"""Frames of a video file, one after another, through PyAV."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reverie.integrations.datasets.sources import DatasetError

__all__ = ["VideoReader", "require"]


def require(column: str) -> None:
    """Raises ImportError where PyAV is missing; `column` is the video's, for the text."""
    try:
        import av  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"column '{column}' is a video, and PyAV is missing: pip install \"reverie[lerobot]\", or leave the column"
            " out with columns="
        ) from error


class VideoReader:
    """Reads the frames of a video at given seconds, which grow from call to call. One frame is in memory.

    Args:
        path: the file.
        tolerance: the largest distance of a frame from the second that is asked for.

    Raises:
        DatasetError: for a file that is damaged or has no video.
    """

    def __init__(self, path: Path, tolerance: float) -> None:
        import av

        self.path, self._tolerance = path, tolerance
        self._error: type[Exception] = av.FFmpegError
        try:
            self._container: Any = av.open(str(path))
            self._stream = self._container.streams.video[0]
        except (av.FFmpegError, OSError, IndexError) as error:
            raise DatasetError(f"{path}: not a readable video: {error}") from error
        self._stream.thread_type = "AUTO"
        self._frames = self._decoded()
        self._passed = -1.0

    def _decoded(self) -> Iterator[tuple[float, Any]]:
        try:
            for frame in self._container.decode(self._stream):
                yield float(frame.pts * self._stream.time_base), frame
        except self._error as error:
            raise DatasetError(f"{self.path}: damaged video: {error}") from error

    def begin(self, second: float) -> None:
        """Goes to the last key frame before a second, where that is behind the reader or far ahead of it."""
        if second < self._passed - self._tolerance or second > self._passed + 10.0:
            self._container.seek(int(max(0.0, second) / self._stream.time_base), stream=self._stream)
            self._frames = self._decoded()
            self._passed = -1.0

    def frame(self, second: float) -> npt.NDArray[np.uint8]:
        """The frame at a second, uint8 `[height, width, 3]`.

        Raises:
            DatasetError: the video has no frame there.
        """
        for at, frame in self._frames:
            self._passed = at
            if at >= second - self._tolerance:
                if at > second + self._tolerance:
                    break
                pixels: npt.NDArray[np.uint8] = frame.to_ndarray(format="rgb24")
                return pixels
        raise DatasetError(f"{self.path}: there is no frame at {second:.3f} s (within {self._tolerance:.3f} s)")

    def close(self) -> None:
        """Closes the file. Idempotent."""
        self._container.close()
