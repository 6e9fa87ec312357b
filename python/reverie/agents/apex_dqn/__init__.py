"""Ape-X DQN (Horgan et al. 2018, https://arxiv.org/abs/1803.00933): `agent` is what runners take."""

from __future__ import annotations

from pathlib import Path

from reverie.agents.agent import Agent
from reverie.agents.apex_dqn.actor import Actor
from reverie.agents.apex_dqn.config import ApexDqnConfig, make_tables, memory
from reverie.agents.apex_dqn.learner import Learner
from reverie.agents.apex_dqn.networks import GreedyPolicy
from reverie.agents.replay import needs

agent = Agent(
    name="apex-dqn",
    actions="discrete",
    config=ApexDqnConfig,
    presets=Path(__file__).parent / "presets",
    needs=needs,
    memory=memory,
    make_tables=make_tables,
    make_learner=Learner,
    make_actor=Actor,
    make_policy=GreedyPolicy,
    other_actions="apex-dpg",
    any_space=True,
    devices=("cpu", "cuda"),
    compiles=True,
)
