"""The role of a bundle: an actor, its replay and its learner in one process."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from reverie.agents.core import Weights
from reverie.errors import DeadlineExceededError, UnavailableError
from reverie.runners.links.messages import (
    BundleReport,
    Command,
    FollowParameterShards,
    Report,
    RoleReady,
    RoleSetup,
    SavedState,
    SaveState,
    ShardReport,
    ShowFigures,
)
from reverie.runners.links.replay_storage import ReplayStorage, allow_again
from reverie.runners.planning.devices import networks_on
from reverie.runners.reports.run_progress import replay_figures
from reverie.runners.roles.learners import PUBLISH_SECONDS, LearningRole, PublishingLearner
from reverie.runners.roles.role import (
    TURN_SECONDS,
    RoleLink,
    acted,
    open_page,
    with_new_random_state,
    with_tables,
)
from reverie.server import Server


class BundleRole(LearningRole):
    """An actor, its table and its learner, taking turns in one thread.

    It learns if the table can give a batch, and acts otherwise. No other role reaches the table. It pulls parameters
    from the parameter shards and pushes gradients to them.
    """

    def __init__(self, setup: RoleSetup) -> None:
        super().__init__(setup)
        assert setup.serving is not None
        index, needs = setup.name.index, self.agent.needs(setup.config)
        self._table, self._needs = needs.table_of(index), needs
        all_tables = setup.run.stored(self.agent.make_tables(setup.env, setup.config, seed=setup.seed))
        (table,) = [one for one in all_tables if one.name == self._table]
        disk = setup.run.server_disk(setup.run_name, index, len(all_tables))
        storage = setup.serving.storage
        self._server = Server([table], listen=False, **storage.server_options(), **disk)
        with ExitStack() as opened:
            # The start is tried again in this process while parameter shards do not answer: a server that was left
            # open would hold the locks of the journal and of the disk's folder, which the next one opens.
            opened.callback(self._server.stop)
            self._make_parts(setup, storage)
            opened.pop_all()
        self._waits = ""

    def _make_parts(self, setup: RoleSetup, storage: ReplayStorage) -> None:
        """Make the learner and the actor on the server's table."""
        self._client, self._page = self._server.client(), open_page(self._server, setup)
        self._lost = storage.lost_draws(self._client)
        allow_again(self._server.tables, self._lost)
        self.inner = PublishingLearner(setup, self._client, self.watch)
        state = setup.state or {"learner": None, "actor": None}
        if state["learner"] is not None:
            self.inner.learner.load_state_dict(state["learner"])
        self._source = LocalWeights(self.inner.learner, self.inner.publish())
        with networks_on(setup.run.policy_device):
            self._actor = self.agent.make_actor(
                setup.env,
                setup.config,
                self._client,
                self._source,
                index=setup.name.index,
                seed=setup.seed,
                watch=self.watch,
            )
        if state["actor"] is not None:
            self._actor.load_state_dict(with_new_random_state(setup, state["actor"], self._actor))

    def ready(self) -> RoleReady:
        """The report that it is ready: its process, and the draws that its table lost."""
        return replace(super().ready(), lost=self._lost)

    def turn(self, link: RoleLink) -> None:
        """Make one update or one step in every environment, whichever the table allows."""
        self.retry_unanswered(link)
        if self.held:
            link.pause(TURN_SECONDS)
            return
        try:
            self._waits = ""
            if self._client.can_sample(self._table, self._needs.batch_size):
                self.inner.learn()
            elif self._client.can_insert(self._table, self._needs.inserts_per_act):
                self.inner.publish_before_wait()
                self._actor.act()
            else:
                self._waits = str(self._client.why(self._table))
                link.pause(TURN_SECONDS)
        except (DeadlineExceededError, UnavailableError) as error:
            self._waits = str(error)
            link.pause(0.02)

    def handle(self, command: Command) -> Report | None:
        """Handles a command as a learner does. The acting policy, too, goes back to older parameters."""
        if isinstance(command, ShowFigures):
            self._server.publish(command.figures)
            return None
        if isinstance(command, FollowParameterShards):
            self._source.accept_any_version()
        return super().handle(command)

    def state(self, command: SaveState) -> SavedState:
        """The learner's state, and the path of its tables if they are asked for and the run keeps checkpoints."""
        state = super().state(command)
        assert self.setup.serving is not None
        if not command.tables or self.setup.serving.storage.checkpointer is None:
            return state
        return with_tables(self._client, state)

    def report(self) -> BundleReport:
        """The reports of its three parts."""
        figures, why = replay_figures(self._client, self._table), str(self._client.why(self._table))
        return BundleReport(
            acted(self._actor, self._source.version, {}, self._waits),
            self.inner.report(self.drain_seconds(), self._waits),
            ShardReport(figures, why, self._page),
        )

    def close(self) -> None:
        """Close environments, writer and table."""
        self._actor.close()
        self._server.stop()


class LocalWeights:
    """The weight source for the actor of a bundle: asks its learner at most every `PUBLISH_SECONDS`."""

    def __init__(self, learner: Any, first: Weights) -> None:
        self._learner = learner
        self._first: Weights | None = first
        self._next = 0.0
        self._any_version = False
        self.version = -1
        """Version of the weights that were returned last."""

    def accept_any_version(self) -> None:
        """Treat the next weights as newer than all before, whatever their version."""
        self._next, self._any_version = 0.0, True

    def latest(self, newer_than: int) -> Weights | None:
        """The newest weights; None if there are none newer, it is too early to ask, or they are unreachable."""
        weights, self._first = self._first, None
        if weights is None and time.monotonic() >= self._next:
            self._next = time.monotonic() + PUBLISH_SECONDS
            try:
                weights = self._learner.latest(-1 if self._any_version else newer_than)
            except (DeadlineExceededError, UnavailableError):
                return None
        if weights is not None:
            self._any_version, self.version = False, weights.version
        return weights
