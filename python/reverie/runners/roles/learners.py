"""The role of a learner, and what it shares with a bundle: an agent's learner that publishes its weights."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from reverie.agents.agent import Agent, SharedParameters
from reverie.agents.core import CompilingLearner, PrefetchingLearner, Stopwatch, Weights
from reverie.client import Client
from reverie.errors import DeadlineExceededError, ReplayError, UnauthenticatedError, UnavailableError
from reverie.runners.links.messages import (
    Command,
    FollowParameterShards,
    LearnerReport,
    PauseUpdates,
    Report,
    ResumeUpdates,
    RoleSetup,
    SavedState,
    SaveState,
    UpdatesPaused,
)
from reverie.runners.links.replay_storage import without
from reverie.runners.planning.devices import networks_on
from reverie.runners.roles.role import (
    GRACE,
    PATIENCE,
    TURN_SECONDS,
    Role,
    RoleLink,
)
from reverie.sharding import shard_figures, shard_table

PUBLISH_SECONDS = 0.02
"""The shortest time between two publications of weights while a learner learns, unless the agent asks for every
version. A learner with parameter shards pulls newer parameters no more often than this while it waits."""
PUBLISH_SHARE = 0.05
"""The largest share of its time that such a learner publishes: a large network on a GPU takes milliseconds to copy."""
LONGEST_PAUSE = 1.0
"""The longest time without a publication for that reason."""
BATCH_SECONDS = 0.001
"""Seconds between two polls for a batch that is being made for a GPU."""
COMPILER_SECONDS = 0.1
"""Seconds between two checks of a compiler that an update waits for."""
PROBLEM_SECONDS = 60.0
"""Seconds between two reports that there is no room for the weights."""
SHARDS_SECONDS = 1.0
"""Seconds between two reports of the shards."""


class PublishingLearner:
    """A learner of the agent and the publication of its weights: the first learner of a run publishes them."""

    def __init__(self, setup: RoleSetup, client: Any, watch: Stopwatch) -> None:
        assert setup.weights is not None
        self._setup, self._client, self._watch = setup, client, watch
        self._agent = setup.agent
        self._needs = self._agent.needs(setup.config)
        self._remote = setup.parameters is not None
        options: dict[str, Any] = {}
        if setup.parameters is not None:
            options = {"server": self._server(setup.parameters.open()), "index": setup.name.index}
        with networks_on(setup.run.device):
            self.learner: Any = self._agent.make_learner(
                setup.env, setup.config, client, seed=setup.seed, watch=watch, **options
            )
        self.draws_ahead = bool(setup.run.prefetch)
        """Whether batches are drawn ahead."""
        if setup.run.prefetch:
            cast("PrefetchingLearner", self.learner).draw_ahead(setup.run.prefetch)
        self.compiling: CompilingLearner | None = None
        if setup.compiling is not None:
            self.compiling = cast("CompilingLearner", self.learner)
            self.compiling.compile_updates(setup.compiling)
        self.epoch = setup.epoch
        """The epoch of the parameter shards that it is connected to."""
        self._publisher = setup.weights.publisher(setup.generation + setup.epoch) if setup.name.index == 0 else None
        self._published, self._next = -1, 0.0
        self.problem = ""
        """Why the newest weights are not published, if there is no room for them."""
        self._next_problem = 0.0

    def _server(self, connection: Any) -> Any:
        return shared_parameters(self._agent).connect(connection, self._needs.num_parameter_shards)

    def follow(self, command: FollowParameterShards) -> None:
        """Connect to restarted parameter shards; weights published from now on count as newer than all before."""
        self.learner.follow(self._server(command.parameters.open()))
        self.epoch = command.epoch
        if self._publisher is not None:
            assert self._setup.weights is not None
            self._publisher = self._setup.weights.publisher(self._setup.generation + command.epoch)
        self._published = -1

    def stop_drawing(self) -> None:
        """Draw nothing ahead until it learns again."""
        if self.draws_ahead:
            self.learner.stop_drawing()

    def learn(self) -> None:
        """Make one update, and publish the weights if that is due."""
        self.learner.learn()
        if self._needs.publish_every_update or time.monotonic() >= self._next:
            self._publish_own()

    def publish_before_wait(self) -> None:
        """Publish weights that are not published yet, if that is due. Call it before each part of a wait."""
        if time.monotonic() >= self._next and (self._remote or self.learner.version != self._published):
            self._publish_own()

    def _publish_own(self) -> None:
        if self._publisher is not None:
            self.publish()

    def publish(self) -> Weights:
        """The newest weights, which are published first if they are new and this learner publishes.

        If there is no room for them, they are published later: training continues, and reports that.
        """
        began = time.monotonic()
        weights: Weights = self.learner.latest(newer_than=-1)
        if self._publisher is not None and weights.version != self._published:
            with self._watch("publish"):
                if self._needs.on_policy:
                    self._discard_older_unrolls()
                self.problem = self._publisher.publish(weights)
        if not self.problem:
            self._published = weights.version
        ended = time.monotonic()
        self._next = ended + max(PUBLISH_SECONDS, min((ended - began) / PUBLISH_SHARE, LONGEST_PAUSE))
        return weights

    def _discard_older_unrolls(self) -> None:
        """Empty the queue, which has only unrolls of other weights than those that are published next.

        They are of an actor that made two with the same weights, or for a learner before this one. Left there, each
        would keep one of the newest out until the learner draws, and so in every batch after it.
        """
        with suppress(DeadlineExceededError, UnavailableError, UnauthenticatedError):
            while self._client.can_sample(self._needs.name, 1):
                self._client.sample_batch(self._needs.name, 1, timeout=0)

    def report(self, seconds: dict[str, float], waits: str) -> LearnerReport:
        """A report of its version and metrics."""
        notes = () if self.compiling is None else tuple(self.compiling.drain_compile_notes())
        if self.problem:
            waits = "; ".join(filter(None, [waits, f"its weights are not published: {self.problem}"]))
        return LearnerReport(
            self.learner.version, self.learner.metrics(), seconds, waits, notes, unpublished=self._due_problem()
        )

    def _due_problem(self) -> str:
        """The problem, if it is time to report it."""
        if not self.problem or time.monotonic() < self._next_problem:
            return ""
        self._next_problem = time.monotonic() + PROBLEM_SECONDS
        return self.problem

    def close(self) -> None:
        """Draw nothing ahead any more, and end the compilers that still run."""
        self.stop_drawing()
        if self.compiling is not None:
            self.compiling.stop_compiling()


class LearningRole(Role):
    """Base of a learner and a bundle: pauses, resumes, and reconnects to restarted parameter shards."""

    inner: PublishingLearner

    def __init__(self, setup: RoleSetup) -> None:
        super().__init__(setup)
        self.held = setup.held
        self._unanswered: list[Command] = []
        """Commands that it could not answer yet, since a parameter shard was unreachable."""

    def retry_unanswered(self, link: RoleLink) -> None:
        """Try again to answer open commands. Call it at the start of a turn."""
        commands, self._unanswered = self._unanswered, []
        for command in commands:
            answer = self.handle(command)
            if answer is not None:
                link.send(answer)

    def handle(self, command: Command) -> Report | None:
        """Pause, resume, reconnect to parameter shards, or return its state."""
        match command:
            case PauseUpdates(number):
                self.held = True
                self.inner.stop_drawing()
                return UpdatesPaused(number)
            case ResumeUpdates():
                self.held = False
                return None
            case FollowParameterShards():
                self.inner.follow(command)
                return None
            case SaveState():
                return self._answer(command, lambda: self.state(command))
        return super().handle(command)

    def state(self, command: SaveState) -> SavedState:
        """The answer to `SaveState`."""
        return SavedState(command.number, self.inner.learner.state_dict(), self.inner.publish(), epoch=self.inner.epoch)

    def _answer(self, command: Command, answer: Callable[[], Report]) -> Report | None:
        try:
            return answer()
        except (DeadlineExceededError, UnavailableError):
            self._unanswered.append(command)
            return None


class LearnerRole(LearningRole):
    """Makes an update whenever the table can give a whole batch, and publishes the weights."""

    def __init__(self, setup: RoleSetup) -> None:
        super().__init__(setup)
        self._client = learning_client(setup)
        needs = self.agent.needs(setup.config)
        self._tables, self._batch_size = needs.tables, needs.batch_size
        self._names = f"table{'s' if len(self._tables) > 1 else ''} {', '.join(map(repr, self._tables))}"
        self.inner = PublishingLearner(setup, self._client, self.watch)
        if setup.state is not None:
            self.inner.learner.load_state_dict(setup.state)
        self._waits, self._idle, self._awaits_batch = "", 0.0, False
        self._next_shards = 0.0
        self.inner.publish()

    def turn(self, link: RoleLink) -> None:
        """Make one update, if a batch was drawn ahead or the table allows a draw.

        If nothing is drawn ahead it asks the table before it draws: a draw of a batch that a deadline cuts off has used
        up the limiter's allowance, and has taken items out of a queue.
        """
        self.retry_unanswered(link)
        self._awaits_batch = False
        if self.held:
            link.pause(TURN_SECONDS)
            return
        began, waits_for = time.perf_counter(), "wait for the table"
        if self.inner.compiling is not None and not self.inner.compiling.ready():
            self._waits = "its updates are being compiled"
            link.pause(COMPILER_SECONDS)
            self.watch.add("wait for the compiler", time.perf_counter() - began)
            return
        try:
            if self._can_learn():
                if self.inner.draws_ahead:
                    self.watch.add("sample", time.perf_counter() - began)
                self.inner.learn()
                self._idle, self._waits = 0.0, ""
                return
            began = time.perf_counter()  # what it did before has its own account
            self._waits = f"{self._names} cannot give a batch of {self._batch_size} yet"
            self._awaits_batch = True
            self.inner.publish_before_wait()
            if self.inner.draws_ahead and self._table_can_give():
                self._waits, waits_for = f"a batch of {self._names} is being made", "wait for a batch"
        except DeadlineExceededError as error:  # another learner was faster
            self._waits = str(error)
        except (UnavailableError, UnauthenticatedError) as error:  # a shard restarts, or another run has its port
            self._waits = str(error)
        # A look at batches that a thread sends to a GPU is free; others ask their server.
        on_gpu = self.setup.run.device != "cpu"
        longest = BATCH_SECONDS if on_gpu and waits_for == "wait for a batch" else 0.02
        self._idle = min(longest, max(0.0005, 2 * self._idle))
        link.pause(self._idle)
        self.watch.add(waits_for, time.perf_counter() - began)

    def _can_learn(self) -> bool:
        return bool(self.inner.learner.fetch()) if self.inner.draws_ahead else self._table_can_give()

    def _table_can_give(self) -> bool:
        return any(self._client.can_sample(table, self._batch_size) for table in self._tables)

    def report(self) -> LearnerReport:
        """A report of its version and metrics, and about once a second the shards, if the run's page shows them."""
        report = self.inner.report(self.drain_seconds(), self._waits)
        # With weights that are not published it awaits room for them, and actors are not to act again with older ones.
        report = replace(report, awaits_batch=self._awaits_batch and not self.inner.problem)
        if not self.setup.reports_shards or time.monotonic() < self._next_shards:
            return report
        self._next_shards = time.monotonic() + SHARDS_SECONDS
        with suppress(ReplayError):  # the page keeps the figures of before
            report = replace(report, shards=shard_figures(self._client.info(timeout=TURN_SECONDS)))
        return report

    def close(self) -> None:
        """Close the connection."""
        self.inner.close()
        self._client.close()


def shared_parameters(agent: Agent) -> SharedParameters:
    """The agent's functions that make and reach its parameter shards."""
    assert agent.parameters is not None
    return agent.parameters


def learning_client(setup: RoleSetup) -> Any:
    """The client that a learner draws through.

    With several shards the learners' clients together keep the limiter of the whole table; the first learner's client
    hands out the inserts that it allows.
    """
    clients = [endpoint.client(patience=PATIENCE, grace=GRACE) for endpoint in setup.endpoints]
    if len(clients) == 1:
        return clients[0]
    agent = setup.agent
    (table,) = agent.make_tables(setup.env, setup.config, seed=setup.seed)
    limiter = without(shard_table(table, len(clients))[1], setup.lost.get(table.name, 0))
    among = (setup.name.index, agent.needs(setup.config).num_learners)
    return Client(clients, rate_limiter=limiter, among=among, seed=setup.seed % 2**32)
