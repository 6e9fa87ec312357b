"""Numbered commands that roles have to answer, and their answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from reverie.runners.links.messages import (
    Evaluate,
    EvaluationDone,
    PauseUpdates,
    RoleName,
    SavedState,
    SaveState,
    UpdatesPaused,
)
from reverie.runners.supervision.role_group import RoleGroup

ANSWER_SECONDS = 600.0
"""Timeout for a role to become ready, and to answer a command that it can answer at once."""
SAVE_SECONDS = 7200.0
"""Timeout for writing a checkpoint: a large replay goes to a disk that may be slow."""


Wait = Callable[[Callable[[], bool], str, float, Callable[[], object] | None], None]
"""Waits until a function returns True: `(function, text of the condition, seconds at most, called in every turn)`."""


class RoleRequests:
    """Sends commands to roles and waits for their answers.

    A number is given once, so an answer belongs to one request, or to none: then it is discarded. Requests may be made
    while others wait.
    """

    def __init__(self, roles: RoleGroup, wait: Wait) -> None:
        self._roles, self._wait = roles, wait
        self._number = 0
        self._answers: dict[int, dict[RoleName, Any]] = {}
        """The answers so far to each request that waits."""

    def ask(
        self,
        names: Sequence[RoleName],
        make_command: Callable[[int], SaveState | PauseUpdates | Evaluate],
        seconds: float = ANSWER_SECONDS,
        meanwhile: Callable[[], object] | None = None,
    ) -> dict[RoleName, Any]:
        """Make a command with a new number, and send it to all roles in `names`; returns their answers to it."""
        self._number += 1
        command = make_command(self._number)
        answers = self._answers[command.number] = {}
        who = str(names[0]) if len(names) == 1 else f"{names[0]} and {len(names) - 1} others"
        try:
            for name in names:
                self._roles.ask(name, command)
            what = f"the response of {who} to {type(command).__name__}"
            self._wait(lambda: len(answers) == len(names), what, seconds, meanwhile)
        finally:
            del self._answers[command.number]
        return answers

    def states(self, names: Sequence[RoleName], *, tables: bool) -> dict[RoleName, SavedState]:
        """The states of roles, all that learn among them, and with `tables` also the paths of their tables.

        If the parameter shards went back to an older state meanwhile, the roles that learn are asked again. Roles that
        are restarted resume from the states.
        """
        learning = self._roles.learning
        states: dict[RoleName, SavedState] = self.ask(names, lambda number: SaveState(number, tables), SAVE_SECONDS)
        while len({states[name].epoch for name in learning}) > 1:
            again = self.ask(learning, lambda number: SaveState(number, tables=False), SAVE_SECONDS)
            states |= {name: one.with_tables_of(states[name]) for name, one in again.items()}
        return states

    def receive(self, name: RoleName, answer: SavedState | UpdatesPaused | EvaluationDone) -> None:
        """Take the answer of a role."""
        if answer.number in self._answers:
            self._answers[answer.number][name] = answer
