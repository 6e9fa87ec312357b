"""DQN's network and policy, under this agent's name."""

from __future__ import annotations

from reverie.agents.dqn.networks import GreedyPolicy, make_network
from reverie.agents.environments import EnvSpec, require_discrete

__all__ = ["NAME", "GreedyPolicy", "check", "make_network"]

NAME = "gorila"


def check(spec: EnvSpec) -> None:
    """Refuse what this agent cannot play, with what would fit."""
    require_discrete(spec, NAME, frames=True)
