"""An actor: a vector of environments, the newest weights, and a writer that turns steps into items."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from reverie.agents.apex_dqn.config import ApexDqnConfig
from reverie.agents.apex_dqn.networks import GreedyPolicy
from reverie.agents.core import ActorArguments, WeightSource
from reverie.agents.discrete import EpsilonGreedyExploration
from reverie.agents.environments import EnvSpec
from reverie.agents.munchausen import soft_value
from reverie.agents.replay_actor import ActionChoice, ReplayActor


class Actor(ReplayActor):
    """Explores by its own rungs of the ladder, and sends priorities from the q-values that it computed to act.

    One forward pass per step gives three results: the action, q(s, a) of the item that starts here, and max q(s) for
    the item that ends here after n steps.
    """

    def __init__(
        self, spec: EnvSpec, config: ApexDqnConfig, client: Any, weights: WeightSource, **role: Unpack[ActorArguments]
    ) -> None:
        self._policy = GreedyPolicy(spec, config)
        super().__init__(
            spec,
            config,
            client,
            weights,
            self._policy,
            **role,
            priority_eps=config.priority_eps,
            priority_clip=config.priority_clip,
            priority="max" if config.first_priority == "max" else 1.0,
        )
        n = config.envs_per_actor
        self.epsilons = config.rungs_of(role["index"])
        self._config = config
        self._exploration = EpsilonGreedyExploration(n, spec.num_actions or 0, config.random_hold)
        self._rows = np.arange(n)
        self._sends_errors = config.first_priority == "td_error"

    def _choose(self, obs: NDArray[Any]) -> ActionChoice:
        q = self._policy.q_values(obs)
        config = self._config
        epsilons = self.epsilons if config.has_several_envs else config.epsilon_alone(self.env_steps)
        actions = self._exploration.choose(self._rng, q.argmax(axis=1), epsilons, self._begins)
        env_actions = self._policy.enumeration.to_env(actions)
        if not self._sends_errors:
            return ActionChoice(actions, env_actions)
        return ActionChoice(actions, env_actions, self._taken_less_term(q, actions), self._bootstrap_values(q))

    def _values(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        return self._bootstrap_values(self._policy.q_values(obs))

    def _taken_less_term(self, q: NDArray[np.float32], actions: NDArray[np.int64]) -> NDArray[np.float32]:
        """q(s, a) `[N]`, less what the learner adds to the action's reward: the error is that of its target."""
        taken: NDArray[np.float32] = q[self._rows, actions]
        if self._config.munchausen > 0:
            taken -= self._config.policy_terms(torch.from_numpy(q), torch.from_numpy(actions)).numpy()
        return taken

    def _bootstrap_values(self, q: NDArray[np.float32]) -> NDArray[np.float32]:
        """The values `[N]` of observations, hard or soft as in the learner's target."""
        if self._config.munchausen > 0:
            soft: NDArray[np.float32] = soft_value(torch.from_numpy(q), self._config.soft_temperature).numpy()
            return soft
        values: NDArray[np.float32] = q.max(axis=1)
        return values
