"""The policy network, the critic, and both together for actors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from reverie.agents.apex_dpg.config import ApexDpgConfig
from reverie.agents.continuous import Critics, GreedyActions, TanhPolicy
from reverie.agents.environments import EnvSpec
from reverie.agents.flat import FlatNetwork
from reverie.agents.layers import initialised


class PolicyAndCritic(nn.Module):
    """The networks of an actor: policy, and critic for first priorities. Called, it returns actions `[B, A]`."""

    def __init__(self, spec: EnvSpec, config: ApexDpgConfig) -> None:
        super().__init__()
        self.policy = TanhPolicy(spec, config.policy_hidden)
        self.critic = Critics(spec, config.critic_hidden, 1)

    def forward(self, observations: Tensor) -> Tensor:
        """Actions `[B, A]` in `[-1, 1]`."""
        actions: Tensor = self.policy(observations)
        return actions


class GreedyPolicy(GreedyActions):
    """The policy network's actions. Its weights are those of policy and critic, one behind the other."""

    def __init__(self, spec: EnvSpec, config: ApexDpgConfig) -> None:
        self._both = FlatNetwork(initialised(lambda: PolicyAndCritic(spec, config), 0), trainable=False)
        super().__init__(spec, self._both, config.noise_sigma)

    @torch.inference_mode()
    def values(
        self, observations: NDArray[Any], greedy: NDArray[np.float32], taken: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """q-values `[N]` of the policy's own actions, and of those taken: one forward pass for both."""
        obs, n = torch.from_numpy(observations), len(observations)
        actions = torch.from_numpy(np.concatenate([greedy, taken]))
        q: NDArray[np.float32] = self._both.module.critic(torch.cat([obs, obs]), actions)[0].numpy()
        return q[:n], q[n:]
