"""Problems of a run as its events report them, in words, and the events' way to the callbacks of a run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from reverie.runners.reports.events import (
    EnvironmentRestarted,
    Event,
    Finished,
    LogNotWritten,
    NotSaved,
    PolicyNotSaved,
    RoleAwaited,
    RoleRestarted,
    Saved,
    ShardMoved,
    Started,
    TrainingWaits,
    UpdatesCompiled,
    WeightsNotPublished,
)

OnEvent = Callable[[Event], None] | Sequence[Callable[[Event], None]] | None
"""One callback, several, or none."""
_LOG = logging.getLogger("reverie")


def problem_of(event: Event) -> str:
    """The problem that an event reports, as one sentence for people; empty if it reports none."""
    match event:
        case Started(topology):
            return topology.note
        case Finished(result) if not result.has_learnt:
            return "the run has made no update: its weights are those that it began with"
        case NotSaved(env_steps, path, reason, is_last):
            then = "the run ends without it, and older ones are unchanged" if is_last else "the run continues"
            return f"no checkpoint at {env_steps:,} steps: {reason} ({path}); {then}"
        case PolicyNotSaved(env_steps, path, reason):
            return f"{path} lacks the best policy, of {env_steps:,} steps: {reason}; the run does not depend on it"
        case Saved(env_steps, _, not_removed) if not_removed:
            return f"what the checkpoint at {env_steps:,} steps replaces was not removed: {not_removed}"
        case Saved(env_steps, _, _, abandoned) if abandoned:
            which = ", ".join(abandoned)
            return f"{which} removed: the run resumed an older checkpoint, and has one of its own ({env_steps:,} steps)"
        case LogNotWritten(_, name, reason):
            return f"{name} cannot be written: {reason}; the run does not depend on it"
        case WeightsNotPublished(env_steps, role, reason):
            room = "make room, in a container with a larger /dev/shm (docker run --shm-size)"
            return f"{role} cannot publish its weights: {reason}; {room} ({env_steps:,} steps)"
        case RoleRestarted(env_steps, role, reason, resumed_from):
            return f"{role} ended ({reason}) and was restarted from {resumed_from} ({env_steps:,} steps)"
        case ShardMoved(env_steps, role, before, now, followed_by):
            restarted = f"; restarted for it: {', '.join(followed_by)}" if followed_by else ""
            return f"{role} moved from {before} to {now}{restarted} ({env_steps:,} steps)"
        case RoleAwaited(env_steps, role, seconds, reason, begun):
            lacks = f": it {reason}" if reason else "" if begun else ", which is slow to start"
            waits = f"{role} has not reported" if begun else f"waiting for {role}"
            return f"{waits} for {seconds:.0f} s{lacks} ({env_steps:,} steps)"
        case TrainingWaits(env_steps, seconds, reason, most):
            ends = f"after {most:.0f} s the run ends"
            return f"no step and no update for {seconds:.0f} s: {reason}; {ends} ({env_steps:,} steps)"
        case UpdatesCompiled(_, note) if note.reason:
            return f"updates are not compiled: {note.reason}"
        case EnvironmentRestarted(env_steps, crash):
            where = f"at step {crash.step} from seed {crash.seed}"
            return f"{crash.env_id} raised {where}, and was created again ({env_steps:,} steps): {crash.error}"
    return ""


class EventReporter:
    """Passes the events of a run to its callbacks, in order, and logs the problems that they report.

    A callback with a true attribute `shows_problems`, such as that of `reverie train`, shows them itself. A callback
    that is a log (`logs.EventLog`) and no longer writes is reported once, as `LogNotWritten`. `notes` are sentences on
    how the run was set up, logged with its start in the same way.
    """

    def __init__(self, callbacks: Sequence[Callable[[Event], None]], notes: Sequence[str] = ()) -> None:
        self._callbacks, self._notes = tuple(callbacks), tuple(notes)
        self._shown = any(getattr(one, "shows_problems", False) for one in self._callbacks)
        self._failed: set[int] = set()

    def __call__(self, event: Event) -> None:
        """Pass one event on. Raises what a callback raises."""
        notes = self._notes if isinstance(event, Started) else ()
        for problem in () if self._shown else filter(None, (*notes, problem_of(event))):
            _LOG.warning("%s", problem)
        for index, callback in enumerate(self._callbacks):
            callback(event)
            reason = _problem_of_log(callback)
            if reason and index not in self._failed:
                self._failed.add(index)
                self(LogNotWritten(env_steps_of(event), callback.name, reason))  # type: ignore[attr-defined]


def callbacks_of(on_event: OnEvent) -> tuple[Callable[[Event], None], ...]:
    """The callbacks of the argument `on_event`. Raises TypeError."""
    if on_event is None:
        return ()
    if callable(on_event):
        return (on_event,)
    several: Any = on_event
    if not isinstance(several, Sequence) or not all(map(callable, several)):
        raise TypeError(f"on_event must be a function, or a list of some, got {on_event!r}")
    return tuple(several)


def env_steps_of(event: Any) -> int:
    """The environment steps at which an event was reported."""
    for part in ("point", "result"):
        event = getattr(event, part, event)
    steps: int = event.env_steps
    return steps


def _problem_of_log(callback: Any) -> str:
    problem = getattr(callback, "problem", "")
    return problem if isinstance(problem, str) and isinstance(getattr(callback, "name", None), str) else ""
