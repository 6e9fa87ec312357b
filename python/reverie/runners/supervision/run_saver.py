"""Checkpoints of a distributed run: the roles that are asked for their states, and what is written of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from reverie.agents.agent import Agent
from reverie.runners import checkpoints
from reverie.runners.links.messages import RoleName, SavedState
from reverie.runners.links.replay_storage import samples_at
from reverie.runners.planning.topology import Topology
from reverie.runners.reports.events import Event
from reverie.runners.reports.run_progress import RunProgress
from reverie.runners.supervision.role_group import RoleGroup


class RunSaver:
    """Writes the checkpoints of one run to `folder`; none without a folder."""

    def __init__(
        self,
        folder: Path | None,
        agent: Agent,
        topology: Topology,
        roles: RoleGroup,
        replays: checkpoints.ReplayFolders,
        account: RunProgress,
        emit: Callable[[Event], None],
        *,
        newest: Path | None,
    ) -> None:
        self._folder, self._agent, self._topology, self._roles = folder, agent, topology, roles
        self._replays, self._account, self._emit = replays, account, emit
        self.newest = newest
        """The newest checkpoint."""

    @property
    def roles_to_ask(self) -> list[RoleName]:
        """Learners and parameter shards; if checkpoints are written, also the shards, for their tables."""
        roles = self._roles
        return [*roles.learning, *(roles.shards if self._folder is not None else [])]

    def save(
        self,
        states: dict[RoleName, SavedState],
        actor_states: Callable[[], list[dict[str, Any]]],
        *,
        env_steps: int,
        began: float,
        is_last: bool,
    ) -> Path | None:
        """Write the states that `roles_to_ask` have answered with; returns the checkpoint's path.

        `env_steps` and `began` (of `time.perf_counter`) are those of the moment before the roles were asked, and
        `is_last` is whether the run ends with this checkpoint. A disk that fails is an event of the run, and returns
        None.
        """
        roles, account = self._roles, self._account
        if (folder := self._folder) is None:
            return None
        learners, shards = ([states[name] for name in names] for names in (roles.learners, roles.parameters))
        tables = [states[name] for name in (roles.shards or roles.learners)]
        assert learners[0].weights is not None
        learner = self._joined([one.state for one in learners], [one.state for one in shards])
        state = {
            **account.state_dict(),
            "turn": 0,
            "weights": learners[0].weights,
            "learner": learner,
            "actors": actor_states(),
            **self._replays.state_dict(self._draws(learner.get("draws"), tables)),
        }
        try:
            written = checkpoints.table_paths(tables)
            path = checkpoints.save_run(folder, self._agent, self._topology, state, written)
            saved = checkpoints.replace_older(path, written, self._replays)
        except OSError as error:
            self._emit(checkpoints.not_saved(folder, env_steps, error, self._replays, is_last=is_last))
            return None
        finally:
            account.watch.add("checkpoint", time.perf_counter() - began)
        self._emit(saved)
        self.newest = path
        return path

    def _draws(self, learnt: Any, tables: list[SavedState]) -> list[dict[str, Any]]:
        """`samples` and `lost` of each server at the learners' state, whose joined `TableDraws.state_dict` is given.

        The state of a learner that draws by itself, as others' may, has none: the servers' counts are taken.
        """
        samples, lost = [dict(one.samples) for one in tables], [self._roles.lost(i) for i in range(len(tables))]
        if isinstance(learnt, Mapping) and all(learnt.get("table") in one for one in samples):
            samples = samples_at(learnt, samples, lost)
        return [{"samples": one, "lost": other} for one, other in zip(samples, lost, strict=True)]

    def _joined(self, learners: list[Any], shards: list[Any]) -> Any:
        """The states of learners and parameter shards joined into one, as in a run with one process."""
        if (shared := self._agent.parameters) is None or not shards:
            return learners[0]
        return shared.join_states(self._topology.env, self._topology.config, learners, shards)
