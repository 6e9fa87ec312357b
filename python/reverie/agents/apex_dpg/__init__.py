"""Ape-X DPG (Horgan et al. 2018, https://arxiv.org/abs/1803.00933): `agent` is what runners take."""

from __future__ import annotations

from pathlib import Path

from reverie.agents.agent import Agent
from reverie.agents.apex_dpg.actor import Actor
from reverie.agents.apex_dpg.config import ApexDpgConfig, make_tables, memory
from reverie.agents.apex_dpg.learner import Learner
from reverie.agents.apex_dpg.networks import GreedyPolicy
from reverie.agents.replay import needs

agent = Agent(
    name="apex-dpg",
    actions="continuous",
    config=ApexDpgConfig,
    presets=Path(__file__).parent / "presets",
    needs=needs,
    memory=memory,
    make_tables=make_tables,
    make_learner=Learner,
    make_actor=Actor,
    make_policy=GreedyPolicy,
    other_actions="apex-dqn",
    any_space=True,
    compiles=True,
)
