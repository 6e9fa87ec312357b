"""The plan of a run: a frozen description that can be printed, compared, and refused before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from reverie import _checks
from reverie.agents.agent import Agent
from reverie.agents.core import CompilePlan, Preset, RunSettings, TableNeeds, seed_of
from reverie.agents.env_ids import id_of, require_importable
from reverie.agents.env_settings import DEFAULTS, EnvSettings
from reverie.agents.environments import EnvSpec, describe
from reverie.runners.planning.annealing import annealing_note
from reverie.runners.planning.compiling import compile_plan
from reverie.runners.planning.devices import require_device, with_device
from reverie.runners.planning.first_update import no_update_note
from reverie.runners.planning.folders import (
    JOURNAL_IN_RUN,
    has_journal,
    name_of_run,
    with_absolute_dataset,
    with_absolute_folders,
)
from reverie.runners.planning.memory import PROCESS_BYTES, require_memory
from reverie.runners.planning.nodes import PROCESSES, Node, gib, memory_of_role, on_disk
from reverie.runners.planning.turns import require_turns
from reverie.sharding import shard_table

PREFETCH = 2
"""Batches drawn ahead by default: one that waits, and one that is being made."""

LOCKED_AHEAD = 4
"""Batches in page-locked memory if batches are drawn ahead for a GPU: two that a thread has sent, and two that were
read before their copies were done, whose memory PyTorch keeps for the next ones. The thread has one more as drawn."""
LOCKED = 2
"""The same if each batch is drawn on demand: the one that is copied, and the one before."""

RunnerName = Literal["local", "process", "ray"]
"""One process and one thread; one process per role on this machine; one Ray actor per role on a cluster."""


@dataclass(frozen=True)
class Place:
    """Where the roles of one kind run."""

    role: str
    count: int
    num_cpus: float
    """CPUs that each role is expected to keep busy."""
    where: str
    num_gpus: float = 0.0
    """GPUs that each role requests from Ray; a role that requests none computes on the CPU."""
    memory_bytes: int = 0
    """Memory that each role takes at most."""


@dataclass(frozen=True)
class Topology:
    """One run: its actors, environment, tables and end."""

    agent: str
    env: EnvSpec
    seed: int
    num_actors: int
    envs_per_actor: int
    runner: RunnerName
    num_shards: int
    needs: TableNeeds
    run: RunSettings
    config: Any
    preset: Path
    memory: Mapping[str, int]
    """Bytes by the part of the run that needs them."""
    compiling: CompilePlan | None = None
    """From which updates on the learner compiles them; None if it does not."""
    folder: Path | None = None
    """The folder of the run; None for a run that keeps nothing."""

    @property
    def name(self) -> str:
        """A name that no other run has which may run at the same time, and that stays when the run is resumed."""
        return name_of_run(self.folder, self.seed)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "memory": dict(self.memory)}  # a read-only view cannot be pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, memory=MappingProxyType(state["memory"]))

    @property
    def memory_bytes(self) -> int:
        """The sum of `memory`."""
        return sum(self.memory.values())

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that are compared when a run is resumed: see `checkpoints.setting_changes`."""
        names = {"agent": self.agent, "env_id": self.env.env_id, "seed": self.seed}
        return {**names, **vars(self.config), **vars(self.env.settings)}

    @property
    def prefetch(self) -> int:
        """Batches that each learner draws ahead."""
        if self.run.prefetch is not None:
            return self.run.prefetch
        return PREFETCH if self.runner != "local" and self.needs.draws_ahead else 0

    @property
    def num_servers(self) -> int:
        """Servers with tables: the shards, or one in each bundle that runs in its own process."""
        return self.num_actors if self.needs.bundled and self.runner != "local" else self.num_shards

    @property
    def places(self) -> tuple[Place, ...]:
        """Where each kind of role runs. The supervisor runs in this process and is not among them."""
        if self.runner == "local":
            where = "this process, taking turns in one thread"
            return (Place("all", 1, self.run.threads, where, memory_bytes=self.memory_bytes),)
        where, reached = "a process of its own on this machine", "on loopback, reached through shared memory"
        if self.runner == "ray":
            where, reached = "an actor of Ray, where it has room", "with TLS and a token, reached on its host as here"
        on_gpus = self.runner == "ray" and self.run.device != "cpu"
        whole, share = (1.0, self.run.gpus_per_actor) if on_gpus else (0.0, 0.0)
        threads = self.run.threads
        properties = {
            "bundle": (threads, f"{where}; actor, table and learner", whole),
            "shard": (1, f"{where}; it listens {reached}", 0.0),
            "learner": (threads, where, whole),
            "actor": (1, where, share),
            "parameter shard": (1, f"{where}; learners push to it", 0.0),
            "evaluator": (1, where, share),
        }
        return tuple(
            Place(role, count, *properties[role], memory_bytes=memory_of_role(role, self))
            for role, count in self._processes.items()
        )

    @property
    def num_processes(self) -> int:
        """The processes of `places`, and this one."""
        return 1 if self.runner == "local" else 1 + sum(self._processes.values())

    @property
    def _processes(self) -> dict[str, int]:
        """The number of processes of each kind of role, if each role has its own."""
        needs = self.needs
        bundled = {"bundle": self.num_actors}
        apart = {"shard": self.num_shards, "learner": needs.num_learners, "actor": self.num_actors}
        shards = {"parameter shard": needs.num_parameter_shards} if needs.num_parameter_shards else {}
        return {**(bundled if needs.bundled else apart), **shards, "evaluator": 1}

    @property
    def note(self) -> str:
        """A sentence about settings that rarely fit together; empty if there is none."""
        settings = self.config, self.needs, self.run
        return no_update_note(*settings) or annealing_note(*settings)

    def describe(self) -> str:
        """A summary in two lines, and a third with `note`, if there is one."""
        actors = f"{_counted(self.num_actors, 'actor')} of {_counted(self.envs_per_actor, 'environment')}"
        learners, names = _counted(self.needs.num_learners, "learner"), self.needs.tables
        tables = f"{'table' if len(names) == 1 else 'tables'} {', '.join(map(repr, names))} in "
        if self.runner == "local":
            tables += "this process"
        else:
            tables += "bundles of their own" if self.needs.bundled else _counted(self.num_shards, "shard")
        if self.needs.num_parameter_shards:
            learners += f" on {_counted(self.needs.num_parameter_shards, 'parameter shard')}"
        target, run = self.run.target_return, self.run
        end = f"until {target:g} is reached and confirmed, at most" if target is not None else "without a target,"
        made = "".join(f", {name} {value!r}" for name, value in self.env.settings.changed().items())
        memory = f"about {gib(self.memory_bytes)} of memory"
        if has_journal(run):
            where = "with its checkpoints" if run.replay_journal == JOURNAL_IN_RUN else f"in {run.replay_journal}"
            memory += f"; a journal {where}, sync {run.replay_journal_sync or 'interval'}"
        return (
            f"{self.agent} on {self.env.env_id}, seed {self.seed}{made}: {actors}, {learners}, one greedy evaluator,"
            f" {tables}\n"
            f"{end} {run.max_env_steps:,} environment steps; {memory}; on {self.run.devices}; preset {self.preset}"
            + (f"\nnote: {self.note}" if self.note else "")
        )


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
    nodes: Sequence[Node] | None = None,
    check_memory: bool = True,
) -> Topology:
    """Plan a run without starting anything.

    `preset` is a file, the name of one of the agent's presets, or a `Preset`. `config`, `run` and `environment` replace
    those of the preset. Folders in `run` are made absolute. The run must fit
    `available_bytes` (by default the memory that this process may still take). With the runner "ray" each node of
    `nodes` must have room for the roles that are placed on it; without `nodes`, memory is not checked here, since the
    cluster need not exist yet: a run on Ray asks it. `check_memory=False` skips both checks.

    Raises `UnknownEnvironmentError`, `UnsupportedEnvironmentError`, `PresetError`, `DeviceError`, `DoesNotFitError` and
    `NoRoomError` if memory does not suffice, ValueError for a table with which the runner "local" would never act
    again, and TypeError for arguments of another type.
    """
    if not isinstance(agent, Agent):
        raise TypeError(f"agent is {agent!r}, and must be an Agent: reverie.agents.find gives it by name")
    seed, num_shards = _checks.integer("seed", seed), _checks.count("num_shards", num_shards, 1)
    env_id = id_of(env_id)
    require_settings("environment", environment, DEFAULTS, "a run")
    found = _preset_of(agent, env_id, preset, environment)
    env = describe(env_id, found.environment if environment is None else environment)
    require_importable((env_id, *env.settings.named_parts()), runner)
    agent.check(env)
    require_settings("config", config, found.config, agent.name)
    require_settings("run", run, found.run, "a run")
    run = with_device(agent, with_absolute_folders(found.run if run is None else run), runner)
    require_device(agent, run, runner)
    config = with_absolute_dataset(found.config if config is None else config)
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
            f"{name} has {_counted(needs.num_learners, 'learner')} and {_counted(len(needs.tables), 'table')} with"
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
        takes = "an actor and a learner that take turns" if needs.bundled else "a queue, which gives each unroll once"
        raise ValueError(
            f"prefetch is {ahead}, and with these settings {topology.agent} learns from {takes}: leave it out"
        )


def _check_shards(agent: Agent, topology: Topology) -> None:
    if topology.runner == "local":
        raise ValueError(
            f"num_shards is {topology.num_shards}, and the runner 'local' has one shard: use another runner"
        )
    if topology.needs.bundled:
        raise ValueError(
            f"num_shards is {topology.num_shards}, and bundled each actor of {agent.name} keeps a replay of its own,"
            f" {_counted(topology.num_servers, 'server')} already: set bundled=false for one replay over"
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


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
