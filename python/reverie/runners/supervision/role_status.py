"""The supervisor's view of one role: its status, and the commands that it has not answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from reverie.runners.links.messages import Command, RoleFailed, RoleReady, RoleSetup


@dataclass
class RoleStatus:
    """The supervisor's view of one role. Times are seconds of the `ListeningClock`."""

    setup: RoleSetup
    ready: RoleReady | None = None
    ended: bool = False
    """It was asked to stop, and has ended."""
    started_at: float = 0.0
    reported_at: float = 0.0
    """The time of its last report, from this process or the one before."""
    evaluation_sent_at: float = 0.0
    """The time when the evaluator was last asked to evaluate weights."""
    stopped_since: float | None = None
    """The time when its process was first found stopped; None while it runs."""
    answered: bool = False
    """Whether it has answered any command since it was last started."""
    consecutive_failures: int = 0
    """Starts in a row that ended too soon, or without an answer."""
    failure: RoleFailed | None = None
    unanswered: dict[type[Command], Command] = field(default_factory=dict)
    """Commands that it has not answered."""
    state: dict[str, Any] | None = None
    """The state that its replacement resumes from."""
    state_of: str = "nothing"
    table_of: str = "an empty table"
    """The state that a bundle's table resumes from."""
    waiting: bool = False
    """Whether it is not started yet, as a shard that it needs is not ready."""
    moving: bool = False
    """A learner that was asked for its state in order to be restarted with it, because a shard has moved."""

    @property
    def resumes_from(self) -> str:
        """The state that its replacement resumes from, as text."""
        return f"{self.state_of}, and {self.table_of}" if self.setup.name.kind == "bundle" else self.state_of
