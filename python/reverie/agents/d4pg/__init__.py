"""D4PG (Barth-Maron et al. 2018, https://arxiv.org/abs/1804.08617): `agent` is what runners take."""

from __future__ import annotations

from pathlib import Path

from reverie.agents.agent import Agent
from reverie.agents.continuous import GaussianActor, GreedyTanhPolicy
from reverie.agents.d4pg.config import D4pgConfig, memory
from reverie.agents.d4pg.learner import Learner
from reverie.agents.replay import maybe_prioritized_tables, needs

agent = Agent(
    name="d4pg",
    actions="continuous",
    config=D4pgConfig,
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
