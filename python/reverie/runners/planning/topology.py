"""The plan of a run: a frozen description that can be printed and compared. `plan` makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from reverie.agents.core import CompilePlan, RunSettings, TableNeeds
from reverie.agents.environments import EnvSpec
from reverie.runners.planning.annealing import annealing_note, warmup_note
from reverie.runners.planning.effects import no_effect_note
from reverie.runners.planning.first_update import no_update_note
from reverie.runners.planning.folders import JOURNAL_IN_RUN, has_journal, name_of_run
from reverie.runners.planning.memory_parts import NETWORKS, PROCESSES, gib, is_replay
from reverie.runners.planning.relabelling import relabelling_note
from reverie.runners.planning.unfinished_schedules import unfinished_note

PREFETCH = 2
"""Batches drawn ahead by default: one that waits, and one that is being made."""

RunnerName = Literal["local", "process", "ray"]
"""One process and one thread; one process per role on this machine; one Ray actor per role on a cluster."""


@dataclass(frozen=True)
class RolePlace:
    """The place in which the roles of one kind run."""

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
    """The plan of the updates that the learner compiles; None if it compiles none."""
    folder: Path | None = None
    """The folder of the run; None for a run that keeps nothing."""
    usual: tuple[Any, ...] = ()
    """Settings of the agent's own presets, for the environment and the one that was loaded, if a note needs them."""

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
    def places(self) -> tuple[RolePlace, ...]:
        """The place of each kind of role. The supervisor runs in this process and is not among them."""
        if self.runner == "local":
            where = "this process, taking turns in one thread"
            return (RolePlace("all", 1, self.run.threads, where, memory_bytes=self.memory_bytes),)
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
            RolePlace(role, count, *properties[role], memory_bytes=self.memory_of(role))
            for role, count in self._processes.items()
        )

    def memory_of(self, role: str) -> int:
        """Bytes that each role of a kind takes at most (an estimate): an actor holds one copy of the policy at most.

        Each part of the run's memory belongs to the processes, the servers or the networks; the learners share the
        rest.
        """
        memory, needs, actors = self.memory, self.needs, self.num_actors
        processes = memory.get(PROCESSES, 0) // self.num_processes
        networks = sum(size for part, size in memory.items() if NETWORKS in part)
        replay = sum(size for part, size in memory.items() if is_replay(part))
        batches = sum(memory.values()) - memory.get(PROCESSES, 0) - networks - replay
        # Every agent counts its own copies of the networks, at least three, plus one for each actor.
        copy = networks // (actors + 3)
        learning = networks - actors * copy
        holders = needs.num_learners + (1 if needs.num_parameter_shards else 0)
        server = learning // holders if needs.num_parameter_shards else 0
        shares = {
            "shard": replay // self.num_servers,
            "learner": batches // needs.num_learners + learning // holders,
            "bundle": (replay + batches + networks - server) // actors,
            "parameter shard": server // max(1, needs.num_parameter_shards),
            "actor": copy,
            "evaluator": copy,
        }
        return processes + shares[role]

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
        no_update = no_update_note(*settings)
        notes = [self.env.note, no_update]
        if not no_update:
            notes += [warmup_note(*settings), annealing_note(*settings)]
            notes += [unfinished_note(self.config, self.env, self.needs, self.run)]
        notes += [relabelling_note(self.config, self.usual), no_effect_note(self.config, self.env, self.usual)]
        return "; ".join(filter(None, notes))

    def describe(self) -> str:
        """A summary in two lines, and a third with `note`, if there is one."""
        actors = f"{counted(self.num_actors, 'actor')} of {counted(self.envs_per_actor, 'environment')}"
        learners, names = counted(self.needs.num_learners, "learner"), self.needs.tables
        tables = f"{'table' if len(names) == 1 else 'tables'} {', '.join(map(repr, names))} in "
        if self.runner == "local":
            tables += "this process"
        else:
            tables += "bundles of their own" if self.needs.bundled else counted(self.num_shards, "shard")
        if self.needs.num_parameter_shards:
            learners += f" on {counted(self.needs.num_parameter_shards, 'parameter shard')}"
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


def counted(count: int, word: str) -> str:
    """`1 actor`, `2 actors`."""
    return f"{count} {word}{'' if count == 1 else 's'}"
