"""How weights travel from a learner to whoever acts: published by version, pulled by version, never waited for.

An edition is `(generation, version)`: a learner that was started again counts as newer than the one before it, though
its version may have gone back to that of its checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from reverie.agents.core import Weights

_HEADER_BYTES = 16


class Edition(NamedTuple):
    """Which weights."""

    generation: int
    """How often the learner was started again."""
    version: int


class Publisher(Protocol):
    """The learner's end."""

    def publish(self, weights: Weights) -> None:
        """Make these the newest. The array is not kept."""


class WeightsChannel(Protocol):
    """A way for weights to travel; it can be pickled, and each end is made where it is used."""

    def publisher(self, generation: int) -> Publisher:
        """The learner's end, for a learner that was started again so often."""

    def source(self) -> Subscription:
        """The end of one who acts."""


Look = Callable[[Edition | None], tuple[Edition, NDArray[np.float32]] | None]
"""The newest weights, or None where they are the edition that is known, or none are there. Does not block."""


class Subscription:
    """A `WeightSource`: what an actor pulls from. Not for several threads at once."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._newest: tuple[Edition, NDArray[np.float32]] | None = None
        self.given = Edition(-1, -1)
        """Of the weights that were given out last."""

    @property
    def ready(self) -> bool:
        """True once any weights were published."""
        self._refresh()
        return self._newest is not None

    def latest(self, newer_than: int) -> Weights | None:
        """The newest weights, or None when there are none newer than version `newer_than`. Does not block.

        Those of a learner that was started again are newer than all that the one before it published.
        """
        self._refresh()
        if self._newest is None:
            return None
        edition, flat = self._newest
        if edition.generation == self.given.generation and edition.version <= newer_than:
            return None
        self.given = edition
        # A copy: what came may be shared and read-only, and whoever receives weights owns them.
        return Weights(edition.version, flat.copy())

    def _refresh(self) -> None:
        newer = self._look(None if self._newest is None else self._newest[0])
        if newer is not None:
            self._newest = newer


@dataclass(frozen=True)
class WeightsFile:
    """Through one small file, which is replaced as a whole: a reader sees one edition or the next, never parts of two.

    No lock is held by anybody, so that nobody waits for one who was killed. In `/dev/shm` it is memory.
    """

    path: Path

    def publisher(self, generation: int) -> Publisher:
        """The learner's end."""
        return _FilePublisher(self.path, generation)

    def source(self) -> Subscription:
        """The end of one who acts."""
        return Subscription(self._read)

    def _read(self, known: Edition | None) -> tuple[Edition, NDArray[np.float32]] | None:
        try:
            file = self.path.open("rb", buffering=0)
        except FileNotFoundError:
            return None
        with file:
            edition = Edition(*np.frombuffer(file.read(_HEADER_BYTES), np.int64).tolist())
            if edition == known:
                return None
            return edition, np.frombuffer(file.readall(), np.float32)


class _FilePublisher:
    def __init__(self, path: Path, generation: int) -> None:
        self._path, self._generation = path, generation
        self._draft = path.with_name(f"{path.name}.{generation}")

    def publish(self, weights: Weights) -> None:
        header = np.array([self._generation, weights.version], np.int64)
        try:
            with self._draft.open("wb") as file:
                file.write(header.tobytes() + np.ascontiguousarray(weights.flat, np.float32).tobytes())
        except OSError as error:  # the file system says what is wrong, and not where
            raise OSError(error.errno, error.strerror, str(self._draft)) from error
        os.replace(self._draft, self._path)


class NewestWeights:
    """Knows where the newest weights are: one object of the store for each edition, of which it keeps the last."""

    def __init__(self) -> None:
        self._edition = Edition(-1, -1)
        self._where: list[Any] = []

    def publish(self, edition: Edition, where: list[Any]) -> None:
        """Make these the newest; those of a learner that was replaced are not."""
        if edition > self._edition:
            self._edition, self._where = Edition(*edition), where

    def newest(self, known: Edition | None) -> tuple[Edition, list[Any]] | None:
        """Where the newest are, or None where they are known."""
        return None if self._where == [] or self._edition == known else (self._edition, self._where)
