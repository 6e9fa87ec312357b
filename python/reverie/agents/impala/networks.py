"""The policy network, the value network, and the greedy policy."""

from __future__ import annotations

from reverie.agents.actor_critic import ActorCriticPolicy, PolicyAndValue, policy_and_value
from reverie.agents.environments import EnvSpec
from reverie.agents.flat import FlatNetwork
from reverie.agents.impala.config import ImpalaConfig


def make_network(spec: EnvSpec, config: ImpalaConfig, *, seed: int, trainable: bool) -> FlatNetwork[PolicyAndValue]:
    """Policy and value network; the initial policy is almost uniform."""
    return policy_and_value(spec, config.hidden, seed=seed, trainable=trainable)


class GreedyPolicy(ActorCriticPolicy):
    """Takes the most probable action; actors draw."""

    def __init__(self, spec: EnvSpec, config: ImpalaConfig) -> None:
        super().__init__(make_network(spec, config, seed=0, trainable=False), spec)
