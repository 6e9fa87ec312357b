"""`train`: a training run of an agent. PyTorch is imported at the first call."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

__all__ = ["train"]

NEEDED = ("torch", "gymnasium", "safetensors")

if TYPE_CHECKING:
    from reverie.runners.launch import train as train
else:  # A type checker sees the arguments of the function that is called.

    def train(agent, env_id, **options):
        """Train an agent: `reverie.train("dqn", "CartPole-v1", max_env_steps=20_000, folder="runs/first")`.

        Blocks until the run ends.

        Args:
            agent: the name of an agent, such as "dqn", or an `Agent`.
            env_id: the id of an environment of Gymnasium; or a class or function, defined at the top of a module, that
                makes environments or vectors of them.
            options: `folder`, `seed`, `resume`, `runner` and others, which `reverie.runners.train` lists, and single
                settings of the agent, the run and the environment by their names.

        Returns:
            A `reverie.runners.Result`. Its `policy` acts with the last weights.

        Raises:
            ImportError: PyTorch, Gymnasium or safetensors is not installed; otherwise what `reverie.runners.train`
                raises.
        """
        missing = [name for name in NEEDED if find_spec(name) is None]
        if missing:
            raise ImportError(f'reverie.train needs {", ".join(missing)}: pip install "reverie[agents]"')
        from reverie.runners.launch import train

        return train(agent, env_id, **options)
