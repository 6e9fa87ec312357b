"""CQL (Kumar et al. 2020, https://arxiv.org/abs/2006.04779): `agent` is what runners take."""

from __future__ import annotations

from pathlib import Path

from reverie.agents.agent import Agent
from reverie.agents.cql.actor import make_actor
from reverie.agents.cql.config import CqlConfig, memory
from reverie.agents.cql.learner import Learner
from reverie.agents.cql.networks import GreedyPolicy
from reverie.agents.replay import needs, uniform_tables

agent = Agent(
    name="cql",
    actions="discrete",
    config=CqlConfig,
    presets=Path(__file__).parent / "presets",
    needs=needs,
    memory=memory,
    make_tables=uniform_tables,
    make_learner=Learner,
    make_actor=make_actor,
    make_policy=GreedyPolicy,
    other_actions="cql-sac",
    any_space=True,
    devices=("cpu", "cuda"),
    compiles=True,
)
