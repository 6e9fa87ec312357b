"""The trials of `reverie search`: each has its settings from Optuna and one run for each seed, in processes."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reverie.cli import search_space, sweep
from reverie.cli.common import EXIT_INTERRUPTED
from reverie.cli.run_processes import RunProcesses
from reverie.cli.search_objective import SearchObjective, whole_curve
from reverie.cli.search_space import Space
from reverie.cli.train_request import TrainRequest

POLL_SECONDS = 0.5
MOST_FAILURES = 5
"""The number of trials without a result, one after another, that ends a search: its settings cannot be trained."""


@dataclass(frozen=True)
class SearchPlan:
    """The plan of a search: the run of a trial, and the settings to choose."""

    request: TrainRequest
    """The run without the searched settings and its seed."""
    folder: Path
    space: Space
    seeds: tuple[int, ...]
    objective: SearchObjective
    evaluate_every: int
    max_env_steps: int

    @property
    def evaluations(self) -> int:
        """The number of evaluations of a run that goes on to its last step."""
        return -(-self.max_env_steps // self.evaluate_every)


FAILED = "failed"
"""The attribute of a trial that gave no result; a failed trial without it was interrupted."""


def was_interrupted(trial: Any) -> bool:
    """Whether an interrupt, or the end of the search's process, ended a trial."""
    from optuna.trial import TrialState

    return trial.state is TrialState.FAIL and FAILED not in trial.user_attrs


def tried(space: Space, study: Any) -> dict[tuple[float, ...], int]:
    """The first trial of each combination that ended or is under way; an interrupted one is still to be tried."""
    from optuna.trial import TrialState

    found: dict[tuple[float, ...], int] = {}
    for trial in study.get_trials(deepcopy=False):
        under_way = trial.state is not TrialState.WAITING and trial.params.keys() == space.keys()
        if under_way and not was_interrupted(trial):
            found.setdefault(search_space.key(space, trial.params), trial.number)
    return found


class SearchEndedError(RuntimeError):
    """Too many trials in a row gave no result."""


@dataclass
class _Evaluations:
    """The evaluations of one trial that its pruner has received."""

    trial: Any
    plan: SearchPlan
    before: list[float] = field(default_factory=list)
    """The objectives of the seeds that ended."""
    reported: set[int] = field(default_factory=set)

    def report(self, returns: Sequence[float]) -> bool:
        """Report the objective after each new evaluation of the seed that trains; returns whether there was one.

        The step of an evaluation counts the steps of the seeds before, so that trials are compared at the same point.
        """
        plan, new = self.plan, False
        for count in range(1, len(returns) + 1):
            within = min(count * plan.evaluate_every, plan.max_env_steps)
            step = len(self.before) * plan.max_env_steps + within
            if step not in self.reported:
                self.reported.add(step)
                so_far = [*self.before, plan.objective.of(returns[:count])]
                self.trial.report(sum(so_far) / len(so_far), step)
                new = True
        return new


@dataclass
class TrialRunner:
    """Runs the trials of a study. `folders` has the runs that are under way, by name."""

    plan: SearchPlan
    study: Any
    report: Callable[[int], None]
    """Called with the number of a trial that ended."""
    folders: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._runs = RunProcesses()
        self._lock = threading.Lock()
        """Guards the count of failures, and lets one trial at a time report its end."""
        self._drawing = threading.Lock()
        """Guards draws: each has to see the settings of the trial before."""
        self._size = search_space.size(self.plan.space)
        self._failures = 0
        self._stopped = False
        self.exhausted = False
        """Whether a trial was to be drawn and all combinations of the space were tried."""

    def run(self, number: int, jobs: int) -> None:
        """Run trials until the study has `number` that ended, or all combinations of the space; `jobs` at a time.

        On an interrupt the runs save and end. Raises `SearchEndedError`, and what Optuna raises.
        """
        with ThreadPoolExecutor(jobs) as pool:
            left = number - sum(trial.state.is_finished() for trial in self._ended())
            running: set[Future[None]] = set()
            try:
                while ((left > 0 and not self.exhausted) or running) and not self._stopped:
                    while left > 0 and len(running) < jobs and not self.exhausted:
                        running.add(pool.submit(self._run_trial))
                        left -= 1
                    ended, running = wait(running, return_when=FIRST_COMPLETED)
                    for one in ended:
                        one.result()
            finally:
                self._stopped = True
                self._runs.stop()

    def _ended(self) -> list[Any]:
        """The trials that count: not those that an interrupt ended, which a resumed search tries again."""
        return [trial for trial in self.study.get_trials(deepcopy=False) if not was_interrupted(trial)]

    def _run_trial(self) -> None:
        from optuna.trial import TrialState

        with self._drawing:
            if self._size is not None and len(tried(self.plan.space, self.study)) >= self._size:
                self.exhausted = True
                return
            trial = self.study.ask({name: part.distribution() for name, part in self.plan.space.items()})
        folder = trial.user_attrs.get("folder") or f"trial-{trial.number}"
        trial.set_user_attr("folder", folder)
        evaluations = _Evaluations(trial, self.plan)
        for seed in self.plan.seeds:
            value = self._run_seed(evaluations, folder, seed)
            if isinstance(value, float):
                evaluations.before.append(value)
                continue
            if value is TrialState.FAIL and not self._stopped:
                trial.set_user_attr(FAILED, True)
            self.study.tell(trial, state=value)
            self._ends(trial.number, failed=value is TrialState.FAIL)
            return
        self.study.tell(trial, sum(evaluations.before) / len(evaluations.before))
        self._ends(trial.number, failed=False)

    def _run_seed(self, evaluations: _Evaluations, folder: str, seed: int) -> Any:
        """Train one seed; returns its objective, or the state that ends the trial. Prunes by its evaluations."""
        from optuna.trial import TrialState

        from reverie.runners.reports import logs

        request = self._request(evaluations.trial, folder, seed)
        assert request.out is not None
        if request.resume and sweep.find_finished(request) is not None:
            pruned = False
        else:
            self.folders[request.name] = request.out
            with ThreadPoolExecutor(1) as one:
                ended = one.submit(self._runs.train, request)
                pruned = self._watch(evaluations, request, ended)
            self.folders.pop(request.name)
            code, result = ended.result()
            if result is None:
                return TrialState.PRUNED if pruned and code == EXIT_INTERRUPTED else TrialState.FAIL
        try:
            log = logs.read(request.out)
            evaluations.report(log.returns)
            value = self.plan.objective.of(whole_curve(log, self.plan.evaluations))
        except (ValueError, OSError) as error:  # a full disk may have left the log without a curve
            print(f"reverie: {request.name}: {error}", file=sys.stderr)
            return TrialState.FAIL
        return value if math.isfinite(value) else TrialState.FAIL

    def _request(self, trial: Any, folder: str, seed: int) -> TrainRequest:
        from reverie.runners.reports import logs

        plan = self.plan
        out = plan.folder / folder
        if len(plan.seeds) > 1:
            out /= f"seed-{seed}"
        return replace(
            plan.request,
            seed=seed,
            out=out,
            settings=(*plan.request.settings, *settings_of(plan.space, trial.params)),
            resume=logs.has_begun(out),
            trial=trial.number,
            silent=True,
            to_stderr=True,
        )

    def _watch(self, evaluations: _Evaluations, request: TrainRequest, run: Future[Any]) -> bool:
        """Report evaluations to Optuna until the run ends; returns whether the run was asked to end by its pruner."""
        from reverie.runners.reports import logs

        pruned, size = False, -1
        assert request.out is not None
        path = request.out / logs.LOG
        while not wait([run], timeout=POLL_SECONDS).done:
            if pruned or not path.exists() or path.stat().st_size == size:
                continue
            size = path.stat().st_size
            try:
                returns = logs.read(path).returns
            except (logs.LogError, OSError):  # it begins just now
                continue
            if evaluations.report(returns) and evaluations.trial.should_prune():
                pruned = True
                self._runs.interrupt(request.name)
        return pruned

    def _ends(self, number: int, *, failed: bool) -> None:
        if failed and self._stopped:
            return
        with self._lock:
            self._failures = self._failures + 1 if failed else 0
            failures = self._failures
            self.report(number)
        if failures >= MOST_FAILURES:
            raise SearchEndedError(
                f"{failures} trials in a row gave no result; the reason of each is above: change the space or the"
                " settings that all trials have"
            )


def settings_of(space: Space, params: Mapping[str, Any]) -> list[str]:
    """The parameters of a trial in the form of `--set`."""
    return [f"{name}={space[name].text(value)}" for name, value in params.items()]
