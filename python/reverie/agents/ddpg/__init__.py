"""DDPG (Lillicrap et al. 2016, https://arxiv.org/abs/1509.02971): this module is the factory that runners take."""

from __future__ import annotations

from pathlib import Path

from reverie.agents import presets
from reverie.agents.core import layout
from reverie.agents.ddpg.actor import Actor
from reverie.agents.ddpg.config import DdpgConfig, memory
from reverie.agents.ddpg.learner import Learner
from reverie.agents.ddpg.networks import NAME, GreedyPolicy, check
from reverie.agents.replay import TABLE, needs, uniform_tables

__all__ = [
    "NAME",
    "PRESETS",
    "TABLE",
    "Actor",
    "DdpgConfig",
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

PRESETS = Path(__file__).parent / "presets"

load_preset = presets.reader(PRESETS, DdpgConfig)
make_learner = Learner
make_actor = Actor
make_policy = GreedyPolicy
make_tables = uniform_tables
