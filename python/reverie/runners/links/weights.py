"""Channels for weights from a learner to actors and evaluator: published and pulled by version, never blocking.

An edition is `(generation, version)`: a restarted learner counts as newer than the one before it, although its version
may have gone back to that of its checkpoint.
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
    """Identifies weights; editions are ordered."""

    generation: int
    """How often the learner was restarted."""
    version: int


class Publisher(Protocol):
    """The learner's end."""

    def publish(self, weights: Weights) -> None:
        """Make these the newest. The array is not kept."""


class WeightsChannel(Protocol):
    """A channel for weights. Can be pickled; each end is made in the process that uses it."""

    def publisher(self, generation: int) -> Publisher:
        """The learner's end; `generation` is how often it was restarted."""

    def source(self) -> Subscription:
        """The actor's end."""


Look = Callable[[Edition | None], tuple[Edition, NDArray[np.float32]] | None]
"""Returns the newest weights, or None if they are the known edition or there are none. Does not block."""


class Subscription:
    """A `WeightSource`, from which an actor pulls weights. Not thread-safe."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._newest: tuple[Edition, NDArray[np.float32]] | None = None
        self.given = Edition(-1, -1)
        """Edition of the weights that were returned last."""

    @property
    def ready(self) -> bool:
        """True once any weights were published."""
        self._refresh()
        return self._newest is not None

    def latest(self, newer_than: int) -> Weights | None:
        """The newest weights, or None if there are none newer than version `newer_than`. Does not block.

        Weights of a restarted learner are newer than all that the one before it published.
        """
        self._refresh()
        if self._newest is None:
            return None
        edition, flat = self._newest
        if edition.generation == self.given.generation and edition.version <= newer_than:
            return None
        self.given = edition
        # A copy: the array may be shared and read-only, and the receiver of weights owns them.
        return Weights(edition.version, flat.copy())

    def _refresh(self) -> None:
        newer = self._look(None if self._newest is None else self._newest[0])
        if newer is not None:
            self._newest = newer


@dataclass(frozen=True)
class WeightsFile:
    """Weights in one small file, which is replaced atomically: a reader sees one edition, never parts of two.

    There is no lock, so that no process waits for one that was killed. In `/dev/shm` the file is in memory.
    """

    path: Path

    def publisher(self, generation: int) -> Publisher:
        """The learner's end."""
        return _FilePublisher(self.path, generation)

    def source(self) -> Subscription:
        """The actor's end."""
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
        except OSError as error:  # the error of the file system does not name the file
            raise OSError(error.errno, error.strerror, str(self._draft)) from error
        os.replace(self._draft, self._path)


class NewestWeights:
    """Keeps a reference to the newest weights: one object of the store per edition, of which it holds the last."""

    def __init__(self) -> None:
        self._edition = Edition(-1, -1)
        self._where: list[Any] = []

    def publish(self, edition: Edition, where: list[Any]) -> None:
        """Make these the newest. Older editions, such as those of a learner that was replaced, are ignored."""
        if edition > self._edition:
            self._edition, self._where = Edition(*edition), where

    def newest(self, known: Edition | None) -> tuple[Edition, list[Any]] | None:
        """The newest edition and its reference, or None if it is `known` or there is none."""
        return None if self._where == [] or self._edition == known else (self._edition, self._where)
