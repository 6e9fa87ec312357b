"""Patterns over any steps: the items that a `StructuredWriter` would insert, without a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self, final

import numpy as np

from reverie import _native
from reverie._tensorflow import replaces_dm_reverb
from reverie.datasets.chain import Dataset, _call
from reverie.structured.configs import Config, for_engine, inferred, one_structure
from reverie.types import ReplaySample, SampleInfo

__all__ = ["PatternDataset", "pattern_dataset_with_info"]


@final
class PatternDataset(Dataset):
    """The trajectories that configs make from a stream of steps, as a `StructuredWriter` does (for offline data).

    Tables and priorities of the configs are ignored. Elements are nests of arrays that own their bytes, in the order in
    which a writer would insert them; see `Dataset` for the chain of transformations.

    Args:
        input_dataset: an iterable of whole steps, which are nests of arrays with one structure; it may be a
            `tf.data.Dataset`. Each iterator of this dataset iterates over it again; an iterator or a generator can be
            used once.
        configs: from `reverie.structured.create_config`, with patterns of one structure.
        respect_episode_boundaries: True makes no trajectory that crosses the end of an episode.
        is_end_of_episode: a function of a step that returns True for the last step of an episode. It gets a plain tuple
            as separate arguments. Configs with `Condition.is_end_episode()` apply at this step.

    Raises:
        ValueError: for no configs, patterns of different structures, or (where `input_dataset` has an `element_spec`)
            columns that differ in dtype or shape.
    """

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """A dataset; a `tf.data.Dataset` where this package replaces dm-reverb in a program that uses TensorFlow."""
        self = super().__new__(cls)
        if not replaces_dm_reverb():
            return self
        from reverie.adapters import tensorflow

        self.__init__(*arguments, **options)
        if not tensorflow.is_tracing():
            return self.as_tf()  # type: ignore[no-any-return]
        theirs = tensorflow.expanded(self._input, self._of, self.element_spec)
        return theirs  # type: ignore[no-any-return]

    def __init__(
        self,
        input_dataset: Iterable[Any],
        configs: Sequence[Config],
        respect_episode_boundaries: bool,
        is_end_of_episode: Callable[..., bool],
    ) -> None:
        paths, given = for_engine(configs, priorities=False)
        one_structure(configs)
        step_spec = getattr(input_dataset, "element_spec", None)
        spec = None if step_spec is None else inferred(configs, step_spec)
        used_up = False

        def make() -> Iterator[Any]:
            nonlocal used_up
            steps = iter(input_dataset)
            if steps is input_dataset and used_up:
                raise ValueError(
                    "input_dataset is an iterator that was already used; pass an iterable that can be iterated again, "
                    "such as a list or a Dataset"
                )
            used_up = True
            return self._of(steps)

        self._input = input_dataset
        self._of: Callable[[Iterator[Any]], Iterator[Any]] = lambda steps: _trajectories(
            steps, _native.Patterns(paths, given), respect_episode_boundaries, is_end_of_episode
        )
        super().__init__(make, spec)


def _trajectories(
    steps: Iterator[Any], patterns: _native.Patterns, clear: bool, is_end: Callable[..., bool]
) -> Iterator[Any]:
    for step in steps:
        yield from patterns.append(step)
        end = _call(is_end, step)
        if not isinstance(end, bool) and (np.shape(end) != () or np.asarray(end).dtype != np.bool_):
            raise TypeError(f"is_end_of_episode must return one bool, got {end!r}")
        if end:
            yield from patterns.end_episode(clear)


def pattern_dataset_with_info(
    input_dataset: Iterable[Any],
    configs: Sequence[Config],
    respect_episode_boundaries: bool,
    is_end_of_episode: Callable[..., bool],
) -> Dataset:
    """A `PatternDataset` of `ReplaySample`s whose info is all zeros, for code that expects samples of a table."""
    trajectories = PatternDataset(input_dataset, configs, respect_episode_boundaries, is_end_of_episode)
    if replaces_dm_reverb():
        theirs: Any = trajectories
        made: Dataset = theirs.map(lambda *data: ReplaySample(SampleInfo.zeros(), data if len(data) > 1 else data[0]))
        return made
    return Dataset(lambda: (ReplaySample(SampleInfo.zeros(), data) for data in trajectories))
