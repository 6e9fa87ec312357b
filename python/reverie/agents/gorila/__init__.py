"""Gorila (Nair et al. 2015, https://arxiv.org/abs/1507.04296): this module is the factory that runners take."""

from __future__ import annotations

from pathlib import Path

from reverie.agents import presets
from reverie.agents.core import layout
from reverie.agents.gorila.actor import Actor
from reverie.agents.gorila.config import GorilaConfig, make_tables, memory, needs
from reverie.agents.gorila.learner import Learner, make_parameter_server, make_parameter_shard
from reverie.agents.gorila.networks import NAME, GreedyPolicy, check
from reverie.agents.gorila.parameters import ParameterServer, Pull, Push
from reverie.agents.gorila.states import join_metrics, join_states, learner_state, parameter_shard_state
from reverie.agents.replay import TABLE

__all__ = [
    "NAME",
    "PRESETS",
    "TABLE",
    "Actor",
    "GorilaConfig",
    "GreedyPolicy",
    "Learner",
    "ParameterServer",
    "Pull",
    "Push",
    "check",
    "join_metrics",
    "join_states",
    "layout",
    "learner_state",
    "load_preset",
    "make_actor",
    "make_learner",
    "make_parameter_server",
    "make_parameter_shard",
    "make_policy",
    "make_tables",
    "memory",
    "needs",
    "parameter_shard_state",
]

PRESETS = Path(__file__).parent / "presets"

load_preset = presets.reader(PRESETS, GorilaConfig)
make_learner = Learner
make_actor = Actor
make_policy = GreedyPolicy
