"""DDPG (Lillicrap et al. 2016, https://arxiv.org/abs/1509.02971): `agent` is what runners take."""

from __future__ import annotations

from pathlib import Path

from reverie.agents.agent import Agent
from reverie.agents.continuous import GaussianActor, GreedyTanhPolicy
from reverie.agents.ddpg.config import DdpgConfig, memory
from reverie.agents.ddpg.learner import Learner
from reverie.agents.replay import maybe_prioritized_tables, needs

agent = Agent(
    name="ddpg",
    actions="continuous",
    config=DdpgConfig,
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
