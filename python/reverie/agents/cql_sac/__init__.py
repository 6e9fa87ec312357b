"""CQL on SAC (Kumar et al. 2020, https://arxiv.org/abs/2006.04779): `agent` is what runners take."""

from __future__ import annotations

from pathlib import Path

from reverie.agents.agent import Agent
from reverie.agents.cql_sac.actor import make_actor
from reverie.agents.cql_sac.config import CqlSacConfig, memory
from reverie.agents.cql_sac.learner import Learner
from reverie.agents.cql_sac.networks import GreedyPolicy
from reverie.agents.replay import maybe_prioritized_tables, needs

agent = Agent(
    name="cql-sac",
    actions="continuous",
    config=CqlSacConfig,
    presets=Path(__file__).parent / "presets",
    needs=needs,
    memory=memory,
    make_tables=maybe_prioritized_tables,
    make_learner=Learner,
    make_actor=make_actor,
    make_policy=GreedyPolicy,
    other_actions="cql",
    any_space=True,
    compiles=True,
)
