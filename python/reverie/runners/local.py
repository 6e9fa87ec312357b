"""One process, one thread, deterministic under a seed: learn while the table can give a batch, else act.

The table's limiter decides whose turn it is, and so holds the replay ratio; this loop never waits.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reverie.agents.core import Actor, Agent, Learner, RunSettings, Stopwatch, Weights, seed_of
from reverie.runners.evaluator import Evaluation, Evaluator, confirmation_seeds, screening_seeds
from reverie.runners.topology import Topology, plan
from reverie.server import Server

PROGRESS_SECONDS = 0.1


class StalledError(RuntimeError):
    """The table lets nobody go on: neither a batch nor an insert. `.why` is the table's own account."""

    def __init__(self, table: str, why: Any) -> None:
        self.why = why
        super().__init__(f"table {table!r} lets neither the learner draw nor an actor insert: {why}")


@dataclass(frozen=True)
class Started:
    """The run is laid out and begins."""

    topology: Topology


@dataclass(frozen=True)
class Progress:
    """A few times a second."""

    env_steps: int
    updates: int
    seconds: float
    training_return: float | None
    """Mean of the last 20 training episodes, exploration included; None before the first ended. Not a result."""
    learner: Mapping[str, float]
    """The learner's own metrics."""


@dataclass(frozen=True)
class CurvePoint:
    """One greedy evaluation on the learning curve."""

    env_steps: int
    seconds: float
    mean_return: float


@dataclass(frozen=True)
class Evaluated:
    """A greedy evaluation ended; `confirmation` is there where the first one reached the target."""

    point: CurvePoint
    confirmation: Evaluation | None


@dataclass(frozen=True)
class Result:
    """What a run gives. The weights are the last ones, and `evaluation` is of them, on the confirmation seeds."""

    topology: Topology
    env_steps: int
    seconds: float
    confirmed: bool
    """Whether the last weights reached the target twice: on the screening seeds and on the confirmation seeds."""
    evaluation: Evaluation
    curve: tuple[CurvePoint, ...]
    replay: Mapping[str, float]
    """The table's own figures: inserts, samples, size, bytes, priorities_updated, updates_stale."""
    learner: Mapping[str, float]
    activities: Mapping[str, float]
    """Seconds by activity; what is left of `seconds` is the loop itself."""
    weights: Weights


@dataclass(frozen=True)
class Finished:
    """The run ended."""

    result: Result


Event = Started | Progress | Evaluated | Finished


def train(
    agent: Agent,
    env_id: str,
    *,
    seed: int = 0,
    preset: Path | None = None,
    config: Any = None,
    run: RunSettings | None = None,
    stop_when_confirmed: bool = True,
    on_event: Callable[[Event], None] | None = None,
) -> Result:
    """Train in this thread until the target is confirmed or `run.max_env_steps` are done.

    `agent` is an agent's module, e.g. `reverie.agents.apex_dqn`. The same seed gives the same run, times apart.
    Raises what `plan` raises, `StalledError` where the table's limits contradict each other, and whatever `on_event`
    raises: everything is closed on the way out. With `stop_when_confirmed=False` training goes on to its last step, and
    `confirmed` says whether the last weights hold the target.
    """
    topology = plan(agent, env_id, seed=seed, preset=preset, config=config, run=run)
    threads = torch.get_num_threads()
    torch.set_num_threads(topology.run.threads)
    try:
        with Server(agent.make_tables(topology.env, topology.config, seed=seed_of(seed, 0)), listen=False) as server:
            loop = _Loop(agent, topology, server.client(), on_event or (lambda event: None))
            try:
                return loop.run(stop_when_confirmed)
            finally:
                loop.close()
    finally:
        torch.set_num_threads(threads)


@dataclass
class _Loop:
    agent: Agent
    topology: Topology
    client: Any
    emit: Callable[[Event], None]
    env_steps: int = 0
    updates: int = 0
    curve: list[CurvePoint] = field(default_factory=list)
    training_returns: deque[float] = field(default_factory=lambda: deque(maxlen=20))

    def __post_init__(self) -> None:
        agent, topology, seed = self.agent, self.topology, self.topology.seed
        env, config = topology.env, topology.config
        self.watch = Stopwatch()
        self.learner: Learner = agent.make_learner(env, config, self.client, seed=seed_of(seed, 1), watch=self.watch)
        self.actors: list[Actor] = [
            agent.make_actor(
                env, config, self.client, self.learner, index=i, seed=seed_of(seed, 2, i), watch=self.watch
            )
            for i in range(topology.num_actors)
        ]
        self.policy = agent.make_policy(env, config)
        run = topology.run
        self.screening = screening_seeds(run.screening_episodes)
        self.confirming = confirmation_seeds(run.confirmation_episodes)
        self.evaluator = Evaluator(env.env_id, max(len(self.screening), len(self.confirming)))
        self.began = time.perf_counter()

    def run(self, stop_when_confirmed: bool) -> Result:
        run = self.topology.run
        self.emit(Started(self.topology))
        self.began = time.perf_counter()
        next_evaluation, next_progress = run.evaluate_every, 0.0
        turn = 0
        while self.env_steps < run.max_env_steps:
            if self._advance(turn):
                turn = (turn + 1) % len(self.actors)
                if self.env_steps >= next_evaluation:
                    next_evaluation += run.evaluate_every
                    confirmation = self._evaluate()
                    if confirmation and stop_when_confirmed and confirmation.mean_return >= run.target_return:
                        return self._finish(confirmation, confirmed=True)
            if self._seconds() >= next_progress:
                next_progress = self._seconds() + PROGRESS_SECONDS
                self.emit(self._progress())
        confirmation = self._evaluate()
        if confirmation is None:
            return self._finish(self._timed_evaluation(self.confirming), confirmed=False)
        return self._finish(confirmation, confirmed=confirmation.mean_return >= run.target_return)

    def _advance(self, turn: int) -> bool:
        """Learn if the table allows it, else let one actor act; whether an actor did."""
        needs = self.topology.needs
        if self.client.can_sample(needs.name, needs.batch_size):
            self.learner.learn()
            self.updates += 1
            return False
        if not self.client.can_insert(needs.name, needs.inserts_per_act):
            raise StalledError(needs.name, self.client.why(needs.name))
        actor = self.actors[turn]
        self.env_steps += actor.act()
        self.training_returns.extend(actor.drain_returns())
        return True

    def _evaluate(self) -> Evaluation | None:
        """A point of the curve for the last weights; where it reaches the target, the confirmation on other seeds."""
        weights = self.learner.latest(newer_than=-1)
        assert weights is not None
        self.policy.load(weights)
        screening = self._timed_evaluation(self.screening)
        reached = screening.mean_return >= self.topology.run.target_return
        confirmation = self._timed_evaluation(self.confirming) if reached else None
        point = CurvePoint(self.env_steps, self._seconds(), screening.mean_return)
        self.curve.append(point)
        self.emit(Evaluated(point, confirmation))
        return confirmation

    def _timed_evaluation(self, seeds: tuple[int, ...]) -> Evaluation:
        with self.watch("evaluate"):
            return self.evaluator.evaluate(self.policy, seeds)

    def _progress(self) -> Progress:
        returns = self.training_returns
        return Progress(
            env_steps=self.env_steps,
            updates=self.updates,
            seconds=self._seconds(),
            training_return=float(np.mean(returns)) if returns else None,
            learner=self.learner.metrics(),
        )

    def _finish(self, evaluation: Evaluation, *, confirmed: bool) -> Result:
        seconds = self._seconds()
        weights = self.learner.latest(newer_than=-1)
        assert weights is not None
        self.emit(self._progress())
        result = Result(
            topology=self.topology,
            env_steps=self.env_steps,
            seconds=seconds,
            confirmed=confirmed,
            evaluation=evaluation,
            curve=tuple(self.curve),
            replay=replay_figures(self.client, self.topology.needs.name),
            learner=self.learner.metrics(),
            activities=dict(self.watch.seconds),
            weights=weights,
        )
        self.emit(Finished(result))
        return result

    def _seconds(self) -> float:
        return time.perf_counter() - self.began

    def close(self) -> None:
        for actor in self.actors:
            actor.close()
        self.evaluator.close()


def replay_figures(client: Any, table: str) -> dict[str, float]:
    """The table's own figures: what it counted, not what this loop believes."""
    info = client.info().tables[table]
    return {
        "inserts": info.num_inserts,
        "samples": info.num_samples,
        "size": info.current_size,
        "bytes": info.size_bytes,
        "priorities_updated": info.num_updates,
        "updates_stale": info.num_stale_updates,
    }
