"""The draws of `reverie search`: no trial has the settings of an earlier one, whichever sampler draws."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from typing import Any

from optuna.samplers import BaseSampler

from reverie.cli import search_space
from reverie.cli.search_space import Space

MOST_DRAWS = 20
"""The draws of a sampler for one trial; after these, the trial has untried settings at random."""

Tried = Mapping[tuple[float, ...], int]
"""The number of the trial that tried each combination."""


class DistinctSampler(BaseSampler):  # type: ignore[misc]
    """Draws all settings of a trial together, with `base`, until they are others than those of earlier trials.

    Without `base`, the combinations of a finite space are drawn in a random order, which depends on the seed alone; so
    a resumed search continues it. Optuna's `GridSampler` and `BruteForceSampler` are not used: both end
    `Study.optimize`, which makes `Study.tell` raise, and both count an interrupted trial as tried.
    """

    def __init__(self, space: Space, tried: Callable[[], Tried], base: Any, name: str, seed: int) -> None:
        self._space = space
        self._distributions = {name: part.distribution() for name, part in space.items()}
        self._size = search_space.size(space)
        self._tried = tried
        """Reads all trials: the study that Optuna passes to a sampler has only those of one bracket of Hyperband."""
        self._base = base
        self._name = name
        self._seed = seed

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
        """The settings to draw together: all, but for an interrupted trial, which keeps its own."""
        return {} if "folder" in trial.user_attrs else self._distributions

    def sample_relative(self, study: Any, trial: Any, search_space: dict[str, Any]) -> dict[str, Any]:
        """The settings of a trial."""
        if not search_space:
            return {}
        tried = self._tried()
        if self._base is None:
            return self._untried(tried)
        params = self._draw(study, trial)
        earlier = tried.get(self._key(params))
        for _ in range(MOST_DRAWS - 1):
            if self._key(params) not in tried:
                break
            params = self._draw(study, trial)
        if self._key(params) in tried:
            params = self._untried(tried) or params
        if earlier is not None:
            print(
                f"reverie: {self._name} drew the settings of trial {earlier} again, which are not trained twice: trial"
                f" {trial.number} has others",
                file=sys.stderr,
                flush=True,
            )
        return params

    def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
        """A setting that an enqueued trial lacks."""
        if self._base is None:
            return self._space[param_name].value(0)
        return self._base.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Any, trial: Any) -> None:
        """Pass the call on."""
        if self._base is not None:
            self._base.before_trial(study, trial)

    def after_trial(self, study: Any, trial: Any, state: Any, values: Any) -> None:
        """Pass the call on."""
        if self._base is not None:
            self._base.after_trial(study, trial, state, values)

    def _draw(self, study: Any, trial: Any) -> dict[str, Any]:
        return {
            name: self._space[name].value(0)
            if distribution.single()
            else self._base.sample_independent(study, trial, name, distribution)
            for name, distribution in self._distributions.items()
        }

    def _key(self, params: Mapping[str, Any]) -> tuple[float, ...]:
        return search_space.key(self._space, params)

    def _untried(self, tried: Tried) -> dict[str, Any]:
        """The first combination of the seed's order that is not tried; empty where there is none, or no order."""
        if self._size is None or len(tried) >= self._size:
            return {}
        order = random.Random(self._seed)
        while True:  # without a list of all combinations, of which a space of integers may have 10^12
            params = search_space.combination(self._space, order.randrange(self._size))
            if self._key(params) not in tried:
                return params
