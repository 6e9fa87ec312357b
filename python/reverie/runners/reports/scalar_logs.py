"""Logs of a run's scalars: an `on_event` callback for `train` that passes numbers, settings and results to a sink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reverie import _checks
from reverie.runners.reports.calls import BackgroundCalls, DirectCalls, OrderedCalls
from reverie.runners.reports.events import Evaluated, Event, Finished, Progress, Result, Started
from reverie.runners.reports.sinks.mlflow_run import MLflowSink
from reverie.runners.reports.sinks.sink import RunDescription, RunOutcome, Sink
from reverie.runners.reports.sinks.tensorboard import TensorBoardSink
from reverie.runners.reports.sinks.wandb_run import WandbSink
from reverie.runners.reports.sparse_events import SparseEvents


class ScalarLog:
    """Passes the scalars of a run to a sink, by environment steps; progress about once a second.

    `return/greedy` and `return/confirmation` are the evaluations, `return/final` is the result of the run, of its last
    weights; `speed/` has rates over the time since the last figures, not over the whole run; `learner/` has the
    learner's metrics, and `schedule/` numbers that change by the counts of the run, such as epsilon. A sink that fails
    does not end the run: `problem` has the reason.
    """

    def __init__(self, sink: Sink, name: str, calls: OrderedCalls) -> None:
        self.name, self._sink, self._calls = name, sink, calls
        self._sparse = SparseEvents()
        self._before: Progress | None = None
        self._batch_size, self._env_steps = 0, 0
        self._outcome: RunOutcome = "stopped"
        self._refused, self._closed = False, False

    @property
    def problem(self) -> str:
        """Why scalars are not being written; empty where they are."""
        return self._calls.problem

    @property
    def where(self) -> str:
        """The place of the tracked run, for people; empty before its first event and for files in the run's folder."""
        return self._sink.where

    def __call__(self, event: Event) -> None:
        """Add the scalars of one event. With a service behind the sink this does not block."""
        if isinstance(event, Started):
            self._before, self._batch_size = None, event.topology.needs.batch_size
            self._calls(self._begin, _description(event))
        for one in self._sparse(event):
            steps, scalars = self._scalars(one)
            if scalars:
                self._env_steps = max(self._env_steps, steps)
                self._add(self._sink.add_scalars, steps, scalars)
        if isinstance(event, Finished):
            self._outcome = "finished"
            self._add(self._sink.add_summary, event.result.env_steps, _summary(event.result))

    def add_files(self, paths: Sequence[Path]) -> None:
        """Add those of the files that exist: pictures, videos, settings."""
        for path in paths:
            if path.is_file():
                self._add(self._sink.add_file, self._env_steps, path)

    def add_later(
        self, run: RunDescription, scalars: Mapping[str, float], paths: Sequence[Path], *, ended: bool
    ) -> None:
        """Add numbers and files to a run that is over, at its last step, and close.

        `ended`: the run trained until its own end, which its status keeps.
        """
        self._calls(self._begin, run)
        self._env_steps = run.env_steps
        self._add(self._sink.add_scalars, run.env_steps, scalars)
        self.add_files(paths)
        self._outcome = "finished" if ended else "stopped"
        self.close()

    def close(self, *, failed: bool = False) -> None:
        """Close the sink and wait for it, for a bounded time; idempotent. `failed`: an error ended the run."""
        if self._closed:
            return
        self._closed = True
        outcome: RunOutcome = "failed" if failed and self._outcome != "finished" else self._outcome
        self._calls.close(self._sink.close, outcome)

    def _begin(self, run: RunDescription) -> None:
        try:
            self._sink.begin(run)
        except Exception:
            self._refused = True
            raise

    def _add(self, function: Any, *arguments: Any) -> None:
        self._calls(self._unless_refused, function, *arguments)

    def _unless_refused(self, function: Any, *arguments: Any) -> None:
        """A run that could not begin at the sink has nowhere to write to."""
        if not self._refused:
            function(*arguments)

    def _scalars(self, event: Event) -> tuple[int, dict[str, float]]:
        match event:
            case Progress():
                scalars = {f"learner/{name}": value for name, value in event.learner.items()}
                scalars |= {f"schedule/{name}": value for name, value in event.schedules.items()}
                scalars["replay/samples_per_insert"] = event.samples_per_insert
                if event.policy_lag is not None:
                    scalars["actors/policy_lag"] = event.policy_lag
                if event.training_return is not None:
                    scalars["return/training"] = event.training_return
                return event.env_steps, {**scalars, **self._rates(event)}
            case Evaluated():
                scalars = {"return/greedy": event.point.mean_return}
                if event.point.success_rate is not None:
                    scalars["success/greedy"] = event.point.success_rate
                if event.confirmation is not None:
                    scalars["return/confirmation"] = event.confirmation.mean_return
                return event.point.env_steps, scalars
            case Finished():
                return event.result.env_steps, {"return/final": event.result.evaluation.mean_return}
            case _:
                return 0, {}

    def _rates(self, event: Progress) -> dict[str, float]:
        before, self._before = self._before, event
        seconds = 0.0 if before is None else event.seconds - before.seconds
        if before is None or seconds <= 0:
            return {}
        return {
            "speed/env_steps_per_second": (event.env_steps - before.env_steps) / seconds,
            "speed/updates_per_second": (event.updates - before.updates) / seconds,
            "speed/trained_samples_per_second": (event.updates - before.updates) * self._batch_size / seconds,
        }


class TensorBoard(ScalarLog):
    """A log for TensorBoard. Raises what `TensorBoardSink` raises.

    A record for which the disk has no room is left out whole.
    """

    def __init__(self, folder: Path | str, *, purge_after: int | None = None) -> None:
        folder = _checks.path("folder", folder)
        super().__init__(TensorBoardSink(folder, purge_after=purge_after), str(folder), DirectCalls())

    def _begin(self, run: RunDescription) -> None:
        self._sink.begin(run)  # a disk that is full now may have room later


class WeightsAndBiases(ScalarLog):
    """A log for Weights & Biases of the run in `folder`. Raises what `WandbSink` raises."""

    def __init__(self, folder: Path | str, *, project: str = "", tags: Sequence[str] = ()) -> None:
        folder = _checks.path("folder", folder)
        super().__init__(WandbSink(folder, project=project, tags=tags), "wandb", BackgroundCalls())


class MLflow(ScalarLog):
    """A log for MLflow of the run in `folder`. Raises what `MLflowSink` raises."""

    def __init__(self, folder: Path | str, *, experiment: str = "", tags: Sequence[str] = ()) -> None:
        folder = _checks.path("folder", folder)
        super().__init__(MLflowSink(folder, experiment=experiment, tags=tags), "mlflow", BackgroundCalls())


def _description(event: Started) -> RunDescription:
    topology = event.topology
    named = {"agent": topology.agent, "env_id": topology.env.env_id, "seed": topology.seed, "runner": topology.runner}
    return RunDescription(
        name=f"{topology.agent}-{topology.env.env_id}-seed-{topology.seed}",
        settings={**named, **vars(topology.config), **vars(topology.run), **topology.env.settings.changed()},
        env_steps=event.env_steps,
    )


def _summary(result: Result) -> dict[str, Any]:
    return {
        "confirmed": result.confirmed,
        "mean_return": result.evaluation.mean_return,
        "num_episodes": result.evaluation.num_episodes,
        "seconds": result.seconds,
        "updates": result.learner["updates"],
    }
