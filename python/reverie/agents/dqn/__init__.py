"""DQN (Mnih et al. 2015, https://www.nature.com/articles/nature14236): this module is the factory that runners take."""

from __future__ import annotations

from pathlib import Path

from reverie.agents import presets
from reverie.agents.core import layout
from reverie.agents.dqn.actor import Actor
from reverie.agents.dqn.config import DqnConfig, memory
from reverie.agents.dqn.learner import Learner
from reverie.agents.dqn.networks import NAME, GreedyPolicy, check
from reverie.agents.replay import TABLE, needs, uniform_tables

__all__ = [
    "DEVICES",
    "NAME",
    "PRESETS",
    "TABLE",
    "Actor",
    "DqnConfig",
    "GreedyPolicy",
    "Learner",
    "check",
    "layout",
    "load_preset",
    "make_actor",
    "make_learner",
    "make_policy",
    "make_tables",
    "memory",
    "needs",
]

DEVICES = ("cpu", "cuda")
PRESETS = Path(__file__).parent / "presets"

load_preset = presets.reader(PRESETS, DqnConfig)
make_learner = Learner
make_actor = Actor
make_policy = GreedyPolicy
make_tables = uniform_tables
