"""Agents: each a folder of the same five files in the same order: config, networks, loss, learner, actor.

An agent's module is the factory that a runner receives:
`reverie.runners.train(reverie.agents.apex_dqn, "CartPole-v1")`. Agents need PyTorch and Gymnasium
(`pip install "reverie[agents]"`) and are loaded at first use, so that `import reverie` stays light.
"""

from __future__ import annotations

import difflib
import importlib
from typing import Any

__all__ = ["ACTIONS", "UnknownAgentError", "find", "names"]

ACTIONS = {
    "apex_dqn": "discrete",
    "apex_dpg": "continuous",
    "dqn": "discrete",
    "gorila": "discrete",
    "ddpg": "continuous",
    "td3": "continuous",
    "sac": "continuous",
    "ppo": "discrete",
    "impala": "discrete",
}
"""Every agent's module, and which actions it chooses among."""


class UnknownAgentError(ValueError):
    """There is no agent of this name. `.name`, `.nearest` (names that look like it)."""

    def __init__(self, name: str) -> None:
        known = names()
        self.name, self.nearest = name, tuple(difflib.get_close_matches(name, known, n=2, cutoff=0.4))
        hint = f"did you mean {' or '.join(self.nearest)}?" if self.nearest else f"there is: {', '.join(known)}"
        super().__init__(f"no agent {name!r}; {hint}")


def names(actions: str | None = None) -> list[str]:
    """The agents' names as a person types them; of those for "discrete" or "continuous" actions, where asked for."""
    return [module.replace("_", "-") for module, kind in ACTIONS.items() if actions in (None, kind)]


def find(name: str) -> Any:
    """The module of an agent by the name that a person types (`apex-dqn`), or an `UnknownAgentError`."""
    module = name.lower().replace("-", "_")
    if module not in ACTIONS:
        raise UnknownAgentError(name)
    return importlib.import_module(f"{__name__}.{module}")


def __getattr__(name: str) -> Any:
    if name in ACTIONS:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"reverie.agents has no agent {name!r}; there is: {', '.join(ACTIONS)}")
