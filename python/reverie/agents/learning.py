"""The base class of learners, and functions for updates."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reverie._late_types import late
from reverie.agents.core import CompileNote, CompilePlan, Stopwatch, Weights
from reverie.agents.draws import QueueDraws, TableDraws
from reverie.agents.flat import FlatNetwork, load_networks
from reverie.agents.inputs import Statistics
from reverie.agents.named_parameters import Named, parameters_of
from reverie.agents.optimizers import Optimizer, load_optimizer, optimizer_state
from reverie.agents.outcomes import DivergedError, UpdateOutcome
from reverie.agents.random_layers import RandomDraw, random_numbers
from reverie.agents.rates import rates_by_setting
from reverie.agents.recording import UpdateRecorder
from reverie.agents.replay import TABLE, MaybePrioritizedSettings, PrioritizedSettings
from reverie.agents.tracing import Result
from reverie.errors import DeadlineExceededError, ReplayError, UnauthenticatedError, UnavailableError
from reverie.types import Batch

if TYPE_CHECKING:
    from reverie.agents.compiling import UpdateCompiler
else:
    UpdateCompiler = late("reverie.agents.compiling", "UpdateCompiler")

Update = Callable[[dict[str, Tensor]], dict[str, float | Tensor]]
"""Takes a batch, steps the optimisers; returns figures by name."""
PrioritizedUpdate = Callable[[dict[str, Tensor], Tensor], tuple[Tensor, dict[str, float | Tensor]]]
"""Takes a batch and weights `[B]` for its losses, steps the optimisers; returns new priorities `[B]`, and figures."""
MaybePrioritizedUpdate = Callable[[dict[str, Tensor], Tensor | None], tuple[Tensor, dict[str, float | Tensor]]]
"""Like `PrioritizedUpdate`; the weights are None if items were not drawn by priority."""
WEIGHTS = "importance weights"
"""The name of these weights among the columns of an update."""


class NetworkLearner(ABC):
    """Base of all learners: networks and optimisers by name, counters, and the weights for actors."""

    ACTING: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """The networks whose parameters `_acting` joins, in its order, each with the names of its targets."""
    RATES: ClassVar[Mapping[str, str]] = {}
    """Names of the settings of learning rates, by optimiser, where they are not those of `rates_by_setting`."""

    def __init__(
        self, client: Any, *, watch: Stopwatch, draws: TableDraws | None = None, queue: QueueDraws | None = None
    ) -> None:
        """`draws` is set for a learner that draws from a replay table, `queue` for one that draws from a queue."""
        self.version = 0
        self._client, self._watch, self._draws, self._queue = client, watch, draws, queue
        self._networks: dict[str, FlatNetwork[Any]] = {}
        self._fixed: tuple[str, ...] = ()
        """Networks that are not learnt: they have the values of the settings, also after `warm_start`."""
        self._optimizers: dict[str, Optimizer] = {}
        self._generator: torch.Generator | None = None
        """The random state of a subclass's updates, if they draw random numbers."""
        self._noise: RandomDraw | None = None
        """The result of `_random` while an update is traced."""
        self._compiler: UpdateCompiler | UpdateRecorder | None = None
        self._steps_of_update = 1
        """Gradient steps of an update that may be compiled, by which a plan counts."""
        self._settles_later = False
        """Whether an update's outcome is settled while the device makes the next one."""
        self._open: UpdateOutcome | None = None
        """The outcome of the last update, if it is still to be settled."""
        self._counts: dict[str, int] = {}
        self._last: dict[str, float] = {}
        """Figures of the last update."""

    @abstractmethod
    def learn(self) -> None:
        """Make one update from one batch. Raises `DeadlineExceededError` at once if the table cannot give one now."""

    @abstractmethod
    def _acting(self) -> NDArray[np.float32]:
        """A copy of the parameters that actors need, `[P]`."""

    def _learn(self, update: Update) -> None:
        """Draw a batch and make one `update` of it."""
        with self._watch("sample"):
            batch = self._draw()
        with self._watch("learn"):
            columns = self._statistics.scaled(batch.data)
            _, values = self._updated(columns, lambda columns: (None, update(columns)))
            self._after_update()
            self._statistics.merge(batch.data)
            outcome = UpdateOutcome(self.version, batch, None, values, 1.0)
            self._look_ahead()
        self._end_update(outcome)

    def _learn_by_priority(self, settings: PrioritizedSettings, update: PrioritizedUpdate) -> None:
        """Draw a batch by priority, make one `update` of it, and write the new priorities back."""
        with self._watch("sample"):
            batch = self._draw()
            normalise = cast("Literal['batch', 'table']", settings.importance_normalise)
            weights = batch.weights(settings.importance_at(self.version), normalise=normalise)
        with self._watch("learn"):
            steps = self._steps_of(batch.data)
            columns = {**self._statistics.scaled(batch.data, steps), WEIGHTS: float32(weights).to(self._device)}
            unit = self._priority_unit()
            tensor, values = self._updated(columns, lambda columns: update(columns, columns[WEIGHTS]))
            assert tensor is not None
            self._after_update()
            self._statistics.merge(batch.data, steps)
            outcome = UpdateOutcome(self.version, batch, tensor, values, unit)
            self._look_ahead()
        self._end_update(outcome)

    def _end_update(self, outcome: UpdateOutcome) -> None:
        """Count an update; its outcome is settled now, or while the device makes the next update.

        One that diverged does not count. Any other counts before its priorities are written: the weights have changed
        even if the table cannot be reached, and no two weights may have one version.
        """
        if not self._settles_later:
            found = self._found(outcome)
            self.version += 1
            self._keep(outcome, *found)
            return
        before, self._open = self._open, outcome
        self.version += 1
        if before is not None:
            try:
                self._settle(before)
            except DivergedError:
                self._open = None  # made of the same weights: the first error is the one to report
                raise

    def _settle(self, outcome: UpdateOutcome) -> None:
        """Wait for an update, write its priorities, and keep its figures."""
        self._keep(outcome, *self._found(outcome))

    def _found(self, outcome: UpdateOutcome) -> tuple[NDArray[np.float64] | None, dict[str, float]]:
        """Wait for an update; its priorities and figures. Raises `DivergedError` if one is not finite."""
        with self._watch("learn"):
            priorities, figures = outcome.wait()
        errors = {} if priorities is None else {"td error": float(priorities.sum())}
        self._check({**figures, **errors}, outcome.version)
        return priorities, figures

    def _keep(self, outcome: UpdateOutcome, priorities: NDArray[np.float64] | None, figures: dict[str, float]) -> None:
        """Write an update's priorities to the table, and keep its figures."""
        if priorities is not None:
            with self._watch("update"):
                result = self._client.update_priorities(TABLE, outcome.keys, priorities)
                self._counts["priorities_applied"] += result.applied
                self._counts["priorities_stale"] += result.stale
        mean_age = outcome.age()
        if mean_age is not None:
            figures = {"age_in_updates": mean_age, **figures}
        before = {name: value for name, value in self._last.items() if name != "age_in_updates"}
        self._last = {**before, **figures}

    def _settle_open(self) -> None:
        """Settle the last update, if that is still to be done."""
        outcome, self._open = self._open, None
        if outcome is not None:
            self._settle(outcome)

    def _learn_as_drawn(self, settings: MaybePrioritizedSettings, update: MaybePrioritizedUpdate) -> None:
        """Draw a batch, by priority if `settings.prioritized`, and make one `update` of it."""
        if settings.prioritized:
            self._counts = {"priorities_applied": 0, "priorities_stale": 0, **self._counts}
            self._learn_by_priority(settings, update)
        else:
            self._learn(lambda data: update(data, None)[1])

    def _updated(self, columns: dict[str, Tensor], single: Callable[[dict[str, Tensor]], Result]) -> Result:
        """Make one update, by a compiled graph or by single operations."""
        result = None if self._compiler is None else self._compiler.update(columns, single)
        return single(columns) if result is None else result

    def _after_update(self) -> None:  # noqa: B027 - some have none
        """Do what is due at some updates only, such as copies into target networks. It is not compiled."""

    def _priority_unit(self) -> float:
        """The factor of new priorities: TD errors are in the learner's unit of rewards, priorities in the table's."""
        return self._statistics.reward_deviation()

    def _kind(self, version: int) -> int:
        """The kind of the update after `version` others: all of one kind run the same operations."""
        return 0

    def _kinds(self) -> dict[int, int]:
        """Every kind of its updates, with a version that has it."""
        return {0: 0}

    def _random(self, shape: torch.Size, uniform: bool = False, /) -> Tensor:
        """Random numbers for an update, see `random_numbers`. Each update of a kind must draw the same shapes."""
        return random_numbers(shape, uniform, self._generator) if self._noise is None else self._noise(shape, uniform)

    def compile_updates(self, plan: CompilePlan) -> None:
        """Compile its updates as planned, from now on; on a GPU record them. See `core.CompilingLearner`."""
        if self._device.type == "cuda":
            self._compiler = UpdateRecorder(self, plan)
            return
        from reverie.agents.compiling import UpdateCompiler

        self._compiler = UpdateCompiler(self, plan)

    def ready(self) -> bool:
        """Whether `learn` need not wait for a compiler. Raises `CompileError` if the plan requires one that failed."""
        return self._compiler is None or self._compiler.ready()

    def drain_compile_notes(self) -> list[CompileNote]:
        """Notes about updates that were compiled, or could not be, since the last call."""
        return [] if self._compiler is None else self._compiler.drain_notes()

    def stop_compiling(self) -> None:
        """End the compilers that still run."""
        if self._compiler is not None:
            self._compiler.close()

    def _steps_of(self, data: dict[str, Tensor]) -> Tensor | None:
        """The steps `[B, T]` that count for running statistics, of a batch whose items are sequences; else None."""
        return None

    def _check(self, figures: dict[str, float], version: int | None = None) -> None:
        """Raise `DivergedError` if a figure is not finite, of the update after `version` others or of this one."""
        for name, figure in figures.items():
            if not math.isfinite(figure):
                raise DivergedError(self.version if version is None else version, name, self._rates(initial=True))

    def _rates(self, *, initial: bool = False) -> dict[str, float]:
        """The learning rates of the last update, by setting; `initial`: the settings, of which that has a share."""
        return rates_by_setting(self._optimizers, self.RATES, initial=initial)

    def latest(self, newer_than: int) -> Weights | None:
        """A copy of the weights that actors need, or None if they are not newer than version `newer_than`.

        Raises `DivergedError` if the last update found a figure that is not finite: such weights are not given.
        """
        self._settle_if_reachable()
        return Weights(self.version, self._acting()) if self.version > newer_than else None

    def draw_ahead(self, ahead: int) -> None:
        """Let a thread of the engine draw up to `ahead` batches while this learns; 0: none.

        Priorities that are written back then affect draws a few updates later, and two runs are never the same. On a
        GPU those of an update are written while it makes the next one, so that it does not wait for them.
        """
        self._settle_open()
        self._drawing.stop()
        self._drawing.ahead = ahead
        self._settles_later = ahead > 0 and self._device.type == "cuda"

    def fetch(self) -> bool:
        """Whether a batch that was drawn ahead is ready, so that `learn` need not wait. Requires `draw_ahead`."""
        ready = self._drawing.fetch(self._client, self._device)
        if not ready:
            self._settle_open()
        return ready

    def stop_drawing(self) -> None:
        """Stop drawing until the next update. Batches that are drawn already are learnt from then."""
        self._drawing.stop()
        self._settle_if_reachable()

    def _settle_if_reachable(self) -> None:
        """Settle the last update. Its priorities are lost if the table cannot be reached, as those of others are."""
        with suppress(DeadlineExceededError, UnavailableError, UnauthenticatedError):
            self._settle_open()

    def _draw(self) -> Batch:
        """The next batch as tensors on the networks' device. Raises `DeadlineExceededError` at once without one."""
        return self._drawing.next(self._client, self._device)

    def _look_ahead(self) -> None:
        """Fetch the next batch. Called when an update was launched on the GPU, before waiting for its figures.

        An error is left to the next `fetch`: this update is made, and counts.
        """
        if self._drawing.ahead and self._device.type == "cuda":
            with suppress(ReplayError):
                self._drawing.fetch(self._client, self._device)

    @cached_property
    def _statistics(self) -> Statistics:
        """The running statistics of its networks, as the environment's settings ask for them."""
        return Statistics(one.module for one in self._networks.values())

    @property
    def _drawing(self) -> TableDraws:
        if self._draws is None:
            raise TypeError(f"{type(self).__module__} has no table that it draws from ahead of its updates")
        return self._draws

    @property
    def _device(self) -> torch.device:
        return next(iter(self._networks.values())).device

    def metrics(self) -> dict[str, float]:
        """Counters so far, and the figures of the last update."""
        draws = {} if self._draws is None else {"draws": self._draws.given, "draws_lost": self._draws.lost}
        compiled = {} if self._compiler is None else {"updates_compiled": self._compiler.num_compiled}
        rates = self._rates() if self._last else {}
        return {"updates": self.version, **draws, **compiled, **self._counts, **rates, **self._last}

    def state_dict(self) -> dict[str, Any]:
        """A copy of everything that the next update depends on, except the tables and the settings.

        Networks, and the moments of optimisers, are by the names of the networks' parameters.
        """
        self._settle_if_reachable()
        return {
            "version": self.version,
            "networks": {name: network.named() for name, network in self._networks.items()},
            "optimizers": {name: self._moments(one) for name, one in self._optimizers.items()},
            "random": None if self._generator is None else self._generator.get_state().numpy(),
            "counts": dict(self._counts),
            "draws": None if self._draws is None else self._draws.state_dict(),
            "incomplete": None if self._queue is None else self._queue.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict`, which is copied. Settings, such as learning rates, stay those of this learner.

        Raises `ParameterError`, which names the network and the parameter, for other parameters.
        """
        self._open = None
        load_networks(self._networks, state["networks"])
        for name, optimizer in self._optimizers.items():
            network = self._network_of(optimizer)
            with parameters_of(f"optimizer {name}"):
                moments = {
                    key: network.joined_moments(one).cpu().numpy() if isinstance(one, Mapping) else one
                    for key, one in state["optimizers"][name].items()
                }
            load_optimizer(optimizer, moments)
        if self._generator is not None:
            self._generator.set_state(torch.from_numpy(state["random"].copy()))
        self.version, self._counts = state["version"], dict(state["counts"])
        if self._compiler is not None:
            self._compiler.forget_state()
        draws = state.get("draws")  # missing in states of older versions, which drew none ahead
        if self._draws is not None and draws is not None:
            self._draws.load_state_dict(draws)
        incomplete = state.get("incomplete")  # missing in states of older versions
        if self._queue is not None and incomplete is not None:
            self._queue.load_state_dict(incomplete)

    def _moments(self, optimizer: Optimizer) -> dict[str, Any]:
        network = self._network_of(optimizer)
        return {
            key: network.named(torch.from_numpy(one)) if np.shape(one) == tuple(network.flat.shape) else one
            for key, one in optimizer_state(optimizer).items()
        }

    def _network_of(self, optimizer: Optimizer) -> FlatNetwork[Any]:
        stepped = [one for group in optimizer.param_groups for one in group["params"]]
        for network in self._networks.values():
            if len(stepped) == 1 and stepped[0] is network.flat:
                return network
        raise TypeError(
            f"{type(self).__module__} has an optimiser that steps {len(stepped)} parameters: make it over `flat` of one"
            " of its networks, as reverie.agents.optimizers.adam does"
        )

    def warm_start(self, acting: NDArray[np.float32], networks: Mapping[str, Named] | None) -> None:
        """Begin with these weights; optimisers, counters and random state stay new. See `core.Learner`.

        Raises TypeError if only acting weights are given, and the class does not name the networks that act.
        """
        if networks is None:
            if not self.ACTING:
                raise TypeError(f"{type(self).__module__} does not name the networks that act: set ACTING in its class")
            sizes = [self._networks[names[0]].flat.numel() for names in self.ACTING]
            parts = np.split(acting, np.cumsum(sizes)[:-1])
            for names, part in zip(self.ACTING, parts, strict=True):
                for name in names:
                    self._networks[name].load(part)
            self._statistics.copy_from(self._networks[self.ACTING[0][0]].module)
        else:
            own = {name: one for name, one in self._networks.items() if name not in self._fixed}
            load_networks(own, networks, leave_others=True)


def weighted(losses: Tensor, weights: Tensor | None) -> Tensor:
    """Losses `[..., B]` times importance weights `[B]`; None leaves them as they are."""
    return losses if weights is None else weights * losses


def float32(array: NDArray[Any] | Tensor) -> Tensor:
    """The array as a float32 tensor, which shares its memory unless the dtype differs."""
    if isinstance(array, Tensor):
        return array.float()
    return torch.from_numpy(np.asarray(array, dtype=np.float32))
