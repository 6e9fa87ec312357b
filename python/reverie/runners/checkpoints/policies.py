"""`load_policy`: the policy of a run, of a checkpoint, or of a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from reverie import _checks, agents
from reverie.agents import named_parameters, policy_files
from reverie.agents.agent import Agent
from reverie.agents.env_settings import EnvSettings
from reverie.agents.environments import EnvSpec, UnknownEnvironmentError, UnsupportedEnvironmentError, describe
from reverie.agents.policies import TrainedPolicy, read
from reverie.agents.policy_files import SUFFIX, find_agent, how_to_name
from reverie.agents.policy_records import PolicyError, TrainingRun
from reverie.runners.checkpoints.checkpoint_files import PRESET, CheckpointError, agent_of, find, load


def load_policy(path: Path | str, *, agent: Agent | str | None = None, seed: int = 0) -> TrainedPolicy:
    """Load a trained policy. See `reverie.load_policy`."""
    where, seed = _checks.path("path", path), _checks.count("seed", seed, 0)
    if is_policy_file(where):
        return read(where, agent, seed)
    return _of_checkpoint(find(where, for_policy=True), agent, seed)


def load_for(path: Path, agent: Agent) -> TrainedPolicy:
    """The policy for a run of `agent`: of that agent, or of another one with the same `make_policy`.

    Raises what `load_policy` raises.
    """
    name = policy_files.agent_of(path) if is_policy_file(path) else agent_of(find(path, for_policy=True))
    if name == agent.name:
        return load_policy(path, agent=agent)
    try:
        other = agents.find(name)
    except agents.UnknownAgentError:
        other = None
    if other is None or other.make_policy is not agent.make_policy:
        raise PolicyError(
            path,
            f"is of the agent {name}, and {agent.name} begins with weights of its own or of an agent with the same"
            " make_policy",
        )
    return load_policy(path, agent=other)


def is_policy_file(path: Path) -> bool:
    """Whether the path names a policy's file and no folder. Raises `PolicyError` for a file of another kind."""
    if path.is_file() and path.suffix != SUFFIX:
        raise PolicyError(path, f"is a file, and neither a run's folder, a checkpoint's, nor a {SUFFIX} file")
    return path.suffix == SUFFIX and not path.is_dir()


def _of_checkpoint(path: Path, agent: Agent | str | None, seed: int) -> TrainedPolicy:
    state = load(path)
    identity, weights = state["identity"], state["weights"]
    try:
        found, reference = find_agent(identity["agent"] if agent is None else agent)
    except agents.UnknownAgentError as error:
        if agent is not None:
            raise
        whose = "neither an agent of Reverie nor one that an installed package lists"
        raise CheckpointError(
            path, f"is of the agent {identity['agent']}, which is {whose}: {how_to_name()}"
        ) from error
    if found.name != identity["agent"]:
        raise CheckpointError(
            path,
            f"is of the agent {identity['agent']}, and {found.name} was named: name the agent of the checkpoint",
        )
    preset = found.load_preset(identity["env_id"], path / PRESET)
    spec = _described(identity["env_id"], preset.environment)
    policy = found.make_policy(spec, preset.config)
    try:
        named_parameters.load(policy.module, weights["parameters"], "its agent")
    except named_parameters.ParameterError as error:
        raise CheckpointError(path, str(error)) from error
    run = TrainingRun(identity["seed"], state["env_steps"], weights["version"], preset.run.target_return)
    return TrainedPolicy(found, reference, spec, preset.config, run, policy, path, np.random.default_rng(seed))


WITHOUT = "the .safetensors file that `save` of the policy writes is loaded without the environment"
"""The advice for a process without the environment of a run."""


def _described(env_id: str, settings: EnvSettings) -> EnvSpec:
    """The environment of a run. Its errors also explain how a policy is loaded without it."""
    try:
        return describe(env_id, settings)
    except UnknownEnvironmentError as error:
        hint = "" if ":" in env_id else ": import the module that registers it"
        reason = f"{error.reason}, and a checkpoint is loaded with it{hint}; {WITHOUT}"
        raise UnknownEnvironmentError(env_id, reason, error.nearest, listed=False) from error
    except UnsupportedEnvironmentError as error:
        raise UnsupportedEnvironmentError(f"{error}; {WITHOUT}") from error
