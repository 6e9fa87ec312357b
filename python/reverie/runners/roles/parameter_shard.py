"""The role of a parameter shard: a range of the parameters, which learners change by their gradients."""

from __future__ import annotations

import threading
from typing import Any

from reverie.runners.links.messages import (
    Command,
    Report,
    RoleSetup,
    SavedState,
    SaveState,
)
from reverie.runners.roles.learners import shared_parameters
from reverie.runners.roles.role import (
    REPORT_SECONDS,
    Role,
    RoleLink,
)


class ParameterShardRole(Role):
    """A range of the parameters; learners send their questions to it directly."""

    def __init__(self, setup: RoleSetup) -> None:
        super().__init__(setup)
        make_shard = shared_parameters(self.agent).make_shard
        self._shard = make_shard(setup.env, setup.config, seed=setup.seed, index=setup.name.index)
        if setup.state is not None:
            self._shard.load_state_dict(setup.state)
        self._lock = threading.Lock()
        """Guards the shard: each learner is served by a thread of its own. Held for one answer."""

    def open(self, link: RoleLink) -> None:
        """Start to answer learners."""
        link.serve(self._answer)

    def _answer(self, question: Any) -> Any:
        with self._lock:
            return self._shard.answer(question)

    def turn(self, link: RoleLink) -> None:
        """Pause: questions are answered in other threads."""
        link.pause(REPORT_SECONDS)

    def report(self) -> None:
        """None: the learners report on their gradients."""

    def handle(self, command: Command) -> Report | None:
        """Return its state."""
        if not isinstance(command, SaveState):
            return super().handle(command)
        with self._lock:
            return SavedState(command.number, self._shard.state_dict(), epoch=self.setup.epoch)

    def close(self) -> None:
        """Nothing to do: the end of the process releases all that it holds."""
