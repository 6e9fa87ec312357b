"""The policy of a run's best evaluation, in a file of the run's folder: the weights that were evaluated."""

from __future__ import annotations

import json
import logging
import math
import shutil
from collections.abc import Callable
from pathlib import Path

from reverie.agents import policy_files
from reverie.agents.agent import Agent
from reverie.agents.core import Stopwatch, Weights
from reverie.agents.policies import PolicyError
from reverie.runners.checkpoints.checkpoint_files import BEST, later_than
from reverie.runners.planning.topology import Topology
from reverie.runners.reports.events import BestPolicy, Evaluated, Event, PolicyNotSaved, Started, policy_of

KEY = "reverie.evaluation"
"""The metadata with the evaluation of the policy in the file, next to those of every policy's file."""
_LOG = logging.getLogger("reverie")


class BestKeeper:
    """Writes the policy of each evaluation that is as good as the best one before. For one run and one thread.

    Without a folder it keeps nothing. The file has its own score: a run that resumes replaces it only by a policy that
    is as good, also if a kill has undone the steps of that evaluation.
    """

    def __init__(self, folder: Path | None, agent: Agent, reference: str, topology: Topology) -> None:
        self._path = None if folder is None else folder / BEST
        self._agent, self._reference, self._topology = agent, reference, topology
        self._earlier: Path | None = None
        self.best: BestPolicy | None = None
        """The best evaluation so far."""

    def resume(self, checkpoint: Path, env_steps: int) -> None:
        """Go on from the best policy of the run that is continued.

        A run that continues an older checkpoint, or one in another folder, takes no policy from after that checkpoint.
        """
        if self._path is None or env_steps == 0:
            return
        earlier = best_file(checkpoint)
        elsewhere = earlier.resolve() != self._path.resolve()
        found = read_best(self._path) or (read_best(earlier) if elsewhere else None)
        if found is None:
            return
        leaves = found.path == earlier if elsewhere else bool(later_than(checkpoint, checkpoint.parent))
        if leaves and found.env_steps > env_steps:
            return
        self.best = BestPolicy(found.env_steps, found.mean_return, self._path)
        self._earlier = None if found.path == self._path else earlier

    def on_event(self, event: object) -> None:
        """At the start of the run, remove the policy of another one that was there, or copy that of elsewhere.

        Raises OSError.
        """
        if not isinstance(event, Started) or self._path is None:
            return
        if self.best is None:
            self._path.unlink(missing_ok=True)
        elif self._earlier is not None:
            with policy_files.replacing(self._path) as draft:
                shutil.copyfile(self._earlier, draft)

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

        Of equal evaluations the later one counts: it is of more training.
        """
        mean, env_steps = event.point.mean_return, event.point.env_steps
        if self._path is None or math.isnan(mean) or (self.best is not None and mean < self.best.mean_return):
            return [event]
        policy = policy_of(self._topology, self._agent, self._reference, weights, env_steps)
        try:
            policy_files.write(policy, self._path, {KEY: json.dumps({"mean_return": mean})})
        except (OSError, TypeError, ValueError) as error:  # also settings of an agent that JSON has not
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            return [PolicyNotSaved(env_steps, self._path, reason), event]
        self.best = BestPolicy(env_steps, mean, self._path)
        return [Evaluated(event.point, event.confirmation, self.best)]


def best_file(checkpoint: Path) -> Path:
    """The file of the best policy of the run that has this checkpoint."""
    return checkpoint.absolute().parent.parent / BEST


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
