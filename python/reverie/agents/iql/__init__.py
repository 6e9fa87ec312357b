"""IQL (Kostrikov et al. 2021, https://arxiv.org/abs/2110.06169): `agent` is what runners take."""

from __future__ import annotations

from pathlib import Path

from reverie.agents.agent import Agent
from reverie.agents.iql.actor import make_actor
from reverie.agents.iql.config import IqlConfig, memory
from reverie.agents.iql.learner import Learner
from reverie.agents.iql.networks import GreedyPolicy
from reverie.agents.replay import needs, uniform_tables

agent = Agent(
    name="iql",
    actions="continuous",
    config=IqlConfig,
    presets=Path(__file__).parent / "presets",
    needs=needs,
    memory=memory,
    make_tables=uniform_tables,
    make_learner=Learner,
    make_actor=make_actor,
    make_policy=GreedyPolicy,
    any_space=True,
    compiles=True,
)
