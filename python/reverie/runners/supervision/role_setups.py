"""The setups with which the roles of a run start, or start again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reverie.agents.agent import Agent
from reverie.agents.core import seed_of
from reverie.runners.links.messages import RoleName, RoleSetup
from reverie.runners.planning.topology import Topology

KINDS = {"shard": 0, "parameter shard": 1, "learner": 1, "actor": 2, "evaluator": 3, "bundle": 4}
"""The first number in the seeds of a kind's roles."""


class RoleSetups:
    """Makes the setups of one run's roles. `resumed` is the state of the run that it resumes, or None."""

    def __init__(self, agent: Agent, topology: Topology, resumed: dict[str, Any] | None) -> None:
        self._agent, self._topology, self._resumed = agent, topology, resumed

    def resumes(self, name: RoleName) -> bool:
        """Whether a role starts from the state of a resumed run."""
        return self._resumed is not None and name.kind != "evaluator"

    def first(self, name: RoleName) -> RoleSetup:
        """The setup of a role's first start."""
        topology = self._topology
        return RoleSetup(
            name=name,
            agent=self._agent,
            env=topology.env,
            config=topology.config,
            run=replace(topology.run, prefetch=topology.prefetch),
            num_shards=topology.num_shards,
            seed=self.seed(name, 0),
            run_name=topology.name,
            state=self._state(name),
            compiling=topology.compiling if name.kind == "learner" else None,
        )

    def seed(self, name: RoleName, generation: int) -> int:
        """A role's seed: as in one process, unless the role was restarted or the run was resumed.

        Each restart has a seed of its own: experience is not made twice, and a failure is not met again by its seed.
        """
        path = [KINDS[name.kind]]
        if name.kind == "parameter shard":
            return seed_of(self._topology.seed, *path)  # ranges of one network, after every restart
        if generation:
            # No other role, generation or part of the run, before or after a resume, has this path or one that zeros
            # make this path.
            began = 0 if self._resumed is None else self._resumed["env_steps"]
            return seed_of(self._topology.seed, *path, name.index, generation, began + 1)
        if name.kind in ("shard", "actor", "bundle") or (name.kind == "learner" and name.index > 0):
            path.append(name.index)
        if name.kind in ("shard", "bundle") and self._resumed is not None:
            # A table's random state is not in its checkpoint: draws must not repeat those of the start.
            path.append(self._resumed["env_steps"])
        return seed_of(self._topology.seed, *path)

    def _state(self, name: RoleName) -> dict[str, Any] | None:
        """The state that a role of a resumed run starts from."""
        state, kind, index = self._resumed, name.kind, name.index
        if state is None or kind in ("shard", "evaluator"):
            return None
        actor = state["actors"][index] if kind in ("actor", "bundle") else None
        if kind == "actor" or not self._topology.needs.num_parameter_shards:
            return actor if kind == "actor" else state["learner"]
        shared = self._agent.parameters
        assert shared is not None
        if kind == "parameter shard":
            return shared.shard_state(self._topology.env, self._topology.config, state["learner"], index)
        learner = shared.learner_state(state["learner"], index)
        return {"learner": learner, "actor": actor} if kind == "bundle" else learner
