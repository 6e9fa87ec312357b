"""The last report of every actor, learner and shard, and what they add up to for the whole run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reverie.agents.agent import Agent
from reverie.runners.links.messages import Acted, Learnt, RoleName, Served
from reverie.runners.reports.run_progress import FIGURES
from reverie.runners.supervision.absences import Absence


class LatestReports:
    """By index of the role. Not for several threads at once."""

    def __init__(self, actors: Sequence[Mapping[str, Any]] = ()) -> None:
        """`actors` are the states that actors of a resumed run go on from."""
        self.acted = {i: Acted(one["env_steps"], -1, dict(one)) for i, one in enumerate(actors)}
        self.learnt: dict[int, Learnt] = {}
        self.served: dict[int, Served] = {}

    @property
    def env_steps(self) -> int:
        """Of all actors."""
        return sum(one.env_steps for one in self.acted.values())

    @property
    def updates(self) -> int:
        """Of learners that share their parameters, the one that pulled last knows the number of updates."""
        return max(one.version for one in self.learnt.values())

    def policy_lag(self, updates: int) -> float | None:
        """Updates that the weights which act are behind on average; None where none act yet."""
        acting = [one.version for one in self.acted.values() if one.version >= 0]
        return max(0.0, updates - sum(acting) / len(acting)) if acting else None

    def metrics(self, agent: Agent, updates: int) -> dict[str, float]:
        """The learners' figures, joined as the agent joins them where there are several."""
        learners = [one.metrics for one in self.learnt.values()]
        if len(learners) > 1:
            assert agent.parameters is not None
            learners = [agent.parameters.join_metrics(learners)]
        return {"updates": updates, **(learners[0] if learners else {})}

    def figures(self) -> dict[str, float]:
        """The tables' figures, added up over the shards."""
        return {name: sum(one.figures[name] for one in self.served.values()) for name in FIGURES}

    def why(self, awaited: Mapping[RoleName, Absence]) -> str:
        """Which roles are awaited, and what the others wait for."""
        waits = {f"learner {i}": one.waits for i, one in self.learnt.items()}
        waits |= {f"actor {i}": one.waits for i, one in self.acted.items()}
        tables = {f"shard {i}": one.why for i, one in self.served.items()}
        parts = [f"{name} {one}" for name, one in awaited.items()]
        parts += [f"{name}: {text}" for name, text in {**tables, **waits}.items() if text]
        return "; ".join(parts) or "no role told of a wait"
