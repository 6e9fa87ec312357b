"""One role of a run, as its supervisor sees it: what is known of it, and what it owes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from reverie.runners.links.messages import Command, Failed, Ready, Setup


@dataclass
class RoleStatus:
    """A role, as its supervisor sees it."""

    setup: Setup
    ready: Ready | None = None
    ended: bool = False
    """Told to stop, and gone."""
    born: float = 0.0
    told: float = 0.0
    """When it told anything last, in this life or the one before."""
    asked: float = 0.0
    """When the evaluator was asked last to judge weights."""
    stopped_since: float | None = None
    """When its process was first found to be stopped, as it is now."""
    answered: bool = False
    """Anything that it was asked, in this life."""
    consecutive_failures: int = 0
    """In a row: too short, or without an answer."""
    failure: Failed | None = None
    orders: dict[type[Command], Command] = field(default_factory=dict)
    """What it was asked and has not answered."""
    state: dict[str, Any] | None = None
    """What the next one goes on from."""
    state_of: str = "nothing"
    table_of: str = "an empty table"
    """What a bundle's table goes on from."""
    waiting: bool = False
    """Not begun yet: a shard that it talks to is not there."""
    moving: bool = False
    """A learner that was asked for its state, to be started again with it: a shard is elsewhere now."""

    @property
    def goes_on_from(self) -> str:
        """What the next one goes on from, for people."""
        return f"{self.state_of}, and {self.table_of}" if self.setup.name.kind == "bundle" else self.state_of
