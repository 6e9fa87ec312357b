"""TD3 (Fujimoto et al. 2018, https://arxiv.org/abs/1802.09477): this module is the factory that runners take."""

from __future__ import annotations

from pathlib import Path

from reverie.agents import presets
from reverie.agents.core import layout
from reverie.agents.replay import TABLE, needs, uniform_tables
from reverie.agents.td3.actor import Actor
from reverie.agents.td3.config import Td3Config, memory
from reverie.agents.td3.learner import Learner
from reverie.agents.td3.networks import NAME, GreedyPolicy, check

__all__ = [
    "NAME",
    "PRESETS",
    "TABLE",
    "Actor",
    "GreedyPolicy",
    "Learner",
    "Td3Config",
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

PRESETS = Path(__file__).parent / "presets"

load_preset = presets.reader(PRESETS, Td3Config)
make_learner = Learner
make_actor = Actor
make_policy = GreedyPolicy
make_tables = uniform_tables
