"""DQN (Mnih et al. 2015, https://www.nature.com/articles/nature14236): `agent` is what runners take."""

from __future__ import annotations

from pathlib import Path

from reverie.agents.agent import Agent
from reverie.agents.dqn.actor import Actor
from reverie.agents.dqn.config import DqnConfig, memory
from reverie.agents.dqn.learner import Learner
from reverie.agents.dqn.networks import GreedyPolicy
from reverie.agents.replay import needs, uniform_tables

agent = Agent(
    name="dqn",
    actions="discrete",
    config=DqnConfig,
    presets=Path(__file__).parent / "presets",
    needs=needs,
    memory=memory,
    make_tables=uniform_tables,
    make_learner=Learner,
    make_actor=Actor,
    make_policy=GreedyPolicy,
    any_space=True,
    devices=("cpu", "cuda"),
    compiles=True,
)
