"""Makes the plan of a run, and refuses it before anything starts if it cannot run as asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reverie import _checks
from reverie.agents.agent import Agent
from reverie.agents.core import Preset, RunSettings, seed_of
from reverie.agents.env_ids import id_of, require_importable
from reverie.agents.env_settings import DEFAULTS, EnvSettings
from reverie.agents.environments import EnvSpec, describe
from reverie.agents.hindsight import without_returns
from reverie.agents.presets import PresetError
from reverie.agents.settings import Settings, schedules_of
from reverie.runners.planning.compiling import compile_plan
from reverie.runners.planning.devices import require_device, with_device
from reverie.runners.planning.effects import may_need_note
from reverie.runners.planning.folders import with_absolute_dataset, with_absolute_folders
from reverie.runners.planning.memory import require_memory
from reverie.runners.planning.memory_parts import PROCESS_BYTES, PROCESSES, on_disk
from reverie.runners.planning.nodes import ClusterNode
from reverie.runners.planning.relabelling import relabels
from reverie.runners.planning.topology import RunnerName, Topology, counted
from reverie.runners.planning.turns import require_turns
from reverie.runners.planning.value_bounds import require_bounds
from reverie.sharding import shard_table

LOCKED_AHEAD = 4
"""Batches in page-locked memory if batches are drawn ahead for a GPU: two that a thread has sent, and two that were
read before their copies were done, whose memory PyTorch keeps for the next ones. The thread has one more as drawn."""
LOCKED = 2
"""Batches in page-locked memory if each is drawn on demand: the one that is copied, and the one before."""


def plan(
    agent: Agent,
    env_id: str | Callable[..., Any],
    *,
    seed: int = 0,
    preset: Preset | Path | str | None = None,
    config: Any = None,
    run: RunSettings | None = None,
    environment: EnvSettings | None = None,
    num_shards: int = 1,
    runner: RunnerName = "local",
    available_bytes: int | None = None,
    nodes: Sequence[ClusterNode] | None = None,
    check_memory: bool = True,
    check_files: bool = True,
) -> Topology:
    """Plan a run without starting anything.

    `preset` is a file, the name of one of the agent's presets, or a `Preset`. `config`, `run` and `environment` replace
    those of the preset. Folders in `run` are made absolute. The run must fit
    `available_bytes` (by default the memory that this process may still take). With the runner "ray" each node of
    `nodes` must have room for the roles that are placed on it; without `nodes`, memory is not checked here, since the
    cluster need not exist yet: a run on Ray asks it. `check_memory=False` skips both checks. `check_files=False` leaves
    the check of files that settings name, such as a data set, to the roles that read them: a resumed run that has
    finished reads none.

    Raises `UnknownEnvironmentError`, `UnsupportedEnvironmentError`, `PresetError`, `DeviceError`, `DoesNotFitError` and
    `NoRoomError` if memory does not suffice, ValueError for a table with which the runner "local" would never act
    again, for bounds of returns that have another unit than the rewards, or for a data set that does not fit, the
    errors of `open_dataset` for one that cannot be opened, and TypeError for arguments of another type.
    """
    if not isinstance(agent, Agent):
        raise TypeError(f"agent is {agent!r}, and must be an Agent: reverie.agents.find gives it by name")
    seed, num_shards = _checks.integer("seed", seed), _checks.count("num_shards", num_shards, 1)
    env_id = id_of(env_id)
    require_settings("environment", environment, DEFAULTS, "a run")
    found = _preset_of(agent, env_id, preset, environment)
    require_settings("config", config, found.config, agent.name)
    if not isinstance(preset, Preset) and environment is None:
        found = without_returns(found if config is None else replace(found, config=config), ())
    env = describe(env_id, found.environment if environment is None else environment)
    require_importable((env_id, *env.settings.named_parts()), runner)
    agent.check(env)
    require_settings("run", run, found.run, "a run")
    run = with_device(agent, with_absolute_folders(found.run if run is None else run), runner)
    require_device(agent, run, runner)
    config = with_absolute_dataset(found.config if config is None else config)
    schedules_of(config, 0, 0)
    require_bounds(config, env, found.path)
    if check_files and isinstance(config, Settings):
        config.require_files(env, elsewhere=runner == "ray")
    actors, envs = agent.layout(config)
    topology = Topology(
        agent=agent.name,
        env=env,
        seed=seed,
        num_actors=actors,
        envs_per_actor=envs,
        runner=runner,
        num_shards=num_shards,
        needs=agent.needs(config),
        run=run,
        config=config,
        preset=found.path,
        memory=MappingProxyType({}),
        compiling=compile_plan(agent, config, env, run, runner),
        usual=_usual(agent, env, config, found.path),
    )
    memory = {PROCESSES: PROCESS_BYTES * topology.num_processes, **agent.memory(env, config)}
    if topology.run.replay_disk is not None and topology.run.replay_memory is not None:
        items = len(topology.needs.tables) * getattr(config, "capacity", 0)
        memory = on_disk(memory, topology.run.replay_memory, items)
    memory |= _batches_on_their_way(topology)
    topology = replace(topology, memory=MappingProxyType(memory))
    _require_parameter_shards(topology)
    _check_prefetch(topology)
    if runner == "local":
        require_turns(agent.name, topology.needs, agent.make_tables(env, config, seed=seed_of(seed, 0)))
    if num_shards > 1:
        _check_shards(agent, topology)
    if check_memory:
        require_memory(topology, available_bytes, nodes)
    return topology


def _preset_of(
    agent: Agent, env_id: str, preset: Preset | Path | str | None, environment: EnvSettings | None
) -> Preset:
    """The agent's preset: the one that is given, which is not read again, or that of a file."""
    if not isinstance(preset, Preset):
        path = None if preset is None else _checks.path("preset", preset)
        return agent.load_preset(env_id, path, {} if environment is None else vars(environment))
    if not isinstance(preset.config, agent.config):
        raise TypeError(
            f"preset has settings of the type {type(preset.config).__name__}, and {agent.name} takes a"
            f" {agent.config.__name__}: give a preset of this agent"
        )
    return preset


def _usual(agent: Agent, env: EnvSpec, config: Any, loaded: Path) -> tuple[Any, ...]:
    """The settings of the agent's own presets that a note may need: the environment's, and the one that was loaded."""
    if not (may_need_note(config, env) or relabels(config)):
        return ()
    own = [loaded] if loaded.is_file() and loaded.resolve().is_relative_to(agent.presets.resolve()) else []
    try:
        return tuple(agent.load_preset(env.env_id, path, vars(env.settings)).config for path in (None, *own))
    except PresetError:  # an agent without presets: all settings are the user's
        return ()


def _batches_on_their_way(topology: Topology) -> dict[str, int]:
    """Bytes of the batches between the replay and the update, by part. A learner's own batch is its agent's part."""
    ahead, needs = topology.prefetch, topology.needs
    batch = needs.batch_size * needs.observations * topology.env.obs_bytes
    parts = {f"{ahead} batches ahead": ahead * batch} if ahead else {}
    if topology.run.device != "cpu":
        locked, drawn = (LOCKED_AHEAD, 1) if ahead else (LOCKED, 0)
        # PyTorch rounds page-locked memory up to a power of two.
        parts["batches for the GPU"] = locked * (1 << (batch - 1).bit_length()) + drawn * batch
    return {part: needs.num_learners * size for part, size in parts.items()}


def require_settings(name: str, given: Any, own: Any, of: str) -> None:
    """Raise TypeError if the settings `given` are of another type than those of a preset, `own`."""
    if given is not None and not isinstance(given, type(own)):
        raise TypeError(
            f"{name} is a {type(given).__name__}, and {of} takes a {type(own).__name__}: change that of a preset with"
            " dataclasses.replace"
        )


def _require_parameter_shards(topology: Topology) -> None:
    needs, name = topology.needs, topology.agent
    if topology.runner == "local":
        return
    if (needs.num_learners > 1 or needs.bundled) and not needs.num_parameter_shards:
        raise ValueError(
            f"{name} has {counted(needs.num_learners, 'learner')} and {counted(len(needs.tables), 'table')} with"
            " these settings, and no parameter shards: in separate processes its learners would not share parameters;"
            " use"
            " the runner 'local', or settings with one learner"
        )


def _check_prefetch(topology: Topology) -> None:
    ahead, needs = topology.run.prefetch, topology.needs
    if not ahead:
        return
    if topology.runner == "local":
        raise ValueError(
            f"prefetch is {ahead}, and in one process learning and acting take turns, so that the same seed gives the"
            " same run: leave it out, or use the runner 'process' or 'ray'"
        )
    if not needs.draws_ahead:
        draws = "in turns with its actor" if needs.bundled else "from a queue, which gives each unroll once"
        raise ValueError(f"prefetch is {ahead}, and each learner of {topology.agent} draws {draws}: leave it out")


def _check_shards(agent: Agent, topology: Topology) -> None:
    if topology.runner == "local":
        raise ValueError(
            f"num_shards is {topology.num_shards}, and the runner 'local' has one shard: use another runner"
        )
    if topology.needs.bundled:
        raise ValueError(
            f"num_shards is {topology.num_shards}, and bundled each actor of {agent.name} keeps a replay of its own,"
            f" {counted(topology.num_servers, 'server')} already: set bundled=false for one replay over"
            f" {topology.num_shards} shards, or ask for more bundles (num_actors and num_learners)"
        )
    tables = agent.make_tables(topology.env, topology.config, seed=seed_of(topology.seed, 0))
    if len(tables) > 1:
        names = ", ".join(repr(table.name) for table in tables)
        raise ValueError(
            f"num_shards is {topology.num_shards}, and {agent.name} has several tables ({names}): ask for 1"
        )
    for table in tables:
        try:
            shard_table(table, topology.num_shards)
        except ValueError as error:
            raise ValueError(
                f"num_shards is {topology.num_shards}, which {agent.name} does not support: {error}"
            ) from error
    if topology.num_actors < topology.num_shards:
        raise ValueError(
            f"num_shards is {topology.num_shards}, and num_actors {topology.num_actors}: an actor writes to one shard,"
            " and the part of the capacity of one without an actor would stay empty: ask for at most"
            f" {topology.num_actors}, or for more actors"
        )
