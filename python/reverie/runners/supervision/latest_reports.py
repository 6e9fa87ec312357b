"""The last report of every actor, learner and shard, and their totals for the whole run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from reverie.agents.agent import Agent
from reverie.runners.links.messages import ActorReport, LearnerReport, RoleName, ShardReport
from reverie.runners.reports.run_progress import FIGURES
from reverie.runners.supervision.absences import Absence


class LatestReports:
    """The last reports, by index of the role. Not thread-safe."""

    def __init__(self, actors: Sequence[Mapping[str, Any]] = ()) -> None:
        """`actors` are the states that the actors of a resumed run start from."""
        self.acted = {i: ActorReport(one["env_steps"], -1, dict(one)) for i, one in enumerate(actors)}
        self.learnt: dict[int, LearnerReport] = {}
        self.served: dict[int, ShardReport] = {}

    @property
    def env_steps(self) -> int:
        """Environment steps of all actors."""
        return sum(one.env_steps for one in self.acted.values())

    @property
    def updates(self) -> int:
        """The number of updates: the newest version of all learners, which share their parameters."""
        return max(one.version for one in self.learnt.values())

    def waits(self, name: RoleName) -> bool:
        """Whether an actor awaits weights, or a learner a batch."""
        acted, learnt = self.acted.get(name.index), self.learnt.get(name.index)
        if name.kind == "actor":
            return acted is not None and acted.awaits_weights
        return learnt is not None and learnt.awaits_batch

    def forget_wait(self, name: RoleName) -> None:
        """A role was restarted: it does not wait until it reports so."""
        if name.kind == "actor" and name.index in self.acted:
            self.acted[name.index] = replace(self.acted[name.index], awaits_weights=False)
        if name.kind == "learner" and name.index in self.learnt:
            self.learnt[name.index] = replace(self.learnt[name.index], awaits_batch=False)

    def policy_lag(self, updates: int) -> float | None:
        """Updates by which the actors' weights are behind on average; None while no actor has weights."""
        acting = [one.version for one in self.acted.values() if one.version >= 0]
        return max(0.0, updates - sum(acting) / len(acting)) if acting else None

    def metrics(self, agent: Agent, updates: int) -> dict[str, float]:
        """The learners' metrics; the agent joins those of several learners."""
        learners = [one.metrics for one in self.learnt.values()]
        if len(learners) > 1:
            assert agent.parameters is not None
            learners = [agent.parameters.join_metrics(learners)]
        return {"updates": updates, **(learners[0] if learners else {})}

    def figures(self) -> dict[str, float]:
        """The tables' figures, summed over the shards."""
        return {name: sum(one.figures[name] for one in self.served.values()) for name in FIGURES}

    def why(self, awaited: Mapping[RoleName, Absence]) -> str:
        """The roles that are awaited, and what the others wait for, as text."""
        waits = {f"learner {i}": one.waits for i, one in self.learnt.items()}
        waits |= {f"actor {i}": one.waits for i, one in self.acted.items()}
        tables = {f"shard {i}": one.why for i, one in self.served.items()}
        parts = [f"{name} {one}" for name, one in awaited.items()]
        parts += [f"{name}: {text}" for name, text in {**tables, **waits}.items() if text]
        return "; ".join(parts) or "no role reported a wait"
