"""IMPALA (Espeholt et al. 2018, https://arxiv.org/abs/1802.01561): `agent` is what runners take."""

from __future__ import annotations

from pathlib import Path

from reverie.agents.agent import Agent
from reverie.agents.impala.actor import Actor
from reverie.agents.impala.config import ImpalaConfig, make_tables, memory, needs, uncompiled
from reverie.agents.impala.learner import Learner
from reverie.agents.impala.networks import make_policy

agent = Agent(
    name="impala",
    actions="discrete",
    config=ImpalaConfig,
    presets=Path(__file__).parent / "presets",
    needs=needs,
    memory=memory,
    make_tables=make_tables,
    make_learner=Learner,
    make_actor=Actor,
    make_policy=make_policy,
    any_space=True,
    factored=True,
    compiles=True,
    uncompiled=uncompiled,
)
