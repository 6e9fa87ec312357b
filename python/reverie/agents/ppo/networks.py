"""The policy network, the value network beside it, and the policy without chance."""

from __future__ import annotations

from reverie.agents.actor_critic import PolicyAndValue, SoftmaxPolicy, policy_and_value
from reverie.agents.environments import EnvSpec
from reverie.agents.flat import FlatNetwork
from reverie.agents.ppo.config import PpoConfig


def make_network(spec: EnvSpec, config: PpoConfig, *, seed: int, trainable: bool) -> FlatNetwork[PolicyAndValue]:
    """Both networks; the policy begins almost uniform."""
    return policy_and_value(spec, config.hidden, seed=seed, trainable=trainable)


class GreedyPolicy(SoftmaxPolicy):
    """The most probable action; `outputs` is what actors draw from."""

    def __init__(self, spec: EnvSpec, config: PpoConfig) -> None:
        super().__init__(make_network(spec, config, seed=0, trainable=False))
