"""Agents. Each is a folder of the same files: config, networks, loss, learner, actor.

`reverie.train("apex-dqn", "CartPole-v1")` trains one; a runner receives it as an `Agent`. Agents of other
packages are found by an entry point of the group `reverie.agents`, or as `module:agent`. Agents need PyTorch and
Gymnasium (`pip install "reverie[agents]"`) and are loaded at first use, so that `import reverie` stays light.
"""

from __future__ import annotations

import difflib
import importlib
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from reverie._late_types import late
from reverie._picklable import Picklable
from reverie.agents.built_in import AGENTS, Actions, for_actions
from reverie.agents.error_places import place_of

if TYPE_CHECKING:
    from reverie.agents.agent import Agent
else:
    Agent = late("reverie.agents.agent", "Agent")

__all__ = ["BUILT_IN", "GROUP", "AgentError", "UnknownAgentError", "find", "names"]

BUILT_IN = tuple(AGENTS)
"""The names of the agents of this package; entry points with these names are ignored."""
GROUP = "reverie.agents"
"""The group of entry points under which other packages list their agents."""


class UnknownAgentError(Picklable, ValueError):
    """There is no agent with this name. `.name`, `.nearest` (similar names)."""

    def __init__(self, name: str) -> None:
        known = names()
        self.name, self.nearest = name, tuple(difflib.get_close_matches(name, known, n=2, cutoff=0.4))
        hint = f"did you mean {' or '.join(self.nearest)}?" if self.nearest else f"there is: {', '.join(known)}."
        super().__init__(f"no agent {name!r}; {hint} An agent of your own is named as module:agent")


class AgentError(Picklable, ValueError):
    """An agent cannot be imported, or is not an `Agent`. `.name`"""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        super().__init__(f"agent {name!r} {reason}")


def names(actions: Actions | None = None) -> list[str]:
    """The names of all agents, those of other packages last; with `actions`, only this package's for these actions."""
    if actions is not None:
        return for_actions(actions)
    return [*BUILT_IN, *sorted(set(entry_points(group=GROUP).names) - set(BUILT_IN))]


def find(name: str) -> Agent:
    """The agent with this name: `apex-dqn`, the name of an entry point, or `module:agent`.

    Raises `UnknownAgentError`, and `AgentError` for an agent that cannot be imported.
    """
    if ":" in name:
        return _imported(name, name)
    own = name.lower().replace("_", "-")
    if own in BUILT_IN:
        return _imported(name, f"{__name__}.{own.replace('-', '_')}:agent")
    for entry in entry_points(group=GROUP):
        if entry.name in (name, own):
            return _imported(name, entry.value)
    raise UnknownAgentError(name)


def _imported(name: str, reference: str) -> Agent:
    from reverie.agents.agent import Agent

    module, _, attribute = reference.partition(":")
    failed = "cannot be imported" if name == reference else f"cannot be imported from {reference}"
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        hint = ": install it, or add its folder to PYTHONPATH" if f"{module}.".startswith(f"{error.name}.") else ""
        raise AgentError(name, f"{failed}: {error}{hint}") from error
    except (ImportError, AttributeError) as error:
        raise AgentError(name, f"{failed}: {error}") from error
    except Exception as error:  # of the module's own code
        raise AgentError(name, f"{failed}: {place_of(error)}") from error
    if not isinstance(found, Agent):
        raise AgentError(name, f"is a {type(found).__name__}, and must be a reverie.agents.agent.Agent")
    return found
