"""DQN's actor: into the table of its bundle, or into the one for all (`GorilaConfig.table_of`)."""

from __future__ import annotations

from reverie.agents.dqn.actor import Actor

__all__ = ["Actor"]
