"""DQN's network and policy, under this agent's name."""

from __future__ import annotations

from reverie.agents.dqn.networks import GreedyPolicy, make_network

__all__ = ["GreedyPolicy", "make_network"]
