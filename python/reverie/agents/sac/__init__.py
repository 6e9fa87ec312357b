"""SAC (Haarnoja et al. 2018, https://arxiv.org/abs/1812.05905): `agent` is what runners take."""

from __future__ import annotations

from pathlib import Path

from reverie.agents.agent import Agent
from reverie.agents.replay import maybe_prioritized_tables, needs
from reverie.agents.sac.actor import Actor
from reverie.agents.sac.config import SacConfig, memory
from reverie.agents.sac.learner import Learner
from reverie.agents.sac.networks import GreedyPolicy

agent = Agent(
    name="sac",
    actions="continuous",
    config=SacConfig,
    presets=Path(__file__).parent / "presets",
    needs=needs,
    memory=memory,
    make_tables=maybe_prioritized_tables,
    make_learner=Learner,
    make_actor=Actor,
    make_policy=GreedyPolicy,
    any_space=True,
    compiles=True,
)
