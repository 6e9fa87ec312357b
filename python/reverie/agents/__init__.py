"""Agents: each a folder of the same five files in the same order: config, networks, loss, learner, actor.

An agent's module is the factory that a runner receives:
`reverie.runners.train(reverie.agents.apex_dqn, "CartPole-v1")`. Agents need PyTorch and Gymnasium
(`pip install "reverie[agents]"`) and are loaded at first use, so that `import reverie` stays light.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["apex_dqn"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"reverie.agents has no agent {name!r}; there is: {', '.join(__all__)}")
