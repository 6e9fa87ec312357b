"""Gorila (Nair et al. 2015, https://arxiv.org/abs/1507.04296): `agent` is what runners take."""

from __future__ import annotations

from pathlib import Path

from reverie.agents.agent import Agent, SharedParameters
from reverie.agents.gorila.actor import Actor
from reverie.agents.gorila.config import GorilaConfig, make_tables, memory, needs
from reverie.agents.gorila.learner import Learner, make_parameter_shard
from reverie.agents.gorila.networks import GreedyPolicy
from reverie.agents.gorila.parameters import ParameterServer
from reverie.agents.gorila.states import join_metrics, join_states, learner_state, parameter_shard_state

agent = Agent(
    name="gorila",
    actions="discrete",
    config=GorilaConfig,
    presets=Path(__file__).parent / "presets",
    needs=needs,
    memory=memory,
    make_tables=make_tables,
    make_learner=Learner,
    make_actor=Actor,
    make_policy=GreedyPolicy,
    any_space=True,
    parameters=SharedParameters(
        connect=ParameterServer,
        make_shard=make_parameter_shard,
        join_states=join_states,
        learner_state=learner_state,
        shard_state=parameter_shard_state,
        join_metrics=join_metrics,
    ),
)
