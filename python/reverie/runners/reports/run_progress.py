"""The progress of a run: its counts, its curve, and what is due. The same for every runner."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np

from reverie.agents.agent import Agent
from reverie.agents.core import Stopwatch, Weights
from reverie.agents.settings import schedules_of
from reverie.runners.planning.topology import Topology
from reverie.runners.reports.evaluation import Evaluation
from reverie.runners.reports.events import CurvePoint, Evaluated, Progress, Result

PROGRESS_SECONDS = 0.1
"""Seconds between two reports of a run's `Progress`."""
RESULT = "result"
"""The entry of a `state_dict` with the result of a run that has finished; None before."""
FIGURES = ("inserts", "samples", "size", "bytes", "priorities_updated", "updates_stale")


@dataclass
class RunProgress:
    """Counts, curve and clock of a run. Not thread-safe."""

    topology: Topology
    env_steps: int = 0
    updates: int = 0
    seconds_before: float = 0.0
    """Seconds of the run before it was resumed."""
    confirmation: Evaluation | None = None
    """The evaluation on the confirmation seeds, if the last evaluation reached the target."""
    curve: list[CurvePoint] = field(default_factory=list)
    ended: dict[str, Any] | None = None
    """The parts of the result that no other entry of `state_dict` has; None before the last evaluation."""
    training_returns: deque[float] = field(default_factory=lambda: deque(maxlen=20))

    def __post_init__(self) -> None:
        run = self.topology.run
        self.watch = Stopwatch()
        self.next_evaluation, self.next_checkpoint = run.evaluate_every, run.checkpoint_every
        self._evaluating = False
        self.began = time.perf_counter()

    def begin(self) -> None:
        """Start the clock."""
        self.began = time.perf_counter()

    def seconds(self) -> float:
        """Seconds of the run, those before a resume included."""
        return self.seconds_before + time.perf_counter() - self.began

    @property
    def confirmed(self) -> bool:
        """Whether the last evaluation reached the target on the screening seeds and on the confirmation seeds."""
        last = self.confirmation
        return last is not None and self.topology.run.reached_by(last.mean_return)

    @property
    def evaluation_due(self) -> bool:
        """True once after every `evaluate_every` environment steps; evaluations that were missed are left out."""
        if self.env_steps < self.next_evaluation:
            return False
        self.next_evaluation = self._after(self.next_evaluation, self.topology.run.evaluate_every)
        self._evaluating = True
        return True

    @property
    def checkpoint_due(self) -> bool:
        """True once after every `checkpoint_every` environment steps; checkpoints that were missed are left out."""
        if self.env_steps < self.next_checkpoint:
            return False
        self.next_checkpoint = self._after(self.next_checkpoint, self.topology.run.checkpoint_every)
        return True

    def evaluated(self, env_steps: int, screening: Evaluation, confirmation: Evaluation | None) -> Evaluated:
        """Add a point to the curve, for the weights after `env_steps`; returns its event."""
        self.confirmation, self._evaluating = confirmation, False
        point = CurvePoint(env_steps, self.seconds(), screening.mean_return, screening.success_rate)
        self.curve.append(point)
        return Evaluated(point, confirmation)

    def progress(
        self,
        learner: Mapping[str, float],
        figures: Mapping[str, float],
        policy_lag: float | None = None,
        waits_for: str = "",
    ) -> Progress:
        """The event `Progress` for the present counts."""
        returns = self.training_returns
        return Progress(
            env_steps=self.env_steps,
            updates=self.updates,
            seconds=self.seconds(),
            training_return=float(np.mean(returns)) if returns else None,
            learner=_python_numbers(learner),
            samples_per_insert=figures["samples"] / max(1.0, figures["inserts"]),
            policy_lag=policy_lag,
            waits_for=waits_for,
            activities=dict(self.watch.seconds),
            schedules=schedules_of(self.topology.config, self.env_steps, self.updates),
        )

    def end(self, evaluation: Evaluation, learner: Mapping[str, float], figures: Mapping[str, float]) -> None:
        """Note the result: the next checkpoint is that of a finished run. The curve ends with the last weights.

        If the run trains on later, its next evaluation and checkpoint are due after the last step, not at it.
        """
        if self.confirmation is None and self.topology.run.reached_by(self.curve[-1].mean_return):
            self.confirmation = evaluation  # its point is from before a resume
        run = self.topology.run
        if self.env_steps >= self.next_evaluation:
            self.next_evaluation = self._after(self.next_evaluation, run.evaluate_every)
        if self.env_steps >= self.next_checkpoint:
            self.next_checkpoint = self._after(self.next_checkpoint, run.checkpoint_every)
        self.ended = {
            "seeds": list(evaluation.seeds),
            "returns": list(evaluation.returns),
            "lengths": list(evaluation.lengths),
            "successes": None if evaluation.successes is None else list(evaluation.successes),
            "learner": _python_numbers(learner),
            "replay": dict(figures),
        }

    def result(
        self,
        agent: Agent,
        evaluation: Evaluation,
        learner: Mapping[str, float],
        figures: Mapping[str, float],
        weights: Weights,
    ) -> Result:
        """The result of the run, at its end."""
        return Result(
            topology=self.topology,
            env_steps=self.env_steps,
            seconds=self.seconds(),
            confirmed=self.confirmed,
            evaluation=evaluation,
            curve=tuple(self.curve),
            replay=figures,
            learner=_python_numbers(learner),
            activities=dict(self.watch.seconds),
            weights=weights,
            agent=agent,
        )

    def state_dict(self) -> dict[str, Any]:
        """Counts, curve, clock and the run's identity. An evaluation that is running is due again after a resume."""
        under_way = self.topology.run.evaluate_every if self._evaluating else 0
        return {
            "identity": self.topology.identity,
            "env_steps": self.env_steps,
            "updates": self.updates,
            "seconds": self.seconds(),
            "next_evaluation": self.next_evaluation - under_way,
            "next_checkpoint": self.next_checkpoint,
            "evaluate_every": self.topology.run.evaluate_every,
            "checkpoint_every": self.topology.run.checkpoint_every,
            "curve": [astuple(point) for point in self.curve],
            "training_returns": list(self.training_returns),
            "activities": dict(self.watch.seconds),
            RESULT: self.ended,
        }

    def _next(self, due: int, before: int, every: int) -> int:
        """The next step at which an action is due `every` number of steps; with `before` it was to be due at `due`."""
        if every == before or due <= self.env_steps:
            return due
        return self._after(due - before, every)

    def _after(self, last: int, every: int) -> int:
        """The first step above `env_steps` of those that follow `last` by `every`."""
        return last + ((self.env_steps - last) // every + 1) * every

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict`."""
        self.env_steps, self.updates = state["env_steps"], state["updates"]
        self.seconds_before = state["seconds"]
        run = self.topology.run
        self.next_evaluation = self._next(state["next_evaluation"], state["evaluate_every"], run.evaluate_every)
        self.next_checkpoint = self._next(state["next_checkpoint"], state["checkpoint_every"], run.checkpoint_every)
        self.curve = [CurvePoint(*point) for point in state["curve"]]
        self.training_returns.extend(state["training_returns"])
        self.watch.seconds.update(state["activities"])


def replay_figures(client: Any, *tables: str) -> dict[str, float]:
    """The tables' own figures, summed over tables: counted by the tables, not by the runner."""
    infos = client.info().tables
    numbers = [
        (
            info.num_inserts,
            info.num_samples,
            info.current_size,
            info.size_bytes,
            info.num_updates,
            info.num_stale_updates,
        )
        for info in (infos[table] for table in tables)
    ]
    return dict(zip(FIGURES, map(sum, zip(*numbers, strict=True)), strict=True))


def _python_numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Metrics of a learner without scalars of NumPy and PyTorch, which JSON has not."""
    return {name: value.item() if hasattr(value, "item") else value for name, value in metrics.items()}
