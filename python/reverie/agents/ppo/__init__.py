"""PPO (Schulman et al. 2017, https://arxiv.org/abs/1707.06347): this module is the factory that runners take."""

from __future__ import annotations

from pathlib import Path

from reverie.agents import presets
from reverie.agents.core import layout
from reverie.agents.ppo.actor import Actor
from reverie.agents.ppo.config import TABLE, PpoConfig, make_tables, memory, needs
from reverie.agents.ppo.learner import Learner
from reverie.agents.ppo.networks import NAME, GreedyPolicy, check

__all__ = [
    "NAME",
    "PRESETS",
    "TABLE",
    "Actor",
    "GreedyPolicy",
    "Learner",
    "PpoConfig",
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

load_preset = presets.reader(PRESETS, PpoConfig)
make_learner = Learner
make_actor = Actor
make_policy = GreedyPolicy
