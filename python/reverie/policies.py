"""`load_policy`: a trained policy for programs of one's own. PyTorch is imported at the first call."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from reverie._late_types import late

if TYPE_CHECKING:
    from pathlib import Path

    from reverie.agents.agent import Agent
    from reverie.agents.policies import TrainedPolicy
else:
    Path = late("pathlib", "Path")
    Agent = late("reverie.agents.agent", "Agent")
    TrainedPolicy = late("reverie.agents.policies", "TrainedPolicy")

__all__ = ["load_policy"]

NEEDED = ("torch", "gymnasium", "safetensors")


def load_policy(path: Path | str, *, agent: Agent | str | None = None, seed: int = 0) -> TrainedPolicy:
    """Load a trained policy: `action = reverie.load_policy("runs/NAME")(observation)`.

    Blocks until it is read.

    Args:
        path: a run's folder (its newest checkpoint), a checkpoint's folder, or a `.safetensors` file that
            `TrainedPolicy.save` wrote. A file needs neither the run nor the package of its environment; a run or a
            checkpoint makes the environment once, for the shapes of its observations and actions.
        agent: the agent, if its name in the run or the file finds none: an `Agent`, a name, or `module:agent`. A file
            whose agent is `module:agent` is loaded only with this argument: a file imports no module by itself.
        seed: of sampled actions, `policy(observation, greedy=False)`; at least 0.

    Returns:
        A `reverie.agents.policies.TrainedPolicy`. It takes one observation or a batch, and has `save`, `spec`, `run`.

    Raises:
        CheckpointError: (of `reverie.runners`) the run or the checkpoint is missing, damaged or of another agent.
        PolicyError: (of `reverie.agents.policies`) the file is missing, damaged or of another agent; the text names the
            field, the setting or the weight that is missing or wrong.
        UnknownAgentError, AgentError: (of `reverie.agents`) there is no such agent, or it cannot be imported.
        UnknownEnvironmentError, UnsupportedEnvironmentError: (of `reverie.agents.environments`) the environment of a
            run cannot be made.
        ImportError: PyTorch, Gymnasium or safetensors is not installed.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ImportError(f'reverie.load_policy needs {", ".join(missing)}: pip install "reverie[agents]"')
    from reverie.runners.checkpoints import policies

    return policies.load_policy(path, agent=agent, seed=seed)
