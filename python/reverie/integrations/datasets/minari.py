"""Minari's data sets: local folders, read and written through the minari package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt

try:
    import gymnasium
    import minari
    from minari.data_collector import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage
except ImportError as error:
    raise ImportError('Minari is missing: pip install "reverie[minari]"') from error

from reverie import _native
from reverie.integrations.datasets.drafts import draft_of, publish
from reverie.integrations.datasets.sources import (
    DatasetError,
    DatasetSource,
    RowBlock,
    chosen,
    mismatch,
    nest_of,
    shape_of,
)
from reverie.specs import TensorSpec

__all__ = ["MinariSource", "MinariWriter"]

#: Rows of a block at most.
ROWS = 4096
#: A step's columns, and what Minari calls them; `obs` has one row more than the others.
NAMES = {
    "obs": "observations",
    "action": "actions",
    "reward": "rewards",
    "terminated": "terminations",
    "truncated": "truncations",
}


class MinariSource(DatasetSource):
    """The steps of a Minari data set: `obs`, `action`, `reward`, `terminated`, `truncated`.

    Every episode has one more row, with its last observation and zeros. Images that Minari stored as JPEG are decoded.
    One episode at a time is in memory. Infos and seeds are not read.

    Args:
        path: the folder of the data set, or its `data` folder.
        columns: the columns to read; None means all.

    Raises:
        DatasetError: for a folder that is damaged, or spaces that no array can hold.
        ImportError: for HDF5 or Arrow files without h5py or pyarrow.
    """

    format = "minari"
    layout = "steps"

    def __init__(self, path: str | Path, *, columns: Sequence[str] | None = None) -> None:
        self.path = folder_of(Path(path))
        try:
            self._dataset = minari.MinariDataset(self.path)
        except (OSError, ValueError, KeyError, AssertionError) as error:
            raise DatasetError(f"{self.path}: not a readable Minari data set: {error}") from error
        self.num_episodes = int(self._dataset.total_episodes)
        self.num_rows = int(self._dataset.total_steps) + self.num_episodes
        first = next(self._episodes(), None)
        if first is None:
            raise DatasetError(f"{self.path}: a data set without episodes")
        leaves, structure = _native.flatten(first)
        self._kept = chosen(structure.paths, columns, self.path)
        kept = [leaves[index] for index in self._kept]
        if columns is None:
            self.structure = structure
        else:
            _, self.structure = _native.flatten(nest_of({structure.paths[index]: None for index in self._kept}))
        self.specs = [TensorSpec(leaf.shape[1:], leaf.dtype) for leaf in kept]

    @property
    def details(self) -> dict[str, str | int | float]:
        """The data set's id, and the environment's."""
        found: dict[str, str | int | float] = {"id": str(self._dataset.id)}
        return found if self._dataset.spec.env_spec is None else {**found, "env": self._dataset.spec.env_spec.id}

    def blocks(self) -> Iterator[RowBlock]:
        """The rows; a block has rows of one episode."""
        for number, episode in enumerate(self._episodes()):
            leaves, _ = _native.flatten(episode)
            columns = [leaves[index] for index in self._kept]
            for path, spec, column in zip(self.structure.paths, self.specs, columns, strict=True):
                if (found := mismatch(column, spec)) is not None:
                    raise DatasetError(f"{self.path}, episode {number}: column '{path}' is {found}")
            for start in range(0, len(columns[0]), ROWS):
                rows = [column[start : start + ROWS] for column in columns]
                yield RowBlock(rows, np.full(len(rows[0]), number, np.int64))

    def _episodes(self) -> Iterator[dict[str, Any]]:
        """Each episode as a nest of arrays of one length."""
        try:
            for episode in self._dataset.iterate_episodes():
                yield {name: self._column(episode, name) for name in NAMES}
        except (OSError, KeyError, AssertionError) as error:
            raise DatasetError(f"{self.path}: damaged: {error}") from error

    def _column(self, episode: Any, name: str) -> Any:
        leaves, structure = _native.flatten(_arrays(getattr(episode, NAMES[name]), f"{self.path}: {NAMES[name]}"))
        rows = len(episode.rewards) + 1
        padded = [leaf if len(leaf) == rows else _with_zeros(leaf) for leaf in leaves]
        for leaf, path in zip(padded, structure.paths, strict=True):
            if len(leaf) != rows:
                where = f"{self.path}, episode {episode.id}"
                raise DatasetError(f"{where}: '{name}/{path}' has {len(leaf)} rows, the rewards {rows - 1}")
        return structure.unflatten(padded)


class MinariWriter:
    """Writes episodes as a Minari data set.

    Args:
        path: the folder, which must not exist; its last two parts are the data set's name and version, as
            `cartpole/random-v0`.
        like: a nest of a row, with `obs`, `action`, `reward`, `terminated` and `truncated`.
        specs: the dtype and shape of each column, in flattening order.
        environment: the environment's id, whose spaces and specification are stored; None stores spaces of the dtypes.
        data_format: "hdf5", "arrow" or "parquet".

    Raises:
        DatasetError: for columns that Minari does not have.
        FileExistsError.
    """

    def __init__(
        self,
        path: Path,
        like: Any,
        specs: Sequence[TensorSpec],
        *,
        environment: str | None = None,
        data_format: str = "hdf5",
    ) -> None:
        if path.exists():
            raise FileExistsError(17, "exists already; name another folder", str(path))
        if not isinstance(like, dict) or set(like) != set(NAMES):
            got = sorted(like) if isinstance(like, dict) else f"a {type(like).__name__}"
            raise DatasetError(
                f"Minari needs the columns {', '.join(NAMES)}; the table has {got}: choose with columns="
            )
        _, structure = _native.flatten(like)
        by_name = structure.unflatten(list(specs))
        spaces = {name: _space(by_name[name], name) for name in ("obs", "action")}
        spec = None
        if environment is not None:
            try:
                env = gymnasium.make(environment)
            except gymnasium.error.Error as error:
                raise DatasetError(f"environment {environment!r} cannot be made: {error}") from error
            spec, spaces = env.spec, {"obs": env.observation_space, "action": env.action_space}
            env.close()
        # Minari joins a relative folder to itself when it adds episodes.
        self._path, self._partial = path, draft_of(path)
        (self._partial / "data").mkdir(parents=True)
        self._storage = MinariStorage.new(
            self._partial / "data", spaces["obs"], spaces["action"], spec, data_format, jpeg_encoding=False
        )
        self._structure = structure
        #: Episodes that wait to be written together: each call rewrites the metadata.
        self._waiting: list[EpisodeBuffer] = []
        self._waiting_bytes = 0

    def write_episode(self, columns: Sequence[npt.NDArray[Any]]) -> None:
        """Appends an episode of T steps: columns `[T + 1, ...]`, the last row with the last observation.

        Raises:
            DatasetError: for an episode without a last observation, or with steps after an end.
        """
        episode = self._structure.unflatten(list(columns))
        ends = np.asarray(episode["terminated"]) | np.asarray(episode["truncated"])
        if len(ends) < 2 or not ends[-2] or ends[:-2].any() or ends[-1]:
            raise DatasetError(
                "Minari needs episodes whose last step but one is terminated or truncated, and whose last step has the"
                " last observation and zeros; append that step before end_episode"
            )
        parts = {field: _without_last(episode[name]) for name, field in NAMES.items() if name != "obs"}
        self._waiting.append(EpisodeBuffer(observations=episode["obs"], **parts))
        self._waiting_bytes += sum(column.nbytes for column in columns)
        if self._waiting_bytes > 32 << 20:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._storage.update_episodes(self._waiting)
        self._waiting, self._waiting_bytes = [], 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import shutil

        try:
            if kind is None:
                self._flush()
                name = self._path.name if "-v" in self._path.name else f"{self._path.name}-v0"
                about = {"dataset_id": f"{self._path.parent.name}/{name}" if self._path.parent.name else name}
                self._storage.update_metadata({**about, "minari_version": minari.__version__})
                publish(self._partial, self._path)
        finally:
            shutil.rmtree(self._partial, ignore_errors=True)


def folder_of(path: Path) -> Path:
    """The folder with the metadata: the path itself, or its folder `data`.

    Raises:
        FileNotFoundError, and DatasetError for another folder.
    """
    for folder in (path, path / "data"):
        if (folder / "metadata.json").is_file():
            return folder
    path.stat()
    raise DatasetError(f"{path}: not a Minari data set: there is no metadata.json in it")


def _arrays(nest: Any, where: str) -> Any:
    """The nest with arrays as leaves; lists are leaves of text in Minari."""
    if isinstance(nest, dict):
        return {key: _arrays(value, f"{where}/{key}") for key, value in nest.items()}
    if isinstance(nest, tuple):
        return tuple(_arrays(value, f"{where}/{index}") for index, value in enumerate(nest))
    array = np.asarray(nest)
    if array.dtype.kind not in "biufcU":
        raise DatasetError(f"{where}: holds {array.dtype}, which no column can hold; leave it out with columns=")
    return array


def _with_zeros(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.concatenate([column, np.zeros_like(column[:1])])


def _without_last(nest: Any) -> Any:
    leaves, structure = _native.flatten(nest)
    return structure.unflatten([leaf[:-1] for leaf in leaves])


def _space(nest: Any, path: str) -> gymnasium.Space[Any]:
    """A space that holds every value of these dtypes and shapes."""
    if isinstance(nest, dict):
        return gymnasium.spaces.Dict({key: _space(value, f"{path}/{key}") for key, value in nest.items()})
    if type(nest) is tuple:
        return gymnasium.spaces.Tuple([_space(value, f"{path}/{index}") for index, value in enumerate(nest)])
    if not isinstance(nest, TensorSpec) or nest.dtype.kind not in "biuf":
        what = nest.dtype if isinstance(nest, TensorSpec) else f"a {type(nest).__name__}"
        raise DatasetError(f"column '{path}' is {what}, and Minari has no space for it; choose with columns=")
    low: Any = -np.inf
    high: Any = np.inf
    if nest.dtype.kind != "f":
        low, high = (0, 1) if nest.dtype.kind == "b" else (np.iinfo(nest.dtype).min, np.iinfo(nest.dtype).max)
    return gymnasium.spaces.Box(low, high, shape_of(nest), cast("Any", nest.dtype.type))
