"""The network of q-values and the policy that reads it."""

from __future__ import annotations

from torch import nn

from reverie.agents.discrete import QPolicy
from reverie.agents.dqn.config import DqnConfig
from reverie.agents.environments import EnvSpec
from reverie.agents.flat import FlatNetwork
from reverie.agents.inputs import front
from reverie.agents.layers import MlpTorso, ValueLinear, initialised


def make_network(spec: EnvSpec, config: DqnConfig, *, seed: int, trainable: bool) -> FlatNetwork[nn.Sequential]:
    """Q-values `[B, num_actions]` of observations `[B, ...]`."""
    assert spec.num_actions is not None
    num_actions = spec.num_actions

    def make() -> nn.Sequential:
        first, features = front(spec)
        torso = MlpTorso(features, config.hidden, layer_norm=config.layer_norm)
        return nn.Sequential(*first, torso, ValueLinear(config.hidden[-1], num_actions))

    return FlatNetwork(initialised(make, seed), trainable=trainable)


class GreedyPolicy(QPolicy):
    """`argmax_a q(s, a)`."""

    def __init__(self, spec: EnvSpec, config: DqnConfig) -> None:
        super().__init__(
            make_network(spec, config, seed=0, trainable=False),
            config.precision,
            epsilon=config.epsilon_end,
            spec=spec,
        )
