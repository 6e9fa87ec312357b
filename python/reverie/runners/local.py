"""One process, one thread, deterministic under a seed: learn while the table can give a batch, else act.

The table's limiter decides whose turn it is, and so holds the replay ratio; this loop never waits.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reverie.agents import presets
from reverie.agents.core import Actor, Agent, Learner, Preset, RunSettings, Stopwatch, Weights, seed_of
from reverie.checkpointers import CheckpointerBase
from reverie.runners import checkpoints
from reverie.runners.evaluator import Evaluation, Evaluator, confirmation_seeds, screening_seeds
from reverie.runners.events import CurvePoint, Evaluated, Event, Finished, NotSaved, Progress, Result, Saved, Started
from reverie.runners.topology import Topology, plan
from reverie.server import Server

PROGRESS_SECONDS = 0.1


class StalledError(RuntimeError):
    """The table lets nobody go on: neither a batch nor an insert. `.why` is the table's own account."""

    def __init__(self, table: str, why: Any) -> None:
        self.why = why
        super().__init__(f"table {table!r} lets neither the learner draw nor an actor insert: {why}")


class StoppedError(RuntimeError):
    """`should_stop` ended it. `.env_steps`, `.checkpoint` (None where the run keeps none, or could not write it)."""

    def __init__(self, env_steps: int, checkpoint: Path | None) -> None:
        self.env_steps, self.checkpoint = env_steps, checkpoint
        saved = "nothing was saved" if checkpoint is None else f"saved as {checkpoint}"
        super().__init__(f"stopped after {env_steps:,} environment steps; {saved}")


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
    checkpoint_folder: Path | None = None,
    resume: Path | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Result:
    """Train in this thread until the target is confirmed or `run.max_env_steps` are done.

    `agent` is an agent's module, e.g. `reverie.agents.apex_dqn`. The same seed gives the same run, times apart.
    With `stop_when_confirmed=False` training goes on to its last step, and `confirmed` says whether the last weights
    hold the target.

    With a `checkpoint_folder`, a checkpoint goes there every `run.checkpoint_every` environment steps and at the end.
    `resume` is a checkpoint of the same agent, environment, seed and configuration: counters and curve go on, learner,
    tables (their limiters' counts too) and random states are as they were; episodes begin anew.
    `should_stop` is asked between two turns; where it says yes the run saves and raises `StoppedError`.

    Raises what `plan` raises, `checkpoints.CheckpointError`, `DamagedError` for damaged tables of a checkpoint,
    `StalledError` where the table's limits contradict each other, what the learner raises, and whatever `on_event`
    raises: everything is closed on the way out.
    """
    topology = plan(agent, env_id, seed=seed, preset=preset, config=config, run=run)
    state = None if resume is None else _read_state(resume, topology)
    threads = torch.get_num_threads()
    torch.set_num_threads(topology.run.threads)
    try:
        # A table's random state is not in its checkpoint: draws after a resume must not be those of the start again.
        fresh = seed_of(seed, 0) if state is None else seed_of(seed, 0, state["env_steps"])
        tables = agent.make_tables(topology.env, topology.config, seed=fresh)
        with Server(tables, checkpointer=_checkpointer(checkpoint_folder, resume), listen=False) as server:
            loop = _Loop(agent, topology, server.client(), on_event or (lambda event: None), checkpoint_folder)
            try:
                if state is not None:
                    loop.load_state_dict(state)
                return loop.run(stop_when_confirmed, should_stop or (lambda: False))
            finally:
                loop.close()
    finally:
        torch.set_num_threads(threads)


def _checkpointer(folder: Path | None, resume: Path | None) -> CheckpointerBase | None:
    if folder is not None:
        return checkpoints.replay_checkpointer(folder, resume)
    return None if resume is None else checkpoints.replay_checkpointer(resume.parent, resume)


def _read_state(resume: Path, topology: Topology) -> dict[str, Any]:
    state = checkpoints.load(resume)
    here = _identity(topology)
    for name, value in here.items():
        if state["identity"].get(name) != value:
            there = state["identity"].get(name)
            raise checkpoints.CheckpointError(resume, f"has {name} {there!r}, and this run {value!r}: resume its own")
    if state["env_steps"] >= topology.run.max_env_steps:
        done = f"is of a run that ended after {state['env_steps']:,} environment steps"
        raise checkpoints.CheckpointError(resume, f"{done}; raise max_env_steps ({topology.run.max_env_steps:,})")
    return state


def _identity(topology: Topology) -> dict[str, Any]:
    identity = {"agent": topology.agent, "environment": topology.env.env_id, "seed": topology.seed}
    return {**identity, **vars(topology.config)}


@dataclass
class _Loop:
    agent: Agent
    topology: Topology
    client: Any
    emit: Callable[[Event], None]
    checkpoint_folder: Path | None
    env_steps: int = 0
    updates: int = 0
    turn: int = 0
    seconds_before: float = 0.0
    """Of the run before it was resumed."""
    confirmation: Evaluation | None = None
    """On the confirming seeds, where the last evaluation reached the target."""
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
        self.next_evaluation, self.next_checkpoint = run.evaluate_every, run.checkpoint_every
        self.began = time.perf_counter()

    def run(self, stop_when_confirmed: bool, should_stop: Callable[[], bool]) -> Result:
        run = self.topology.run
        self.emit(Started(self.topology, self.env_steps, tuple(self.curve)))
        self.began = time.perf_counter()
        next_progress = self._seconds()
        while self.env_steps < run.max_env_steps:
            if should_stop():
                raise StoppedError(self.env_steps, self._save())
            if self._advance():
                if self.env_steps >= self.next_evaluation:
                    self.next_evaluation += run.evaluate_every
                    self._evaluate()
                    if self.confirmed and stop_when_confirmed:
                        break
                if self.env_steps >= self.next_checkpoint:
                    self.next_checkpoint += run.checkpoint_every
                    self._save()
            if self._seconds() >= next_progress:
                next_progress = self._seconds() + PROGRESS_SECONDS
                self.emit(self._progress())
        if not self.curve or self.curve[-1].env_steps < self.env_steps:
            self._evaluate()
        return self._finish()

    def _advance(self) -> bool:
        """Learn if the table allows it, else let one actor act; whether an actor did."""
        needs = self.topology.needs
        if self.client.can_sample(needs.name, needs.batch_size):
            self.learner.learn()
            self.updates += 1
            return False
        if not self.client.can_insert(needs.name, needs.inserts_per_act):
            raise StalledError(needs.name, self.client.why(needs.name))
        actor = self.actors[self.turn]
        self.turn = (self.turn + 1) % len(self.actors)
        self.env_steps += actor.act()
        self.training_returns.extend(actor.drain_returns())
        return True

    @property
    def confirmed(self) -> bool:
        """Whether the last evaluation reached the target twice: on the screening seeds and on those that confirm."""
        last = self.confirmation
        return last is not None and last.mean_return >= self.topology.run.target_return

    def _evaluate(self) -> None:
        """A point of the curve for the last weights; where it reaches the target, the confirmation on other seeds."""
        self.policy.load(self._weights())
        screening = self._timed_evaluation(self.screening)
        reached = screening.mean_return >= self.topology.run.target_return
        self.confirmation = self._timed_evaluation(self.confirming) if reached else None
        point = CurvePoint(self.env_steps, self._seconds(), screening.mean_return)
        self.curve.append(point)
        self.emit(Evaluated(point, self.confirmation))

    def _timed_evaluation(self, seeds: tuple[int, ...]) -> Evaluation:
        with self.watch("evaluate"):
            return self.evaluator.evaluate(self.policy, seeds)

    def _weights(self) -> Weights:
        weights = self.learner.latest(newer_than=-1)
        assert weights is not None
        return weights

    def _progress(self) -> Progress:
        returns = self.training_returns
        figures = replay_figures(self.client, self.topology.needs.name)
        return Progress(
            env_steps=self.env_steps,
            updates=self.updates,
            seconds=self._seconds(),
            training_return=float(np.mean(returns)) if returns else None,
            learner=self.learner.metrics(),
            samples_per_insert=figures["samples"] / max(1.0, figures["inserts"]),
        )

    def _save(self) -> Path | None:
        if self.checkpoint_folder is None:
            return None
        preset = presets.dump(Preset(self.topology.config, self.topology.run, self.topology.preset))
        try:
            with self.watch("checkpoint"):
                tables = Path(self.client.checkpoint())
                state = {**self.state_dict(), checkpoints.REPLAY: os.path.relpath(tables, self.checkpoint_folder)}
                path = checkpoints.save(self.checkpoint_folder, self.env_steps, state, preset)
                checkpoints.remove_replays(self.checkpoint_folder, tables.parent)
        except OSError as error:
            self.emit(NotSaved(self.env_steps, self.checkpoint_folder, error.strerror or str(error)))
            return None
        self.emit(Saved(self.env_steps, path))
        return path

    def state_dict(self) -> dict[str, Any]:
        return {
            "identity": _identity(self.topology),
            "env_steps": self.env_steps,
            "updates": self.updates,
            "turn": self.turn,
            "seconds": self._seconds(),
            "next_evaluation": self.next_evaluation,
            "next_checkpoint": self.next_checkpoint,
            "curve": [(point.env_steps, point.seconds, point.mean_return) for point in self.curve],
            "training_returns": list(self.training_returns),
            "activities": dict(self.watch.seconds),
            "weights": tuple(self._weights()),
            "learner": self.learner.state_dict(),
            "actors": [actor.state_dict() for actor in self.actors],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.env_steps, self.updates, self.turn = state["env_steps"], state["updates"], state["turn"]
        self.seconds_before = state["seconds"]
        self.next_evaluation, self.next_checkpoint = state["next_evaluation"], state["next_checkpoint"]
        self.curve = [CurvePoint(*point) for point in state["curve"]]
        self.training_returns.extend(state["training_returns"])
        self.watch.seconds.update(state["activities"])
        self.learner.load_state_dict(state["learner"])
        for actor, one in zip(self.actors, state["actors"], strict=True):
            actor.load_state_dict(one)

    def _finish(self) -> Result:
        evaluation = self.confirmation or self._timed_evaluation(self.confirming)
        self._save()
        seconds = self._seconds()
        self.emit(self._progress())
        result = Result(
            topology=self.topology,
            env_steps=self.env_steps,
            seconds=seconds,
            confirmed=self.confirmed,
            evaluation=evaluation,
            curve=tuple(self.curve),
            replay=replay_figures(self.client, self.topology.needs.name),
            learner=self.learner.metrics(),
            activities=dict(self.watch.seconds),
            weights=self._weights(),
        )
        self.emit(Finished(result))
        return result

    def _seconds(self) -> float:
        return self.seconds_before + time.perf_counter() - self.began

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
