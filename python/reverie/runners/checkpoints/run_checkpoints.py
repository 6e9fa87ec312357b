"""Checkpoints of a run: its state and its tables, written together and checked before the run resumes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import nn

from reverie.agents import named_parameters, presets
from reverie.agents.agent import Agent
from reverie.agents.core import Preset, Weights
from reverie.runners.checkpoints.checkpoint_files import (
    REPLAY,
    CheckpointError,
    agent_of,
    all_in,
    env_steps_of,
    load,
    name_of,
    remove_outdated,
    save,
)
from reverie.runners.checkpoints.replays import ReplayFolders, named_from, remove_replays, remove_unnamed
from reverie.runners.checkpoints.setting_changes import (
    MUST_STAY,
    ChangedSettingsError,
    SettingChange,
    changes,
    require_unchanged,
)
from reverie.runners.links.messages import SavedState
from reverie.runners.planning.topology import Topology, counted
from reverie.runners.reports.events import NotSaved, Saved
from reverie.runners.reports.run_progress import RESULT


def save_run(folder: Path, agent: Agent, topology: Topology, state: dict[str, Any], tables: list[Path]) -> Path:
    """Write a checkpoint of a run whose tables (one path per shard) are written. Raises OSError as `save` does.

    `state["weights"]` are the `Weights` of actors; the checkpoint has them by the names of the policy's parameters.
    """
    preset = presets.dump(Preset(topology.config, topology.run, topology.preset, environment=topology.env.settings))
    paths = [named_from(folder, one) for one in tables]
    weights = _named(agent, topology, state["weights"])
    return save(folder, state["env_steps"], {**state, "weights": weights, REPLAY: paths}, preset)


def replace_older(path: Path, tables: list[Path], replays: ReplayFolders) -> Saved:
    """Remove the checkpoints that the new one at `path` replaces, and tables that none needs; returns its event.

    `tables` are those of the new one. Checkpoints of the run as it went on before from the one that it resumed are
    removed first: "newest" means of most steps, and so would be one of them.
    """
    folder, current = path.parent, tables[0].parent
    replays.abandoned.discard(name_of(path))  # it has replaced the other one of its step
    abandoned = [one for one in all_in(folder) if name_of(one) in replays.abandoned]
    problem = ""
    try:
        remove_outdated(folder, abandoned)
        remove_unnamed(folder, replays)
        remove_replays(folder, current if len(tables) == 1 else current.parent)
    except OSError as error:
        problem = str(error)
    gone = tuple(name_of(one) for one in abandoned if not one.exists())
    replays.abandoned.difference_update(gone)
    return Saved(env_steps_of(path), path, problem, gone)


def not_saved(folder: Path, env_steps: int, error: OSError, replays: ReplayFolders, *, is_last: bool) -> NotSaved:
    """The event of a checkpoint that could not be written into `folder`; keeps its tables from displacing others."""
    with suppress(OSError):  # the next one tries again
        remove_unnamed(folder, replays)
    return NotSaved(env_steps, folder, error.strerror or str(error), is_last)


def _named(agent: Agent, topology: Topology, weights: Weights) -> dict[str, Any]:
    policy = agent.make_policy(topology.env, topology.config)
    policy.load(weights)
    return {"version": weights.version, "parameters": named_parameters.copied(policy.module)}


def require_named_weights(agent: Agent, topology: Topology) -> None:
    """Raise TypeError for an agent whose policy has no `module`, with which checkpoints name its weights."""
    if not isinstance(getattr(agent.make_policy(topology.env, topology.config), "module", None), nn.Module):
        raise TypeError(
            f"the policy of {agent.name} has no `module`, whose parameters are the weights in a checkpoint;"
            " reverie.agents.core.Policy describes it"
        )


def table_paths(answers: Sequence[SavedState]) -> list[Path]:
    """The paths where servers wrote their tables. Raises OSError if one could not."""
    for problem in [one.problem for one in answers if one.problem]:
        raise OSError(problem)
    return [Path(str(one.tables)) for one in answers]


def require_agent(path: Path, agent: Agent) -> None:
    """Raise `ChangedSettingsError` if the checkpoint is of another agent: its settings are not comparable."""
    before = agent_of(path)
    if before != agent.name:
        raise ChangedSettingsError(path, [SettingChange("agent", before, agent.name, MUST_STAY["agent"])])


def load_run(resume: Path, agent: Agent, topology: Topology) -> dict[str, Any]:
    """The state of a checkpoint that this run may resume from.

    Raises `CheckpointError`; `ChangedSettingsError`, which is one, names every setting that may not change.
    """
    state = load(resume)
    require_unchanged(resume, changes(state["identity"], agent, topology))
    _require_same_weights(resume, agent, topology, state)
    if len(state[REPLAY]) != topology.num_servers:
        if topology.needs.bundled:
            raise CheckpointError(
                resume,
                f"has the tables of {counted(len(state[REPLAY]), 'server')}, and this run {topology.num_servers}:"
                " resume bundles with the runner 'local' if it wrote the checkpoint, else with another",
            )
        earlier, now = counted(len(state[REPLAY]), "shard"), counted(topology.num_servers, "shard")
        words = f"is of a run with {earlier}, and this one has {now}: ask for as many (num_shards, --num-shards)"
        raise CheckpointError(resume, words)
    if RESULT not in state and state["env_steps"] >= topology.run.max_env_steps:  # of an earlier version
        done = f"is of a run that ended after {state['env_steps']:,} environment steps"
        raise CheckpointError(resume, f"{done}; raise max_env_steps ({topology.run.max_env_steps:,})")
    return state


def _require_same_weights(path: Path, agent: Agent, topology: Topology, state: dict[str, Any]) -> None:
    own = agent.make_policy(topology.env, topology.config).module
    shapes = {name: tuple(one.shape) for name, one in own.named_parameters()}
    try:
        named_parameters.require_same(state["weights"]["parameters"], shapes, "this run")
    except named_parameters.ParameterError as error:
        raise CheckpointError(path, str(error)) from error
