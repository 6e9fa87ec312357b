"""Ape-X DQN (Horgan et al. 2018, https://arxiv.org/abs/1803.00933): this module is the factory that runners take."""

from __future__ import annotations

from pathlib import Path

from reverie.agents import presets
from reverie.agents.apex_dqn.actor import Actor
from reverie.agents.apex_dqn.config import ApexDqnConfig, epsilon_ladder, make_tables, memory
from reverie.agents.apex_dqn.learner import Learner
from reverie.agents.apex_dqn.networks import NAME, GreedyPolicy, check
from reverie.agents.core import layout
from reverie.agents.replay import TABLE, needs

__all__ = [
    "DEVICES",
    "NAME",
    "PRESETS",
    "TABLE",
    "Actor",
    "ApexDqnConfig",
    "GreedyPolicy",
    "Learner",
    "check",
    "epsilon_ladder",
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

load_preset = presets.reader(PRESETS, ApexDqnConfig)
make_learner = Learner
make_actor = Actor
make_policy = GreedyPolicy
