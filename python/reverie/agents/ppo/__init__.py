"""PPO (Schulman et al. 2017, https://arxiv.org/abs/1707.06347): `agent` is what runners take."""

from __future__ import annotations

from pathlib import Path

from reverie.agents.agent import Agent
from reverie.agents.ppo.actor import Actor
from reverie.agents.ppo.config import PpoConfig, make_tables, memory, needs, uncompiled
from reverie.agents.ppo.learner import Learner
from reverie.agents.ppo.networks import make_policy

agent = Agent(
    name="ppo",
    actions="any",
    config=PpoConfig,
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
