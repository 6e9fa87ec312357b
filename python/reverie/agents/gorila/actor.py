"""DQN's actor, which writes into the table of its bundle or the common one (`GorilaConfig.table_of`)."""

from __future__ import annotations

from reverie.agents.dqn.actor import Actor

__all__ = ["Actor"]
