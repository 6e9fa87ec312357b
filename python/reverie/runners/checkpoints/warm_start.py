"""The start of a run from trained weights: an agent whose learners begin with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reverie import _checks
from reverie.agents.agent import Agent
from reverie.agents.core import Learner, ParameterShard, Stopwatch, seed_of
from reverie.agents.environments import EnvSpec
from reverie.agents.error_places import warn
from reverie.agents.named_parameters import Named
from reverie.agents.policies import TrainedPolicy
from reverie.agents.policy_files import load_named
from reverie.agents.policy_records import PolicyError
from reverie.agents.settings import Settings
from reverie.runners.checkpoints.checkpoint_files import load
from reverie.runners.checkpoints.finished_runs import flat_of
from reverie.runners.checkpoints.policies import is_policy_file, load_for
from reverie.runners.planning.topology import Topology
from reverie.runners.reports.events import Result

Weights = NDArray[np.float32]


@dataclass(frozen=True)
class WarmLearners:
    """Makes learners that begin with trained weights. Can be pickled."""

    make: Callable[..., Learner]
    acting: Weights
    networks: Mapping[str, Named] | None

    def __call__(self, *arguments: Any, **options: Any) -> Learner:
        """A learner. One with a remote parameter server takes the weights of its shards."""
        learner = self.make(*arguments, **options)
        if "server" not in options:
            if not hasattr(learner, "warm_start"):
                raise TypeError("its learner has no warm_start; reverie.agents.core.Learner describes it")
            learner.warm_start(self.acting, self.networks)
        return learner


@dataclass(frozen=True)
class WarmShards:
    """Makes parameter shards that begin with trained weights. Can be pickled."""

    make: Callable[..., ParameterShard]
    state_of: Callable[[EnvSpec, Any, dict[str, Any], int], dict[str, Any]]
    state: dict[str, Any]
    """The state of one learner with all parameters, before its first update."""

    def __call__(self, spec: EnvSpec, config: Any, *, index: int, **options: Any) -> ParameterShard:
        """Shard `index`."""
        shard = self.make(spec, config, index=index, **options)
        shard.load_state_dict(self.state_of(spec, config, self.state, index))
        return shard


def path_of(init_from: object) -> Path:
    """The path of trained weights. Raises TypeError, which explains how an object becomes a file."""
    if isinstance(init_from, TrainedPolicy | Result):
        raise TypeError(
            f"init_from must be a path, got {init_from!r}: save the policy to a .safetensors file, or give the run's"
            " folder"
        )
    return _checks.path("init_from", init_from)


def warm_started(agent: Agent, topology: Topology, source: Path) -> Agent:
    """The agent with learners that begin with the weights of a run, a checkpoint or a policy's file.

    They are of the agent itself, or of another one with the same `make_policy`, such as a variant. A run and a
    checkpoint give all networks of the learner, a file those that act. Raises what `load_policy` raises; `PolicyError`
    for any other agent, and if a weight or a network, which it names, has another name or shape in this run; and
    TypeError for an agent of another package whose learner has no `warm_start`.
    """
    policy = load_for(source, agent)
    assert policy.path is not None
    acting, networks = _acting(agent, topology, policy), None
    if not is_policy_file(source) and agent.parameters is None:
        networks = load(policy.path)["learner"].get("networks")
    _warn_of_replaced(topology.config, policy, all_networks=networks is not None)
    make = WarmLearners(agent.make_learner, acting, networks)
    first = _first(make, topology, policy.path)
    if agent.parameters is None:
        return dataclasses.replace(agent, make_learner=make)
    shards = WarmShards(agent.parameters.make_shard, agent.parameters.shard_state, first.state_dict())
    parameters = dataclasses.replace(agent.parameters, make_shard=shards)
    return dataclasses.replace(agent, make_learner=make, parameters=parameters)


NORMALISATION = ("normalise_observations", "normalise_rewards")


def _other_normalisation(policy: TrainedPolicy, env: EnvSpec) -> str:
    """The settings with which networks have running statistics in one of two runs only, as a reason; else empty."""
    theirs, own = (vars(settings) for settings in (policy.spec.settings, env.settings))
    differing = [f"{name}={str(theirs[name]).lower()}" for name in NORMALISATION if theirs[name] != own[name]]
    return f"it was trained with {' and '.join(differing)}; set that here, too" if differing else ""


def _warn_of_replaced(config: Any, policy: TrainedPolicy, *, all_networks: bool) -> None:
    """Warn of settings of initial weights that the trained weights replace, if they differ from the trained run's."""
    names = config.of_initial_weights(all_networks=all_networks) if isinstance(config, Settings) else ()
    for name in names:
        if getattr(config, name) != getattr(policy.config, name, None):
            warn(
                f"{name} is {getattr(config, name)} and has no effect: the run begins with the weights of {policy.path}"
            )


def _acting(agent: Agent, topology: Topology, policy: TrainedPolicy) -> Weights:
    """The weights `[P]` of actors, compared by name and shape with those that this run needs."""
    own = agent.make_policy(topology.env, topology.config).module
    named = {name: one.detach().cpu().numpy() for name, one in policy.module.named_parameters()}
    assert policy.path is not None
    try:
        load_named(policy.path, own, named, whose="this run")
    except PolicyError as error:
        if other := _other_normalisation(policy, topology.env):
            raise PolicyError(policy.path, f"does not fit this run: {other}") from error
        raise
    joined: Weights = flat_of(own)
    return joined


def _first(make: WarmLearners, topology: Topology, path: Path) -> Learner:
    """A learner that begins so, made here: what does not fit is refused before anything starts."""
    try:
        seed = seed_of(topology.seed, 1)
        return make(topology.env, topology.config, None, seed=seed, watch=Stopwatch())
    except ValueError as error:
        way = "; its policy alone does: give a file that load_policy(RUN).save(FILE) made" if make.networks else ""
        raise PolicyError(path, f"does not fit this run: {error}{way}") from error
