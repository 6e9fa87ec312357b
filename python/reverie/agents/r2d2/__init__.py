"""R2D2 (Kapturowski et al. 2019, "Recurrent Experience Replay in Distributed Reinforcement Learning")."""

from __future__ import annotations

from pathlib import Path

from reverie.agents.agent import Agent
from reverie.agents.r2d2.actor import Actor
from reverie.agents.r2d2.config import R2d2Config, make_tables, memory, needs, uncompiled
from reverie.agents.r2d2.learner import Learner
from reverie.agents.r2d2.networks import GreedyPolicy

agent = Agent(
    name="r2d2",
    actions="discrete",
    config=R2d2Config,
    presets=Path(__file__).parent / "presets",
    needs=needs,
    memory=memory,
    make_tables=make_tables,
    make_learner=Learner,
    make_actor=Actor,
    make_policy=GreedyPolicy,
    any_space=True,
    devices=("cpu", "cuda"),
    compiles=True,
    uncompiled=uncompiled,
)
