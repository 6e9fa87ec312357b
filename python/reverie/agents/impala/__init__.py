"""IMPALA (Espeholt et al. 2018, https://arxiv.org/abs/1802.01561): this module is the factory that runners take."""

from __future__ import annotations

from pathlib import Path

from reverie.agents import presets
from reverie.agents.core import layout
from reverie.agents.impala.actor import Actor
from reverie.agents.impala.config import TABLE, ImpalaConfig, make_tables, memory, needs
from reverie.agents.impala.learner import Learner
from reverie.agents.impala.networks import NAME, GreedyPolicy, check

__all__ = [
    "NAME",
    "PRESETS",
    "TABLE",
    "Actor",
    "GreedyPolicy",
    "ImpalaConfig",
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

load_preset = presets.reader(PRESETS, ImpalaConfig)
make_learner = Learner
make_actor = Actor
make_policy = GreedyPolicy
