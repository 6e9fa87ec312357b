"""The loop that all roles share: a role is made from its `RoleSetup`, then takes turns, commands and sends reports."""

from __future__ import annotations

import time
import traceback

from reverie.agents.core import EnvironmentCrashedError
from reverie.agents.error_places import place_of
from reverie.agents.step_checks import InvalidStepError
from reverie.errors import (
    ClosedError,
    DeadlineExceededError,
    ProtocolError,
    ResourceExhaustedError,
    StorageError,
    UnauthenticatedError,
    UnavailableError,
    UnknownKeyError,
    UnknownTableError,
)
from reverie.runners.links.messages import RoleFailed, RoleSetup, Stop
from reverie.runners.links.weights import NO_ROOM
from reverie.runners.roles.bundle import BundleRole
from reverie.runners.roles.heap_trim import HeapTrimmer
from reverie.runners.roles.learners import LearnerRole
from reverie.runners.roles.parameter_shard import ParameterShardRole
from reverie.runners.roles.role import REPORT_SECONDS, ActorRole, EvaluatorRole, Role, RoleLink, ShardRole

ROLES: dict[str, type[Role]] = {
    "shard": ShardRole,
    "parameter shard": ParameterShardRole,
    "learner": LearnerRole,
    "bundle": BundleRole,
    "evaluator": EvaluatorRole,
    "actor": ActorRole,
}

TRANSIENT = (
    # The shard has ended, does not answer, or has begun again without its items.
    ClosedError,
    DeadlineExceededError,
    UnavailableError,
    UnknownKeyError,
    # Another server took the port of the shard, which moves: the supervisor passes on the new address.
    ProtocolError,
    UnauthenticatedError,
    UnknownTableError,
    # The memory of a server or of the machine was used up, perhaps by others.
    ResourceExhaustedError,
    # A file system of the network may be back at the next start.
    StorageError,
)
"""Errors that a role may not meet again when it is restarted. The others would end every restart, too."""

BEGIN_SECONDS = 120.0
"""Seconds for which a role retries to start while the replay or parameter shards that it needs do not answer; they were
ready a moment ago. Longer than `SHORT_LIFE_SECONDS`, so that a role is not abandoned because another one is slow."""
AGAIN_SECONDS = 0.2


def run_role(setup: RoleSetup, link: RoleLink) -> None:
    """Make a role and run it until it is asked to stop or fails; a failure is reported to the supervisor."""
    role: Role | None = None
    try:
        role = _made(setup)
        role.open(link)
        link.send(role.ready())
        _loop(role, link)
    except Exception as error:
        link.send(RoleFailed(type(error).__name__, str(error), traceback.format_exc(), _is_transient(error, setup)))
    except SystemExit as error:  # as an environment may raise it; another process may not meet it
        link.send(RoleFailed("SystemExit", str(error), traceback.format_exc(), transient=True))
        raise
    except KeyboardInterrupt as error:  # of the agent or an environment: Ctrl-C does not reach roles
        place = place_of(error).removeprefix("KeyboardInterrupt: ").strip()
        text = f"raised by the role's own code, not by Ctrl-C {place}"
        link.send(RoleFailed("KeyboardInterrupt", text, traceback.format_exc(), transient=False))
    finally:
        if role is not None:
            role.close()


def _is_transient(error: Exception, setup: RoleSetup) -> bool:
    if setup.name.kind != "evaluator":
        full = isinstance(error, OSError) and error.errno in NO_ROOM  # others may leave room
        return full or isinstance(error, TRANSIENT)
    # An evaluation that is repeated may pass, unless the environment was described as one that may not raise.
    return not isinstance(error, InvalidStepError) and not (
        isinstance(error, EnvironmentCrashedError) and setup.env.settings.max_env_restarts == 0
    )


def _made(setup: RoleSetup) -> Role:
    """Make the role, and retry while shards do not answer. If a shard has moved, the supervisor replaces this role."""
    deadline = time.monotonic() + BEGIN_SECONDS
    while True:
        try:
            return ROLES[setup.name.kind](setup)
        except (DeadlineExceededError, UnavailableError):
            if time.monotonic() >= deadline:
                raise
        time.sleep(AGAIN_SECONDS)


def _loop(role: Role, link: RoleLink) -> None:
    next_report, memory = 0.0, HeapTrimmer()
    while True:
        for command in link.commands():
            if isinstance(command, Stop):
                _send_report(role, link)
                return
            answer = role.handle(command)
            if answer is not None:
                link.send(answer)
        role.turn(link)
        if time.monotonic() >= next_report:
            _send_report(role, link)
            next_report = time.monotonic() + REPORT_SECONDS
        memory.trim_if_due()


def _send_report(role: Role, link: RoleLink) -> None:
    report = role.report()
    if report is not None:
        link.send(report)
