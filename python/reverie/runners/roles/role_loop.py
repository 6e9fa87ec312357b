"""The life of a role, which is the same for all of them: made of its `Setup`, then turns, commands and reports."""

from __future__ import annotations

import time
import traceback

from reverie.errors import DamagedError, DeadlineExceededError, ReplayError, UnavailableError
from reverie.runners.links.messages import Failed, Setup, Stop
from reverie.runners.roles.heap_trim import HeapTrimmer
from reverie.runners.roles.learners import Bundle, Learner, ParameterShard
from reverie.runners.roles.role import REPORT_SECONDS, Actor, GreedyEvaluator, Link, Role, Shard

ROLES: dict[str, type[Role]] = {
    "shard": Shard,
    "parameter shard": ParameterShard,
    "learner": Learner,
    "bundle": Bundle,
    "evaluator": GreedyEvaluator,
    "actor": Actor,
}

BEGIN_SECONDS = 120.0
"""So long a role tries to begin where those whom it asks as it begins, replay or parameter shards, do not answer: they
were there a moment ago. Longer than a short life: nobody is given up for another's slowness."""
AGAIN_SECONDS = 0.2


def run_role(setup: Setup, link: Link) -> None:
    """Make a role and let it work until it is told to stop, or fails: whatever happens, the supervisor is told."""
    role: Role | None = None
    try:
        role = _made(setup)
        role.open(link)
        link.tell(role.ready())
        _loop(role, link)
    except Exception as error:
        # Of the network: a shard that went away takes those who talk to it along, and they begin again.
        of_the_network = isinstance(error, ReplayError) and not isinstance(error, DamagedError)
        transient = of_the_network or setup.name.kind == "evaluator"
        link.tell(Failed(type(error).__name__, str(error), traceback.format_exc(), transient))
    finally:
        if role is not None:
            role.close()


def _made(setup: Setup) -> Role:
    """The role. A supervisor that knows better, since a shard is elsewhere now, ends it and begins another."""
    deadline = time.monotonic() + BEGIN_SECONDS
    while True:
        try:
            return ROLES[setup.name.kind](setup)
        except (DeadlineExceededError, UnavailableError):
            if time.monotonic() >= deadline:
                raise
        time.sleep(AGAIN_SECONDS)


def _loop(role: Role, link: Link) -> None:
    next_report, memory = 0.0, HeapTrimmer()
    while True:
        for command in link.commands():
            if isinstance(command, Stop):
                _tell(role, link)
                return
            answer = role.do(command)
            if answer is not None:
                link.tell(answer)
        role.turn(link)
        if time.monotonic() >= next_report:
            _tell(role, link)
            next_report = time.monotonic() + REPORT_SECONDS
        memory.trim_if_due()


def _tell(role: Role, link: Link) -> None:
    report = role.report()
    if report is not None:
        link.tell(report)
