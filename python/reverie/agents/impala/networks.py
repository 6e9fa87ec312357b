"""The policy network, the value network, and the greedy policy, with an LSTM or without."""

from __future__ import annotations

from typing import Any

from reverie.agents.actor_critic import ActorCriticPolicy
from reverie.agents.environments import EnvSpec
from reverie.agents.flat import FlatNetwork
from reverie.agents.impala.config import ImpalaConfig
from reverie.agents.recurrent import actor_critic, policy_of


def make_network(spec: EnvSpec, config: ImpalaConfig, *, seed: int, trainable: bool) -> FlatNetwork[Any]:
    """Policy and value network; the initial policy is almost uniform."""
    return actor_critic(
        spec,
        config.hidden,
        lstm_units=config.lstm_units,
        shared=config.shared_layers,
        seed=seed,
        trainable=trainable,
    )


def make_policy(spec: EnvSpec, config: ImpalaConfig) -> ActorCriticPolicy:
    """Takes the most probable action; actors draw."""
    return policy_of(make_network(spec, config, seed=0, trainable=False), spec)
