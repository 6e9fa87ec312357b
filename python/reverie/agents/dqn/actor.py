"""An actor: epsilon-greedy in a vector of environments."""

from __future__ import annotations

from typing import Any, Unpack

from numpy.typing import NDArray

from reverie.agents.core import ActorArguments, WeightSource
from reverie.agents.discrete import EpsilonGreedyExploration, falling_epsilon
from reverie.agents.dqn.config import DqnConfig
from reverie.agents.dqn.networks import GreedyPolicy
from reverie.agents.environments import EnvSpec
from reverie.agents.replay_actor import ActionChoice, ReplayActor


class Actor(ReplayActor):
    """Every environment explores with the same epsilon, which falls with the run's environment steps."""

    def __init__(
        self, spec: EnvSpec, config: DqnConfig, client: Any, weights: WeightSource, **role: Unpack[ActorArguments]
    ) -> None:
        self._policy = GreedyPolicy(spec, config)
        super().__init__(spec, config, client, weights, self._policy, **role)
        self._config = config
        self._exploration = EpsilonGreedyExploration(self.num_envs, spec.num_actions or 0, config.random_hold)

    def _choose(self, obs: NDArray[Any]) -> ActionChoice:
        # An actor counts only its own steps: the others are assumed to have taken as many.
        now = falling_epsilon(self.env_steps * self._config.num_actors, self._config)
        actions = self._exploration.choose(self._rng, self._policy.greedy(obs), now, self._begins)
        return ActionChoice(actions, self._policy.enumeration.to_env(actions))
