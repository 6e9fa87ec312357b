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
from reverie.runners.links.messages import (
    Acted,
    Bundled,
    Command,
    GoOn,
    Hold,
    Holding,
    Judge,
    Judged,
    Learnt,
    Report,
    RoleName,
    Save,
    Served,
    State,
    Stop,
)
from reverie.runners.planning.topology import Topology
from reverie.runners.reports.events import (
    EnvironmentRestarted,
    Event,
    Finished,
    NotSaved,
    Result,
    RoleRestarted,
    Saved,
    ShardMoved,
    StalledError,
    Started,
    StoppedError,
)
from reverie.runners.reports.run_progress import RunProgress
from reverie.runners.supervision.absences import AbsenceReporter
from reverie.runners.supervision.latest_reports import LatestReports
from reverie.runners.supervision.role_group import EVALUATOR, RoleGroup
from reverie.runners.supervision.stage import Stage

LISTEN_SECONDS = 0.05
PROGRESS_SECONDS = 0.1
ANSWER_SECONDS = 600.0
"""Timeout for a role to become ready, and to answer a command that it can answer at once."""
EVALUATION_SECONDS = 7200.0
"""Timeout for the episodes of an evaluation."""
SAVE_SECONDS = 7200.0
"""Timeout for writing a checkpoint: a large replay goes to a disk that may be slow."""
END_SECONDS = 30.0
"""Time that a role has to end before it is killed."""
STALL_SECONDS = 300.0
"""After so long without a step or an update the run ends, and reports what its roles wait for."""


class _StopAsked(Exception):
    pass


class Supervisor:
    """Supervises one run on a stage. For one run and one thread."""

    def __init__(
        self,
        agent: Agent,
        topology: Topology,
        stage: Stage,
        emit: Callable[[Event], None],
        *,
        checkpoint_folder: Path | None,
        resume: Path | None,
        state: dict[str, Any] | None,
        should_stop: Callable[[], bool],
    ) -> None:
        self._topology, self._stage, self._emit, self._folder = topology, stage, emit, checkpoint_folder
        self._account = RunProgress(topology)
        if state is not None:
            self._account.load_state_dict(state)
        self._from = self._account.env_steps
        self._agent = agent
        checkpointers = checkpoints.replay_checkpointers(checkpoint_folder, resume, topology.num_servers)
        self._roles = RoleGroup(
            stage,
            agent,
            topology,
            checkpointers,
            state=state,
            on_report=self._heard,
            on_restart=self._restarted,
            on_move=self._moved_to,
        )
        self._should_stop = should_stop
        self._answers: dict[tuple[RoleName, type[Report]], Any] = {}
        self._latest = LatestReports([] if state is None else state["actors"])
        self._number = 0
        self._judged: tuple[int, Judged] | None = None
        """The version of the weights that were judged last, and their evaluation."""
        self._source = stage.weights.source()
        self._next_progress = 0.0
        self._moved = (0.0, -1, -1)
        """When the counts of steps and updates last changed, and the counts."""
        self._awaiting = AbsenceReporter(STALL_SECONDS)
        self._saved: Path | None = resume
        """The newest checkpoint."""

    def run(self, stop_when_confirmed: bool) -> Result:
        """Run from start to end. Raises as `launch.train` does."""
        run, account = self._topology.run, self._account
        self._emit(Started(self._topology, account.env_steps, tuple(account.curve)))
        account.begin()
        try:
            self._start()
            while account.env_steps < run.max_env_steps:
                self._until(lambda: self._due, "the next evaluation or checkpoint", None)
                if account.evaluation_due:
                    self._evaluate()
                    if account.confirmed and stop_when_confirmed:
                        break  # with the learner still holding
                    self._tell_learners(GoOn())
                if account.checkpoint_due:
                    self._save()
        except _StopAsked:
            self._should_stop = lambda: False
            path = None
            if account.env_steps > self._from:
                self._until(self._begun, "all roles to start")
                self._end(self._roles.actors)
                self._hold()
                path = self._save()
                self._end([*self._roles.learners, EVALUATOR])
                self._end(self._roles.keepers)
            raise StoppedError(account.env_steps, path) from None
        return self._finish()

    # Listening.

    def _until(
        self,
        done: Callable[[], bool],
        what: str,
        seconds: float | None = ANSWER_SECONDS,
        meanwhile: Callable[[], object] | None = None,
    ) -> None:
        """Handle the roles' reports, and call `meanwhile` in every turn, until `done` returns True.

        Raises a TimeoutError that names `what` after `seconds`, and `_StopAsked` when a stop is requested.
        """
        began = self._roles.heard.seconds
        while not done():
            self._roles.listen(LISTEN_SECONDS)
            self._tell_awaited()
            self._tell_progress()
            if self._should_stop():
                raise _StopAsked
            if seconds is not None and self._roles.heard.seconds - began > seconds:
                raise TimeoutError(f"waited {seconds:g} s for {what}; {self._why()}")
            self._refuse_to_stall(waiting_for_training=seconds is None)
            if meanwhile is not None:
                meanwhile()

    def _ask(
        self,
        names: list[RoleName],
        command: Save | Hold | Judge,
        answer: type[Any],
        seconds: float = ANSWER_SECONDS,
        meanwhile: Callable[[], object] | None = None,
    ) -> list[Any]:
        """Send a command to all roles in `names`; returns their answers to this command, by its number."""
        keys = [(name, answer) for name in names]
        for key in keys:
            self._answers.pop(key, None)
            self._roles.ask(key[0], command)

        def answered() -> bool:
            found = (self._answers.get(key) for key in keys)
            return all(one is not None and one.number == command.number for one in found)

        whom = str(names[0]) if len(names) == 1 else f"{names[0]} and {len(names) - 1} others"
        self._until(answered, f"the response of {whom} to {type(command).__name__}", seconds, meanwhile)
        return [self._answers.pop(key) for key in keys]

    def _tell_learners(self, command: Command) -> None:
        for name in self._roles.learners:
            self._roles.ask(name, command)

    def _heard(self, name: RoleName, report: Report) -> None:
        account = self._account
        match report:
            case Bundled():
                for part in (report.acted, report.learnt, report.served):
                    self._heard(name, part)
            case Acted():
                self._latest.acted[name.index] = report
                account.env_steps = self._latest.env_steps
                account.training_returns.extend(report.returns)
                self._add(report.seconds)
                for crash in report.crashes:
                    self._emit(EnvironmentRestarted(account.env_steps, crash))
                if account.env_steps >= self._topology.run.max_env_steps:
                    self._end_actors()
            case Learnt():
                self._latest.learnt[name.index] = report
                account.updates = self._latest.updates
                self._add(report.seconds)
            case Served():
                self._latest.served[name.index] = report
            case State() | Holding() | Judged():
                self._answers[name, type(report)] = report

    def _add(self, seconds: dict[str, float]) -> None:
        for activity, spent in seconds.items():
            self._account.watch.add(activity, spent)

    def _restarted(self, name: RoleName, reason: str, went_on_from: str, restarts: int) -> None:
        self._emit(RoleRestarted(self._account.env_steps, str(name), reason, went_on_from, restarts))

    def _moved_to(self, shard: RoleName, before: str, now: str, followers: Sequence[RoleName]) -> None:
        self._emit(ShardMoved(self._account.env_steps, str(shard), before, now, tuple(map(str, followers))))

    def _refuse_to_stall(self, *, waiting_for_training: bool) -> None:
        now, counts = self._roles.heard.seconds, (self._account.env_steps, self._account.updates)
        if not waiting_for_training or counts != self._moved[1:]:
            self._moved = (now, *counts)
        elif now - self._moved[0] > STALL_SECONDS:
            raise StalledError(self._topology.needs.name, self._why())

    def _why(self) -> str:
        return self._latest.why(self._roles.awaited())

    def _tell_awaited(self) -> None:
        if self._awaiting.is_due(time.monotonic()):
            for event in self._awaiting.look(self._roles.awaited(), self._account.env_steps, self._saved):
                self._emit(event)

    def _tell_progress(self) -> None:
        if self._account.seconds() >= self._next_progress:
            self._next_progress = self._account.seconds() + PROGRESS_SECONDS
            self._emit(self._progress())

    def _progress(self) -> Any:
        lag = self._latest.policy_lag(self._account.updates)
        return self._account.progress(self._metrics(), self._latest.figures(), lag, self._awaiting.text)

    def _metrics(self) -> dict[str, float]:
        return self._latest.metrics(self._agent, self._account.updates)

    # The course.

    def _start(self) -> None:
        self._roles.start_keepers()
        self._until(self._roles.all_ready, "all shards to start")
        self._roles.start_others()
        self._until(self._begun, "all roles to start")

    def _begun(self) -> bool:
        acted = len(self._latest.acted) == self._topology.num_actors
        return acted and self._source.ready and self._roles.all_ready()

    @property
    def _due(self) -> bool:
        account = self._account
        steps = account.env_steps
        ended = steps >= self._topology.run.max_env_steps
        return ended or steps >= min(account.next_evaluation, account.next_checkpoint)

    def _evaluate(self) -> None:
        """Evaluate for one point of the curve, while training goes on.

        If the point reaches the target, the learner pauses until its weights, which may be newer by now, are judged on
        both sets of seeds: only weights that stay the last ones can be confirmed.
        """
        env_steps, weights = self._account.env_steps, self._source.latest(newer_than=-1)
        assert weights is not None
        judged = self._judge(weights)
        if judged.screening.mean_return >= self._topology.run.target_return:
            held = self._hold()
            if held.version != weights.version:
                env_steps, judged = self._account.env_steps, self._judge(held)
        self._tell_evaluation(env_steps, judged)

    def _tell_evaluation(self, env_steps: int, judged: Judged) -> None:
        reached = judged.screening.mean_return >= self._topology.run.target_return
        self._emit(self._account.evaluated(env_steps, judged.screening, judged.confirmation if reached else None))

    def _judge(self, weights: Weights, *, confirm: bool = False) -> Judged:
        self._number += 1
        judge = Judge(self._number, weights, confirm)
        judged: Judged
        (judged,) = self._ask([EVALUATOR], judge, Judged, EVALUATION_SECONDS, self._save_if_evaluation_is_late)
        self._account.watch.add("evaluate", judged.seconds)
        self._judged = (weights.version, judged)
        return judged

    def _save_if_evaluation_is_late(self) -> None:
        """Save during an evaluation: a checkpoint that is due waits for `evaluation_seconds` at most."""
        late = self._roles.evaluation_seconds > self._topology.run.evaluation_seconds
        if late and self._account.checkpoint_due:
            self._save()

    def _hold(self) -> Weights:
        """Pause all learners; returns the newest weights, which stay the newest."""
        learners = self._roles.learners
        self._number += 1
        holding: list[Holding] = self._ask(learners, Hold(self._number), Holding)
        if len(learners) > 1:  # the first learner's weights, now that no other pushes
            self._number += 1
            holding = self._ask(learners[:1], Hold(self._number), Holding)
        return holding[0].weights

    def _save(self) -> Path | None:
        """Write a checkpoint from the states of learners and parameter shards and the tables of servers; its path.

        If the run keeps no checkpoints, only the states are collected: roles that are restarted resume from them.
        """
        self._number += 1
        roles = self._roles
        asked = [*roles.learners, *roles.parameters, *(roles.shards if self._folder is not None else [])]
        env_steps, account = self._account.env_steps, self._account
        began = time.perf_counter()
        answers: dict[RoleName, State] = dict(
            zip(asked, self._ask(asked, Save(self._number), State, SAVE_SECONDS), strict=True)
        )
        if self._folder is None:
            return None
        learners, shards = ([answers[name] for name in names] for names in (roles.learners, roles.parameters))
        tables = [answers[name] for name in (roles.shards or roles.learners)]
        assert learners[0].weights is not None
        state = {
            **account.state_dict(),
            "turn": 0,
            "weights": tuple(learners[0].weights),
            "learner": self._joined([one.state for one in learners], [one.state for one in shards]),
            "actors": [self._latest.acted[i].state for i in range(self._topology.num_actors)],
        }
        try:
            path = checkpoints.save_run(self._folder, self._topology, state, checkpoints.written(tables))
        except OSError as error:
            self._emit(NotSaved(env_steps, self._folder, error.strerror or str(error)))
            return None
        finally:
            account.watch.add("checkpoint", time.perf_counter() - began)
        self._emit(Saved(state["env_steps"], path))
        self._saved = path
        return path

    def _joined(self, learners: list[Any], shards: list[Any]) -> Any:
        """The states of learners and parameter shards joined into one, as in a run with one process."""
        shared = self._agent.parameters
        return learners[0] if shared is None or not shards else shared.join_states(learners, shards)

    def _end_actors(self) -> None:
        """Stop all actors; a bundle, which acts and learns, is paused instead."""
        last: Command = Hold(0) if self._topology.needs.bundled else Stop()
        for name in self._roles.learners if self._topology.needs.bundled else self._roles.actors:
            if type(last) not in self._roles.members[name].orders:
                self._roles.ask(name, last)

    def _end(self, names: list[RoleName]) -> None:
        """Ask roles to stop, and kill those that have not ended in time; no reports follow."""
        for name in names:
            self._roles.ask(name, Stop())
        began = self._roles.heard.seconds
        while not self._roles.all_ended(names) and self._roles.heard.seconds - began < END_SECONDS:
            self._roles.listen(LISTEN_SECONDS)
        for name in [one for one in names if not self._roles.all_ended([one])]:
            self._roles.give_up(name)

    def _finish(self) -> Result:
        account = self._account
        self._should_stop = lambda: False
        self._end(self._roles.actors)
        held = self._hold()
        if self._judged is not None and self._judged[0] == held.version:
            judged = self._judged[1]
        else:
            judged = self._judge(held, confirm=True)
            self._tell_evaluation(account.env_steps, judged)
        confirmation = judged.confirmation or self._judge(held, confirm=True).confirmation
        assert confirmation is not None
        self._save()
        # Each reports its last figures as it ends.
        self._end([*self._roles.learners, EVALUATOR])
        self._end(self._roles.keepers)
        self._emit(self._progress())
        result = account.result(confirmation, self._metrics(), self._latest.figures(), held)
        self._emit(Finished(result))
        return result
