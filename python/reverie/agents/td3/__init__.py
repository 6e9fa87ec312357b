"""TD3 (Fujimoto et al. 2018, https://arxiv.org/abs/1802.09477): `agent` is what runners take."""

from __future__ import annotations

from pathlib import Path

from reverie.agents.agent import Agent
from reverie.agents.continuous import GaussianActor, GreedyTanhPolicy
from reverie.agents.replay import maybe_prioritized_tables, needs
from reverie.agents.td3.config import Td3Config, memory
from reverie.agents.td3.learner import Learner

agent = Agent(
    name="td3",
    actions="continuous",
    config=Td3Config,
    presets=Path(__file__).parent / "presets",
    needs=needs,
    memory=memory,
    make_tables=maybe_prioritized_tables,
    make_learner=Learner,
    make_actor=GaussianActor,
    make_policy=GreedyTanhPolicy,
    any_space=True,
    compiles=True,
)
