"""The course of a distributed run: act and learn, evaluate, save, end. The same for every runner.

All waiting is done in one place, `_until`: during every wait the roles' reports are handled, roles that end are
restarted, progress is reported, and a request to stop is honoured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from reverie.agents.agent import Agent
from reverie.agents.core import Weights
from reverie.runners import checkpoints
from reverie.runners.checked_run import StopRequested
from reverie.runners.links.messages import (
    ActAgain,
    ActorReport,
    BundleReport,
    Command,
    Evaluate,
    EvaluationDone,
    LearnerReport,
    PauseUpdates,
    Report,
    ResumeUpdates,
    RoleName,
    SavedState,
    ShardReport,
    Stop,
    UpdatesPaused,
)
from reverie.runners.planning.topology import Topology
from reverie.runners.reports.evaluation import Evaluation
from reverie.runners.reports.events import (
    EnvironmentRestarted,
    Event,
    Finished,
    Result,
    RoleRestarted,
    ShardMoved,
    StalledError,
    Started,
    StoppedError,
    TrainingWaits,
    UpdatesCompiled,
    WeightsNotPublished,
)
from reverie.runners.reports.run_progress import PROGRESS_SECONDS, RunProgress
from reverie.runners.supervision.absences import AbsenceReporter
from reverie.runners.supervision.held_weights import HeldWeights, are_same
from reverie.runners.supervision.latest_reports import LatestReports
from reverie.runners.supervision.lost_unrolls import LostUnrolls, RoleWait
from reverie.runners.supervision.requests import ANSWER_SECONDS, RoleRequests
from reverie.runners.supervision.role_backend import RoleBackend
from reverie.runners.supervision.role_group import EVALUATOR, RoleGroup
from reverie.runners.supervision.run_saver import RunSaver
from reverie.runners.supervision.stalls import StallWatch

LISTEN_SECONDS = 0.05
EVALUATION_SECONDS = 7200.0
"""Timeout for the episodes of an evaluation."""
END_SECONDS = 30.0
"""Time that a role has to end before it is killed."""
STALL_SECONDS = 300.0
"""Seconds without a step or an update after which the run ends, and reports what its roles wait for."""


class Supervisor:
    """Supervises one run on a backend. For one run and one thread."""

    def __init__(
        self,
        agent: Agent,
        topology: Topology,
        backend: RoleBackend,
        emit: Callable[[Event], None],
        *,
        checkpoint_folder: Path | None,
        resume: Path | None,
        state: dict[str, Any] | None,
        replays: checkpoints.ReplayFolders,
        best: checkpoints.BestKeeper,
        should_stop: Callable[[], bool],
    ) -> None:
        self._topology, self._backend, self._emit, self._best = topology, backend, emit, best
        self._account = RunProgress(topology)
        if state is not None:
            self._account.load_state_dict(state)
        self._first_step = self._account.env_steps
        self._agent = agent
        self._replays, self._counts = replays, checkpoints.ActorCounts(replays.counts_folder)
        self._roles = RoleGroup(
            backend,
            agent,
            topology,
            replays.storages,
            state=state,
            on_report=self._on_report,
            on_restart=self._on_restart,
            on_move=self._on_move,
        )
        self._saver = RunSaver(
            checkpoint_folder, agent, topology, self._roles, replays, self._account, emit, newest=resume
        )
        self._should_stop = should_stop
        self._requests = RoleRequests(self._roles, self._until)
        self._latest = LatestReports([] if state is None else state["actors"])
        self._last_evaluation: tuple[Weights, EvaluationDone] | None = None
        """The weights that were evaluated last, and their evaluation."""
        self._held: HeldWeights | None = None
        """The newest weights, while all learners are paused with them."""
        self._source = backend.weights.source()
        self._next_progress = 0.0
        self._stalls = StallWatch()
        self._awaiting = AbsenceReporter(STALL_SECONDS)
        self._lost_unrolls = LostUnrolls()

    def run(self, stop_when_confirmed: bool) -> Result:
        """Run from start to end. Raises as `launch.train` does."""
        run, account = self._topology.run, self._account
        self._emit(Started(self._topology, account.env_steps, tuple(account.curve)))
        account.begin()
        try:
            self._start()
            if self._replays.journaled and not self._replays.continued:
                self._save()  # from now on there is a learner to continue with what is in the journal
            while account.env_steps < run.max_env_steps:
                self._until(lambda: self._due, "the next evaluation or checkpoint", None)
                if account.env_steps >= run.max_env_steps:
                    break
                if account.evaluation_due:
                    self._evaluate()
                    if account.confirmed and stop_when_confirmed:
                        break  # with the learner still holding
                    self._resume_learners()
                if account.env_steps < run.max_env_steps and account.checkpoint_due:
                    self._save()
            held, confirmation = self._evaluate_last()
        except StopRequested:
            self._should_stop, path = (lambda: False), None
            if account.env_steps > self._first_step:
                # Only for what a checkpoint needs: a role that is being replaced may take long to start.
                self._until(self._all_acted, "all actors to act")
                self._end(self._roles.actors)
                path = self._save(self._hold(), is_last=True)
                self._end(self._roles.learners)
                if self._roles.is_evaluating:  # for minutes, perhaps, and nothing is kept of it
                    self._roles.kill(EVALUATOR)
                else:
                    self._end([EVALUATOR])
                self._end(self._roles.all_shards)
            weights = None if self._held is None else self._held.weights
            raise StoppedError(account.env_steps, path, self._saver.newest, weights) from None
        return self._finish(held, confirmation)

    # Listening.

    def _until(
        self,
        done: Callable[[], bool],
        what: str,
        seconds: float | None = ANSWER_SECONDS,
        meanwhile: Callable[[], object] | None = None,
    ) -> None:
        """Handle the roles' reports, and call `meanwhile` in every turn, until `done` returns True.

        Raises a TimeoutError that names `what` after `seconds`, and `StopRequested` when a stop is requested.
        """
        began = self._roles.clock.seconds
        while not done():
            self._roles.listen(LISTEN_SECONDS)
            self._replace_lost_unrolls()
            self._emit_awaited()
            self._emit_progress()
            if self._should_stop():
                raise StopRequested
            if seconds is not None and self._roles.clock.seconds - began > seconds:
                raise TimeoutError(f"waited {seconds:g} s for {what}; {self._why()}")
            self._check_stalled(waiting_for_training=seconds is None)
            if meanwhile is not None:
                meanwhile()

    def _on_report(self, name: RoleName, report: Report) -> None:
        account = self._account
        match report:
            case BundleReport():
                for part in (report.acted, report.learnt, report.served):
                    self._on_report(name, part)
            case ActorReport():
                self._latest.acted[name.index] = report
                account.env_steps = self._latest.env_steps
                account.training_returns.extend(report.returns)
                self._add(report.seconds)
                for crash in report.crashes:
                    self._emit(EnvironmentRestarted(account.env_steps, crash))
                if account.env_steps >= self._topology.run.max_env_steps:
                    self._end_actors()
            case LearnerReport():
                self._latest.learnt[name.index] = report
                account.updates = self._latest.updates if self._held is None else self._held.weights.version
                self._add(report.seconds)
                if report.unpublished:
                    self._emit(WeightsNotPublished(account.env_steps, str(name), report.unpublished))
                for note in report.compiled:
                    self._emit(UpdatesCompiled(account.env_steps, note))
            case ShardReport():
                self._latest.served[name.index] = report
            case SavedState() | UpdatesPaused() | EvaluationDone():
                self._requests.receive(name, report)

    def _add(self, seconds: dict[str, float]) -> None:
        for activity, spent in seconds.items():
            self._account.watch.add(activity, spent)

    def _on_restart(self, name: RoleName, reason: str, resumed_from: str, restarts: int) -> None:
        self._latest.forget_wait(name)
        self._emit(RoleRestarted(self._account.env_steps, str(name), reason, resumed_from, restarts))

    def _on_move(self, shard: RoleName, before: str, now: str, followers: Sequence[RoleName]) -> None:
        self._emit(ShardMoved(self._account.env_steps, str(shard), before, now, tuple(map(str, followers))))

    def _check_stalled(self, *, waiting_for_training: bool) -> None:
        counts = self._account.env_steps, self._account.updates
        seconds = self._stalls.seconds(self._roles.clock.seconds, counts, waits_for_training=waiting_for_training)
        if seconds > STALL_SECONDS:
            raise StalledError(self._topology.needs.name, self._why())
        if self._stalls.is_due(seconds) and not self._awaiting.text:  # else the roles are reported that it waits for
            self._emit(TrainingWaits(counts[0], seconds, self._why(), STALL_SECONDS))

    def _why(self) -> str:
        return self._latest.why(self._roles.awaited())

    def _replace_lost_unrolls(self) -> None:
        """Let actors of an on-policy agent act again if they and the learner wait for each other."""
        roles = self._roles
        names = [*roles.actors, *roles.learners] if self._topology.needs.on_policy else []
        if names and self._lost_unrolls.found(
            RoleWait(self._latest.waits(one), roles.reported_at(one)) for one in names
        ):
            roles.send_once(roles.actors, ActAgain())

    def _emit_awaited(self) -> None:
        if self._awaiting.is_due(time.monotonic()):
            for event in self._awaiting.check(self._roles.awaited(), self._account.env_steps, self._saver.newest):
                self._emit(event)

    def _emit_progress(self) -> None:
        if self._account.seconds() >= self._next_progress:
            self._next_progress = self._account.seconds() + PROGRESS_SECONDS
            if len(self._latest.acted) == self._topology.num_actors:
                self._counts.write_if_due(self._actor_states)
            self._emit(self._progress())

    def _actor_states(self) -> list[dict[str, Any]]:
        return [self._latest.acted[i].state for i in range(self._topology.num_actors)]

    def _progress(self) -> Any:
        lag = self._latest.policy_lag(self._account.updates)
        return self._account.progress(self._metrics(), self._latest.figures(), lag, self._awaiting.text)

    def _metrics(self) -> dict[str, float]:
        return self._latest.metrics(self._agent, self._account.updates)

    # The course.

    def _start(self) -> None:
        self._roles.start_shards()
        self._until(self._roles.all_ready, "all shards to start")
        self._roles.start_others(trains=self._account.env_steps < self._topology.run.max_env_steps)
        self._until(self._all_started, "all roles to start")

    def _all_started(self) -> bool:
        return self._all_acted() and self._roles.all_ready()

    def _all_acted(self) -> bool:
        """Whether there are weights, and a state of each actor, also of one that is being replaced."""
        return len(self._latest.acted) == self._topology.num_actors and self._source.ready

    @property
    def _due(self) -> bool:
        account = self._account
        steps = account.env_steps
        ended = steps >= self._topology.run.max_env_steps
        return ended or steps >= min(account.next_evaluation, account.next_checkpoint)

    def _evaluate(self) -> None:
        """Evaluate for one point of the curve, while training continues.

        If the point reaches the target, the learner pauses until its weights, which may be newer by now, are evaluated
        on both sets of seeds: only weights that stay the last ones can be confirmed.
        """
        env_steps, weights = self._account.env_steps, self._source.latest(newer_than=-1)
        assert weights is not None
        evaluated = self._evaluate_weights(weights)
        if self._topology.run.reached_by(evaluated.screening.mean_return):
            held = self._hold().weights
            if not are_same(held, weights):
                env_steps, evaluated, weights = self._account.env_steps, self._evaluate_weights(held), held
        self._emit_evaluation(env_steps, evaluated, weights)

    def _emit_evaluation(self, env_steps: int, evaluated: EvaluationDone, weights: Weights) -> None:
        confirmation = evaluated.confirmation
        reached = self._topology.run.reached_by(evaluated.screening.mean_return)
        event = self._account.evaluated(env_steps, evaluated.screening, confirmation if reached else None)
        self._best.report(event, weights, self._emit, self._account.watch)

    def _evaluate_weights(self, weights: Weights, *, confirm: bool = False) -> EvaluationDone:
        evaluated: EvaluationDone = self._requests.ask(
            [EVALUATOR], lambda number: Evaluate(number, weights, confirm), EVALUATION_SECONDS, self._save_if_late
        )[EVALUATOR]
        self._account.watch.add("evaluate", evaluated.seconds)
        self._last_evaluation = (weights, evaluated)
        return evaluated

    def _save_if_late(self) -> None:
        """Save during an evaluation: a checkpoint that is due waits for `evaluation_seconds` at most."""
        late = self._roles.evaluation_seconds > self._topology.run.evaluation_seconds
        if late and self._account.checkpoint_due:
            self._save()

    def _hold(self) -> HeldWeights:
        """Pause all learners; returns the newest weights, which stay the newest also if a role is restarted."""
        roles = self._roles
        self._requests.ask(roles.learners, PauseUpdates)
        states = self._requests.states(roles.learning, tables=False)
        weights = states[roles.learners[0]].weights
        assert weights is not None
        self._held = HeldWeights(weights, states)
        return self._held

    def _resume_learners(self) -> None:
        self._held = None
        for name in self._roles.learners:
            self._roles.ask(name, ResumeUpdates())

    def _save(self, held: HeldWeights | None = None, *, is_last: bool = False) -> Path | None:
        """Collect the states of roles, and write them as a checkpoint if the run keeps any; returns its path.

        `held` are the weights of the checkpoint, also if the learner that had them was restarted since. `is_last` is
        whether the run ends with it.
        """
        env_steps, began = self._account.env_steps, time.perf_counter()
        states = self._requests.states(self._saver.roles_to_ask, tables=True)
        if held is not None:
            states |= {name: one.with_tables_of(states[name]) for name, one in held.states.items()}
        return self._saver.save(states, self._actor_states, env_steps=env_steps, began=began, is_last=is_last)

    def _end_actors(self) -> None:
        """Stop all actors; a bundle, which acts and learns, is paused instead."""
        last: Command = PauseUpdates(0) if self._topology.needs.bundled else Stop()
        for name in self._roles.learners if self._topology.needs.bundled else self._roles.actors:
            if type(last) not in self._roles.members[name].unanswered:
                self._roles.ask(name, last)

    def _end(self, names: list[RoleName]) -> None:
        """Ask roles to stop, and kill those that have not ended in time or not started yet; no reports follow."""
        for name in names:
            if self._roles.members[name].ready is None:
                self._roles.kill(name)
            else:
                self._roles.ask(name, Stop())
        began = self._roles.clock.seconds
        while not self._roles.all_ended(names) and self._roles.clock.seconds - began < END_SECONDS:
            self._roles.listen(LISTEN_SECONDS)
        for name in [one for one in names if not self._roles.all_ended([one])]:
            self._roles.kill(name)

    def _evaluate_last(self) -> tuple[HeldWeights, Evaluation]:
        """Pause all learners; returns the weights they have, and these weights' evaluation on the confirmation seeds.

        They are saved before they are evaluated: an evaluation may hang or be killed.
        """
        account = self._account
        self._end(self._roles.actors)
        held = self._held or self._hold()  # those that were confirmed, if any were
        last = self._last_evaluation
        evaluated = last[1] if last is not None and are_same(last[0], held.weights) else None
        if evaluated is None or evaluated.confirmation is None:
            if account.checkpoint_due or account.env_steps > self._first_step:  # then none is due while it evaluates
                self._save(held)
            confirmed = self._evaluate_weights(held.weights, confirm=True)
            if evaluated is None:
                self._emit_evaluation(account.env_steps, confirmed, held.weights)
            evaluated = confirmed
        assert evaluated.confirmation is not None
        return held, evaluated.confirmation

    def _finish(self, held: HeldWeights, confirmation: Evaluation) -> Result:
        account = self._account
        self._should_stop = lambda: False
        account.end(confirmation, self._metrics(), self._latest.figures())
        self._save(held, is_last=True)
        # Each reports its last figures as it ends.
        self._end([*self._roles.learners, EVALUATOR])
        self._end(self._roles.all_shards)
        self._emit(self._progress())
        result = account.result(self._agent, confirmation, self._metrics(), self._latest.figures(), held.weights)
        self._emit(Finished(result))
        return result
