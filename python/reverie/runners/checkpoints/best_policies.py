"""The policy of a run's best evaluation, in a file of the run's folder: the weights that were evaluated."""

from __future__ import annotations

import json
import logging
import math
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from reverie.agents import policy_files
from reverie.agents.agent import Agent
from reverie.agents.core import Stopwatch, Weights
from reverie.agents.policy_records import PolicyError
from reverie.runners.checkpoints.checkpoint_files import ASIDE, BEST, later_than
from reverie.runners.planning.topology import Topology
from reverie.runners.reports.events import BestPolicy, Evaluated, Event, PolicyNotSaved, Saved, Started, policy_of

KEY = "reverie.evaluation"
"""The metadata with the evaluation of the policy in the file, next to those of every policy's file."""
_LOG = logging.getLogger("reverie")


class BestKeeper:
    """Writes the policy of each evaluation that is as good as the best one before. For one run and one thread.

    Without a folder it keeps nothing. The file has its own score: a run that resumes replaces it only by a policy that
    is as good, also if a kill has undone the steps of that evaluation.

    While checkpoints of the course that the run left are there, so is the best policy of that course, in a file set
    aside: if this run ends before its first checkpoint, the next one goes on from them, and from it.
    """

    def __init__(
        self, folder: Path | None, agent: Agent, reference: str, topology: Topology, *, begins_again: bool = False
    ) -> None:
        """`begins_again`: the run's first attempt ended before a checkpoint, and its policy stays until the next."""
        self._path = None if folder is None else folder / BEST
        self._agent, self._reference, self._topology = agent, reference, topology
        self._earlier: Path | None = None
        self._left_course = False
        self._begins_again = begins_again
        self.best: BestPolicy | None = None
        """The best evaluation so far."""

    def resume(self, checkpoint: Path, env_steps: int) -> None:
        """Go on from the best policy of the run that is continued.

        A run that continues an older checkpoint, or one in another folder, takes no policy from after that checkpoint.
        """
        if self._path is None or env_steps == 0:
            return
        there = best_file(checkpoint)
        elsewhere = there.resolve() != self._path.resolve()
        earlier = _aside(there) if _aside(there).exists() else there
        found = (read_best(self._path) if elsewhere else None) or read_best(earlier)
        self._left_course = not elsewhere and bool(later_than(checkpoint, checkpoint.parent))
        if found is None:
            return
        if (self._left_course or (elsewhere and found.path == earlier)) and found.env_steps > env_steps:
            return
        self.best = BestPolicy(found.env_steps, found.mean_return, self._path)
        self._earlier = None if found.path == self._path else earlier

    def on_event(self, event: object) -> None:
        """Remove another run's policy at the start of this run, or copy the policy of the folder that it continues.

        Raises OSError. Once the checkpoints of another course are removed, remove the best policy of that course.
        """
        if self._path is None:
            return
        if isinstance(event, Started):
            self._start(self._path)
        elif isinstance(event, Saved) and not event.not_removed:
            with suppress(OSError):  # the next checkpoint tries again
                _aside(self._path).unlink(missing_ok=True)

    def _start(self, path: Path) -> None:
        aside = _aside(path)
        if self._left_course and path.exists() and not aside.exists():
            _copy(path, aside)
        if self.best is None and not self._begins_again:
            path.unlink(missing_ok=True)
        elif self.best is not None and self._earlier is not None:
            _copy(self._earlier, path)
        if not self._left_course:
            aside.unlink(missing_ok=True)

    def report(self, event: Evaluated, weights: Weights, emit: Callable[[Event], None], watch: Stopwatch) -> None:
        """Emit the event of an evaluation of `weights`, whose policy is written first if it is the best so far."""
        if self._path is None:
            emit(event)
            return
        with watch("save the best policy"):
            events = self.keep(event, weights)
        for one in events:
            emit(one)

    def keep(self, event: Evaluated, weights: Weights) -> list[Event]:
        """Write the policy if it is the best so far; returns the events to emit.

        If two evaluations are equal, the later one counts: it is of more training.
        """
        mean, env_steps = event.point.mean_return, event.point.env_steps
        if self._path is None or math.isnan(mean) or (self.best is not None and mean < self.best.mean_return):
            return [event]
        policy = policy_of(self._topology, self._agent, self._reference, weights, env_steps)
        try:
            policy_files.write(policy.record, policy.module, self._path, {KEY: json.dumps({"mean_return": mean})})
        except (OSError, TypeError, ValueError) as error:  # also settings of an agent that JSON has not
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            return [PolicyNotSaved(env_steps, self._path, reason), event]
        self.best = BestPolicy(env_steps, mean, self._path)
        return [Evaluated(event.point, event.confirmation, self.best)]


def _aside(path: Path) -> Path:
    """The best policy of a course that a run has left, as long as the checkpoints of that course are there."""
    return path.with_name(f"{ASIDE}{path.name}")


def _copy(source: Path, path: Path) -> None:
    with policy_files.replacing(path) as draft:
        shutil.copyfile(source, draft)


def best_file(checkpoint: Path) -> Path:
    """The file of the best policy of the run that has this checkpoint."""
    return checkpoint.absolute().parent.parent / BEST


def best_of_finished(checkpoint: Path) -> BestPolicy | None:
    """The best policy of the run that ended with this checkpoint, from where it is if another course had begun."""
    path = best_file(checkpoint)
    if _aside(path).exists() and not later_than(checkpoint, checkpoint.parent):
        with suppress(OSError):  # the policy of the other course is not this run's
            _aside(path).replace(path)
    return read_best(path)


def read_best(path: Path) -> BestPolicy | None:
    """The evaluation of the policy in this file; None if there is none, or, with a warning, for a damaged one."""
    if not path.exists():
        return None
    try:
        metadata = policy_files.metadata(path)
        steps = json.loads(metadata[policy_files.KEY])["run"]["env_steps"]
        return BestPolicy(int(steps), float(json.loads(metadata[KEY])["mean_return"]), path)
    except (PolicyError, KeyError, TypeError, ValueError) as error:
        _LOG.warning("%s is not the best policy of a run, and is replaced by the next one: %s", path, error)
        return None
