"""The local runner: one process, one thread, deterministic for a seed. Learns if the table has a batch, else acts.

The table's limiter decides which of them is next, which keeps the replay ratio; this loop never waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from reverie.agents.agent import Agent
from reverie.agents.core import Actor, CompilingLearner, EnvironmentCrashedError, Learner, Weights, seed_of
from reverie.agents.step_checks import InvalidStepError
from reverie.pages import Page
from reverie.runners import checkpoints
from reverie.runners.checked_run import CheckedRun, StopRequested
from reverie.runners.links.replay_storage import allow_again, samples_of
from reverie.runners.planning.devices import networks_on
from reverie.runners.planning.topology import Topology
from reverie.runners.reports.evaluation import Evaluation, Evaluator, confirmation_seeds, screening_seeds
from reverie.runners.reports.events import (
    EnvironmentRestarted,
    Event,
    Finished,
    PageOpened,
    Progress,
    Result,
    RoleAwaited,
    StalledError,
    Started,
    StoppedError,
    UpdatesCompiled,
)
from reverie.runners.reports.run_figures import RunFigures
from reverie.runners.reports.run_progress import PROGRESS_SECONDS, RunProgress, replay_figures
from reverie.runners.roles.heap_trim import HeapTrimmer
from reverie.server import Server

COMPILER_SECONDS = 0.02
"""Seconds between two checks of a compiler that an update waits for."""
CRASHED_EVALUATIONS = 5
"""Attempts for an evaluation in which an environment raises, fewer with `max_env_restarts`; after the last the run ends
with the error.

It ends after two in a row that raise at the same step from the same seed: further attempts would raise there, too. A
reset that raises (step 0) may fail for the moment only."""


LONG_EVALUATION = "has not finished an evaluation; if its episodes have no end, set time_limit"


def run_here(run: CheckedRun) -> Result:
    """Train in this thread. See `launch.train`."""
    agent, topology, state = run.agent, run.topology, run.state
    threads = torch.get_num_threads()
    torch.set_num_threads(topology.run.threads)
    try:
        # A table's random state is not in its checkpoint: draws after a resume must not repeat those of the start.
        fresh = seed_of(topology.seed, 0, *([] if state is None else [state["env_steps"]]))
        tables = topology.run.stored(agent.make_tables(topology.env, topology.config, seed=fresh))
        (storage,) = run.replays.storages
        disk = topology.run.server_disk(topology.name, 0, 1)
        with Server(tables, listen=False, **storage.server_options(), **disk) as server:
            lost = storage.lost_draws(server.client())
            allow_again(tables, lost)
            on_event = run.on_event if run.page is None else _shown(server, run.page, run.on_event)
            loop = _Loop(
                agent,
                topology,
                server.client(),
                on_event,
                run.checkpoint_folder,
                run.replays,
                lost,
                run.best,
                run.resume,
            )
            try:
                if state is not None:
                    loop.load_state_dict(state)
                return loop.run(run.stop_when_confirmed, run.should_stop)
            finally:
                loop.close()
    finally:
        torch.set_num_threads(threads)


def _shown(server: Server, page: Page, on_event: Callable[[Event], None]) -> Callable[[Event], None]:
    """`on_event`, which also shows the run on the page of its server."""
    server._show(page)
    figures = RunFigures()

    def emit(event: Event) -> None:
        on_event(event)
        if isinstance(event, Started):
            on_event(PageOpened(event.env_steps, page.url(server.http_address)))
        newest = figures(event)
        if newest is not None:
            server.publish(newest)

    return emit


@dataclass
class _Loop:
    agent: Agent
    topology: Topology
    client: Any
    emit: Callable[[Event], None]
    checkpoint_folder: Path | None
    replays: checkpoints.ReplayFolders
    lost: dict[str, int]
    """Draws of each table that were lost with a learner, see `ReplayStorage`."""
    best: checkpoints.BestKeeper
    newest: Path | None
    """The newest checkpoint."""
    turn: int = 0

    def __post_init__(self) -> None:
        agent, topology, seed = self.agent, self.topology, self.topology.seed
        env, config = topology.env, topology.config
        self.account = RunProgress(topology)
        self.watch = self.account.watch
        with networks_on(topology.run.device):
            self.learner: Learner = agent.make_learner(
                env, config, self.client, seed=seed_of(seed, 1), watch=self.watch
            )
        with networks_on(topology.run.policy_device):
            self.actors: list[Actor] = [
                agent.make_actor(
                    env, config, self.client, self.learner, index=i, seed=seed_of(seed, 2, i), watch=self.watch
                )
                for i in range(topology.num_actors)
            ]
            self.policy = agent.make_policy(env, config)
        self.compiling: CompilingLearner | None = None
        if topology.compiling is not None:
            self.compiling = cast("CompilingLearner", self.learner)
            self.compiling.compile_updates(topology.compiling)
        run = topology.run
        self.screening = screening_seeds(run.screening_episodes)
        self.confirming = confirmation_seeds(run.confirmation_episodes)
        self.evaluator = Evaluator(env, max(len(self.screening), len(self.confirming)))
        self.counts = checkpoints.ActorCounts(self.replays.counts_folder)

    def run(self, stop_when_confirmed: bool, should_stop: Callable[[], bool]) -> Result:
        """Run from start to end. Raises as `launch.train` does; a crash of an environment ends it with a checkpoint."""
        self.should_stop = should_stop
        try:
            return self._run(stop_when_confirmed)
        except EnvironmentCrashedError:
            self._save(is_last=True)
            raise
        except StopRequested:
            path = self._save(is_last=True)
            raise StoppedError(self.account.env_steps, path, self.newest, self._weights()) from None

    def _run(self, stop_when_confirmed: bool) -> Result:
        run, account = self.topology.run, self.account
        self.emit(Started(self.topology, account.env_steps, tuple(account.curve)))
        account.begin()
        if self.replays.journaled and not self.replays.continued:
            self._save()  # from now on there is a learner to continue with what is in the journal
        next_progress, memory = account.seconds(), HeapTrimmer()
        while account.env_steps < run.max_env_steps:
            self._check_stop()
            if self._advance():
                if account.env_steps >= run.max_env_steps:
                    self._save()  # before the last evaluation, which may hang or be killed
                if account.evaluation_due:
                    self._evaluate()
                    if account.confirmed and stop_when_confirmed:
                        break
                if account.checkpoint_due and account.env_steps < run.max_env_steps:
                    self._save()
            if account.seconds() >= next_progress:
                next_progress = account.seconds() + PROGRESS_SECONDS
                self._report_compiled()
                self.counts.write_if_due(self._actor_states)
                self.emit(self._progress())
            memory.trim_if_due()
        if not account.curve or account.curve[-1].env_steps < account.env_steps:
            self._evaluate()
        return self._finish()

    def _check_stop(self) -> None:
        if self.should_stop():
            raise StopRequested

    def _advance(self) -> bool:
        """Learn if the table allows it, else let one actor act; returns whether an actor did.

        If actors have tables of their own, the table of the next actor decides.
        """
        needs = self.topology.needs
        table = needs.table_of(self.turn)
        if self.client.can_sample(table, needs.batch_size):
            if self.compiling is not None and not self.compiling.ready():
                with self.watch("wait for the compiler"):
                    time.sleep(COMPILER_SECONDS)
                return False
            self.learner.learn()
            self.account.updates += 1
            return False
        if not self.client.can_insert(table, needs.inserts_per_act):
            raise StalledError(table, self.client.why(table))
        actor = self.actors[self.turn]
        self.turn = (self.turn + 1) % len(self.actors)
        self.account.env_steps += actor.act()
        self.account.training_returns.extend(actor.drain_returns())
        for crash in actor.drain_crashes():
            self.emit(EnvironmentRestarted(self.account.env_steps, crash))
        return True

    def _evaluate(self) -> None:
        """Evaluate the last weights for the curve; if they reach the target, confirm them on other seeds."""
        weights = self._weights()
        self.policy.load(weights)
        screening = self._timed_evaluation(self.screening)
        reached = self.topology.run.reached_by(screening.mean_return)
        confirmation = self._timed_evaluation(self.confirming) if reached else None
        evaluated = self.account.evaluated(self.account.env_steps, screening, confirmation)
        self.best.report(evaluated, weights, self.emit, self.watch)

    def _timed_evaluation(self, seeds: tuple[int, ...]) -> Evaluation:
        crashes: list[tuple[int, int]] = []
        restarts = self.topology.env.settings.max_env_restarts
        attempts = CRASHED_EVALUATIONS if restarts is None else min(CRASHED_EVALUATIONS, 1 + restarts)
        with self.watch("evaluate"):
            while True:
                try:
                    return self.evaluator.evaluate(self.policy, seeds, self._while_evaluating())
                except InvalidStepError:
                    raise
                except EnvironmentCrashedError as error:
                    self.emit(EnvironmentRestarted(self.account.env_steps, error.crash))
                    place = error.crash.seed, error.crash.step
                    if len(crashes) + 1 >= attempts or (error.crash.step > 0 and place in crashes[-1:]):
                        raise
                    crashes.append(place)

    def _while_evaluating(self) -> Callable[[], None]:
        """A function for every step of an evaluation: ends it if a stop is requested, and warns once if it is long."""
        began, limit, warned = time.perf_counter(), self.topology.run.evaluation_seconds, False

        def check() -> None:
            nonlocal warned
            self._check_stop()
            seconds = time.perf_counter() - began
            if seconds > limit and not warned:
                warned = True
                self.emit(RoleAwaited(self.account.env_steps, "evaluator", seconds, LONG_EVALUATION, begun=True))

        return check

    def _weights(self) -> Weights:
        weights = self.learner.latest(newer_than=-1)
        assert weights is not None
        return weights

    def _figures(self) -> dict[str, float]:
        return replay_figures(self.client, *self.topology.needs.tables)

    def _progress(self) -> Progress:
        return self.account.progress(self.learner.metrics(), self._figures())

    def _save(self, *, is_last: bool = False) -> Path | None:
        if self.checkpoint_folder is None:
            return None
        env_steps = self.account.env_steps
        try:
            with self.watch("checkpoint"):
                tables = Path(self.client.checkpoint())
                path = checkpoints.save_run(
                    self.checkpoint_folder, self.agent, self.topology, self.state_dict(), [tables]
                )
                saved = checkpoints.replace_older(path, [tables], self.replays)
        except OSError as error:
            folder = self.checkpoint_folder
            self.emit(checkpoints.not_saved(folder, env_steps, error, self.replays, is_last=is_last))
            return None
        self.emit(saved)
        self.newest = path
        return path

    def state_dict(self) -> dict[str, Any]:
        return {
            **self.account.state_dict(),
            "turn": self.turn,
            "weights": self._weights(),
            "learner": self.learner.state_dict(),
            "actors": self._actor_states(),
            **self.replays.state_dict([{"samples": samples_of(self.client), "lost": self.lost}]),
        }

    def _actor_states(self) -> list[dict[str, Any]]:
        return [actor.state_dict() for actor in self.actors]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.account.load_state_dict(state)
        self.turn = state["turn"]
        self.learner.load_state_dict(state["learner"])
        for actor, one in zip(self.actors, state["actors"], strict=True):
            actor.load_state_dict(one)

    def _report_compiled(self) -> None:
        for note in () if self.compiling is None else self.compiling.drain_compile_notes():
            self.emit(UpdatesCompiled(self.account.env_steps, note))

    def _finish(self) -> Result:
        self._report_compiled()
        self.policy.load(self._weights())  # a run that resumed after its last step has evaluated none
        evaluation = self.account.confirmation or self._timed_evaluation(self.confirming)
        self.account.end(evaluation, self.learner.metrics(), self._figures())
        self._save(is_last=True)
        self.emit(self._progress())
        result = self.account.result(self.agent, evaluation, self.learner.metrics(), self._figures(), self._weights())
        self.emit(Finished(result))
        return result

    def close(self) -> None:
        if self.compiling is not None:
            self.compiling.stop_compiling()
        for actor in self.actors:
            actor.close()
        self.evaluator.close()
