"""The policy network, the two critics, and the greedy policy."""

from __future__ import annotations

from reverie.agents.continuous import Critics, GreedyActions, TanhPolicy
from reverie.agents.environments import EnvSpec
from reverie.agents.flat import FlatNetwork
from reverie.agents.layers import initialised
from reverie.agents.td3.config import Td3Config


def make_policy_network(spec: EnvSpec, config: Td3Config, *, seed: int, trainable: bool) -> FlatNetwork[TanhPolicy]:
    """Actions `[B, A]` in `[-1, 1]` of observations `[B, ...]`."""
    return FlatNetwork(initialised(lambda: TanhPolicy(spec, config.policy_hidden), seed), trainable=trainable)


def make_critics(spec: EnvSpec, config: Td3Config, *, seed: int, trainable: bool) -> FlatNetwork[Critics]:
    """Q-values `[k, B]` of observations and actions in `[-1, 1]`."""

    def make() -> Critics:
        return Critics(
            spec, config.critic_hidden, config.num_critics, layer_norm=config.layer_norm, dropout=config.dropout
        )

    return FlatNetwork(initialised(make, seed), trainable=trainable)


class GreedyPolicy(GreedyActions):
    """The policy network's actions."""

    def __init__(self, spec: EnvSpec, config: Td3Config) -> None:
        super().__init__(spec, make_policy_network(spec, config, seed=0, trainable=False), config.noise_sigma)
