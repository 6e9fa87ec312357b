"""Rainbow (Hessel et al. 2018, https://arxiv.org/abs/1710.02298): `agent` is what runners take."""

from __future__ import annotations

from pathlib import Path

from reverie.agents.agent import Agent
from reverie.agents.rainbow.actor import Actor
from reverie.agents.rainbow.config import RainbowConfig, memory
from reverie.agents.rainbow.learner import Learner
from reverie.agents.rainbow.networks import GreedyPolicy
from reverie.agents.replay import maybe_prioritized_tables, needs

agent = Agent(
    name="rainbow",
    actions="discrete",
    config=RainbowConfig,
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
