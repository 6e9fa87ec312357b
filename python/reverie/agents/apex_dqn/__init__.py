"""Ape-X DQN (Horgan et al. 2018, https://arxiv.org/abs/1803.00933): this module is the factory that runners take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reverie.agents import presets
from reverie.agents.apex_dqn.actor import Actor
from reverie.agents.apex_dqn.config import TABLE, ApexDqnConfig, epsilon_ladder, make_tables, memory, needs
from reverie.agents.apex_dqn.learner import Learner
from reverie.agents.apex_dqn.networks import GreedyPolicy, check
from reverie.agents.core import Preset, Stopwatch, WeightSource
from reverie.agents.environments import EnvSpec

__all__ = [
    "NAME",
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

NAME = "apex-dqn"
PRESETS = Path(__file__).parent / "presets"


def load_preset(env_id: str, path: Path | None = None) -> Preset:
    """The preset of an environment, or the one in the file `path`. Raises `presets.PresetError`."""
    return presets.load(path or presets.find(PRESETS, env_id), ApexDqnConfig)


def layout(config: ApexDqnConfig) -> tuple[int, int]:
    """Number of actors, and of environments in each."""
    return config.num_actors, config.envs_per_actor


def make_learner(spec: EnvSpec, config: ApexDqnConfig, client: Any, *, seed: int, watch: Stopwatch) -> Learner:
    """The learner, its weights drawn from `seed`."""
    return Learner(spec, config, client, seed=seed, watch=watch)


def make_actor(
    spec: EnvSpec,
    config: ApexDqnConfig,
    client: Any,
    weights: WeightSource,
    *,
    index: int,
    seed: int,
    watch: Stopwatch,
) -> Actor:
    """Actor `index` of `config.num_actors`: it takes its rungs of the ladder that spans all of them."""
    return Actor(spec, config, client, weights, index=index, seed=seed, watch=watch)


def make_policy(spec: EnvSpec, config: ApexDqnConfig) -> GreedyPolicy:
    """The greedy policy, for the evaluator."""
    return GreedyPolicy(spec, config)
