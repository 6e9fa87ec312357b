"""Roles of a distributed run: a replay shard, an actor, the evaluator. Roles that learn are in `learners`.

Plain classes over the public client. A runner makes each where it should run and gives it a link to the supervisor;
`run_role` is the loop of all of them. No role depends on the runner, or on an algorithm by name.
"""

from __future__ import annotations

import os
import socket
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol, cast

import torch

from reverie.agents.core import OnPolicyActor, Stopwatch
from reverie.errors import DeadlineExceededError, ReplayError, ServerRestartedWarning, StorageError, UnavailableError
from reverie.runners.links.messages import (
    ActAgain,
    ActorReport,
    Command,
    Evaluate,
    EvaluationDone,
    Report,
    RoleReady,
    RoleSetup,
    SavedState,
    SaveState,
    ShardReport,
    ShardSettings,
    ShowFigures,
)
from reverie.runners.links.replay_storage import allow_again, samples_of
from reverie.runners.planning.devices import networks_on
from reverie.runners.reports.evaluation import Evaluator, confirmation_seeds, screening_seeds
from reverie.runners.reports.run_progress import replay_figures
from reverie.server import Server
from reverie.sharding import shard_table

REPORT_SECONDS = 0.1
TURN_SECONDS = 0.5
"""The longest that a role waits for a table before it checks for commands again."""
WEIGHTS_SECONDS = 0.01
"""The longest time between two looks for weights that an actor awaits."""
PATIENCE = 2.0
"""Seconds that a role's client tries to reach a shard before the role checks for commands again."""
GRACE = 30.0
"""Seconds beyond a call's timeout that a shard has for its response, for shards that stall on a busy machine. Without
them a draw whose batch is no longer awaited would be counted by the limiter, and taken from a queue, for nothing."""


class RoleLink(Protocol):
    """A role's end of its connection to the supervisor."""

    def send(self, report: Report) -> None:
        """Send a report."""

    def commands(self) -> Iterator[Command]:
        """Commands received since the last call. Does not block."""

    def pause(self, seconds: float) -> None:
        """Sleep until a command comes, at most `seconds`."""

    def serve(self, answer: Callable[[Any], Any]) -> None:
        """Answer learners' questions: `answer` is called with each, in several threads at once."""


class Role(ABC):
    """One part of a run: made from a `RoleSetup`, stepped by `run_role`."""

    def __init__(self, setup: RoleSetup) -> None:
        self.setup = setup
        self.agent = setup.agent
        self.watch = Stopwatch()
        torch.set_num_threads(setup.run.threads if setup.name.kind in ("learner", "bundle") else 1)

    def open(self, link: RoleLink) -> None:  # noqa: B027 - most have none
        """Start to answer other roles, if it does at all. Called once, before it is reported as ready."""

    @abstractmethod
    def turn(self, link: RoleLink) -> None:
        """Do a little work. If there is none, pause, or wait at most `TURN_SECONDS`."""

    @abstractmethod
    def report(self) -> Report | None:
        """The report since the last one; None for a role that sends none."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources."""

    def ready(self) -> RoleReady:
        """The first report, sent once before the first turn."""
        return RoleReady(os.getpid(), socket.gethostname())

    def handle(self, command: Command) -> Report | None:
        """Carry out a command other than `Stop`; returns the answer, if any."""
        raise TypeError(f"a role of kind {self.setup.name.kind} does not handle {type(command).__name__}")

    def drain_seconds(self) -> dict[str, float]:
        """Seconds by activity since the last call."""
        drained, self.watch.seconds = self.watch.seconds, {}
        return drained


class ShardRole(Role):
    """A server with the agent's tables."""

    def __init__(self, setup: RoleSetup) -> None:
        super().__init__(setup)
        assert setup.serving is not None
        self._server = self._started(setup, setup.serving)
        self._client = self._server.client()
        self._lost = setup.serving.storage.lost_draws(self._client)
        if setup.num_shards == 1:  # else the learner's client has the limits
            allow_again(self._server.tables, self._lost)
        self._tables = self.agent.needs(setup.config).tables
        self._page = open_page(self._server, setup)

    def _started(self, setup: RoleSetup, serving: ShardSettings) -> Server:
        """Start at the port that clients know; if it is taken, at another, which the supervisor passes on."""
        if serving.port is not None:
            with suppress(ValueError):  # a ValueError with another cause is raised again below
                return self._server_at(serving.port, setup, serving)
        return self._server_at(None, setup, serving)

    def _server_at(self, port: int | None, setup: RoleSetup, serving: ShardSettings) -> Server:
        index = setup.name.index
        tables = setup.run.stored(self.agent.make_tables(setup.env, setup.config, seed=setup.seed))
        if setup.num_shards > 1:
            tables = [shard_table(table, setup.num_shards)[0][index] for table in tables]
        return Server(
            tables,
            port,
            shard=index,
            host=serving.host,
            token=serving.token,
            tls=serving.tls,
            **serving.storage.server_options(),
            **setup.run.server_disk(setup.run_name, index, setup.num_shards),
        )

    def ready(self) -> RoleReady:
        """The report that it is ready: its address, and the number of items that it started with."""
        items = int(replay_figures(self._client, *self._tables)["size"])
        return RoleReady(os.getpid(), socket.gethostname(), self._server.address, items, self._lost)

    def turn(self, link: RoleLink) -> None:
        """Pause: the server has threads of its own."""
        link.pause(REPORT_SECONDS)

    def report(self) -> ShardReport:
        """The tables' figures, and why requests wait."""
        why = "; ".join(str(self._client.why(table)) for table in self._tables)
        return ShardReport(replay_figures(self._client, *self._tables), why, self._page)

    def handle(self, command: Command) -> Report | None:
        """Write a checkpoint, or show figures of the run."""
        match command:
            case ShowFigures(figures):
                self._server.publish(figures)
                return None
            case SaveState(number):
                return with_tables(self._client, SavedState(number))
        return super().handle(command)

    def close(self) -> None:
        """Stop the server; all requests that wait at its tables end with an error."""
        self._server.stop()


def with_tables(client: Any, state: SavedState) -> SavedState:
    """The answer to `SaveState` with the path of a server's tables, or with the reason why they were not written."""
    try:
        path = client.checkpoint()
        return replace(state, tables=path, samples=samples_of(client))
    except StorageError as error:
        return replace(state, problem=str(error))


def open_page(server: Server, setup: RoleSetup) -> str:
    """Open the HTTP port that the role's server is to have; returns the page's address, empty if it is to have none.

    A role that was restarted takes a free port if its old one is taken.
    """
    assert setup.serving is not None
    page = setup.serving.page
    if page is None:
        return ""
    try:
        server._show(page)
    except ValueError:
        if setup.generation == 0:
            raise
        server._show(page.at_port(0))
    return page.url(server.http_address, setup.serving.host)


class ActorRole(Role):
    """Acts, and waits while the table's limiter blocks its inserts, or until newer weights are published."""

    def __init__(self, setup: RoleSetup) -> None:
        super().__init__(setup)
        assert setup.weights is not None
        self._source = setup.weights.source()
        self._client = setup.endpoints[setup.name.index % len(setup.endpoints)].client(patience=PATIENCE, grace=GRACE)
        index = setup.name.index
        # The supervisor reports a restart, once for all actors that write there.
        warnings.simplefilter("ignore", ServerRestartedWarning)
        with networks_on(setup.run.policy_device):
            self._actor = self.agent.make_actor(
                setup.env, setup.config, self._client, self._source, index=index, seed=setup.seed, watch=self.watch
            )
        if setup.state is not None:
            self._actor.load_state_dict(with_new_random_state(setup, setup.state, self._actor))
        needs = self.agent.needs(setup.config)
        self._on_policy = cast("OnPolicyActor", self._actor) if needs.on_policy else None
        self._settled, self._waits = True, ""
        self._awaits_weights, self._idle = False, 0.0

    def turn(self, link: RoleLink) -> None:
        """Take one step in every environment, once the table has accepted the steps before.

        An `OnPolicyActor` takes none while it awaits weights.
        """
        if not self._source.ready:
            self._waits = "no weights were published yet"
            link.pause(WEIGHTS_SECONDS)
            return
        # First: newer weights discard what the table has not accepted.
        self._awaits_weights = self._on_policy is not None and self._on_policy.awaits_weights()
        try:
            if not self._settled:
                self._actor.settle(timeout=TURN_SECONDS)
            self._settled, self._waits = True, ""
        except (DeadlineExceededError, UnavailableError) as error:
            self._waits = str(error)
            return
        if self._awaits_weights:
            self._pause_for_weights(link)
            return
        self._actor.act()
        self._settled, self._idle = False, 0.0

    def _pause_for_weights(self, link: RoleLink) -> None:
        self._waits = f"no weights newer than version {self._source.given.number}, of its last unroll, were published"
        self._idle = min(WEIGHTS_SECONDS, max(0.0005, 2 * self._idle))
        with self.watch("wait for weights"):
            link.pause(self._idle)

    def handle(self, command: Command) -> Report | None:
        """Act again with the same weights."""
        if isinstance(command, ActAgain):
            if self._on_policy is not None:
                self._on_policy.act_again()
            return None
        return super().handle(command)

    def report(self) -> ActorReport:
        """A report of its counts, returns and crashes."""
        report = acted(self._actor, self._source.given.number, self.drain_seconds(), self._waits)
        return replace(report, awaits_weights=self._awaits_weights)

    def close(self) -> None:
        """Close environments and writer; items that the table does not accept at once are discarded."""
        with suppress(ReplayError):
            self._actor.close()


class EvaluatorRole(Role):
    """Plays greedy episodes with the weights that it is given."""

    def __init__(self, setup: RoleSetup) -> None:
        super().__init__(setup)
        run = setup.run
        self._screening = screening_seeds(run.screening_episodes)
        self._confirming = confirmation_seeds(run.confirmation_episodes)
        with networks_on(run.policy_device):
            self._policy = self.agent.make_policy(setup.env, setup.config)
        self._evaluator = Evaluator(setup.env, max(len(self._screening), len(self._confirming)))

    def turn(self, link: RoleLink) -> None:
        """Pause: it works on command only."""
        link.pause(TURN_SECONDS)

    def report(self) -> None:
        """None: it sends only its answers."""

    def handle(self, command: Command) -> Report | None:
        """Play on the screening seeds, and if they reach the target, on the confirmation seeds."""
        if not isinstance(command, Evaluate):
            return super().handle(command)
        began = time.perf_counter()
        self._policy.load(command.weights)
        screening = self._evaluator.evaluate(self._policy, self._screening)
        reached = self.setup.run.reached_by(screening.mean_return)
        confirmation = None
        if reached or command.confirm:
            confirmation = self._evaluator.evaluate(self._policy, self._confirming)
        return EvaluationDone(command.number, screening, confirmation, time.perf_counter() - began)

    def close(self) -> None:
        """Close the environments."""
        self._evaluator.close()


def with_new_random_state(setup: RoleSetup, state: dict[str, Any], actor: Any) -> dict[str, Any]:
    """The state that an actor resumes from. After a restart its random state is a new one; its counts continue.

    With the old random state it could hit the same failure again. A reader of a data set draws nothing and has none.
    """
    fresh = actor.state_dict()
    return {**state, "random": fresh["random"]} if setup.generation > 0 and "random" in fresh else state


def acted(actor: Any, version: int, seconds: dict[str, float], waits: str) -> ActorReport:
    """The report of an actor that acts with weights of `version`."""
    state = actor.state_dict()
    return ActorReport(
        env_steps=state["env_steps"],
        version=version,
        state=state,
        returns=tuple(actor.drain_returns()),
        crashes=tuple(actor.drain_crashes()),
        seconds=seconds,
        waits=waits,
    )
