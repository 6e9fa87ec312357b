"""The agents of this package, and the actions that each takes. It imports none of them."""

from __future__ import annotations

from typing import Literal

Actions = Literal["discrete", "continuous", "any"]
"""Kinds of actions: `Discrete` spaces and vectors of choices, bounded vectors of numbers, or either."""

AGENTS: dict[str, Actions] = {
    "apex-dqn": "discrete",
    "apex-dpg": "continuous",
    "dqn": "discrete",
    "gorila": "discrete",
    "ddpg": "continuous",
    "td3": "continuous",
    "sac": "continuous",
    "ppo": "any",
    "impala": "discrete",
    "r2d2": "discrete",
    "iql": "continuous",
    "cql": "discrete",
    "cql-sac": "continuous",
    "rainbow": "discrete",
    "d4pg": "continuous",
}
"""The `Agent.actions` of each agent, by its name."""


def for_actions(actions: Actions) -> list[str]:
    """The names of this package's agents that take such actions."""
    return [name for name, taken in AGENTS.items() if taken in (actions, "any")]
