"""The parts of a distributed run: a replay shard, the learner, the evaluator, an actor.

Plain classes over the public client. A runner makes each where it should live and gives it a link to the supervisor;
`play` is the loop that all of them run. No role knows which runner it is in, and none knows an algorithm by name.
"""

from __future__ import annotations

import importlib
import os
import socket
import time
import traceback
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Protocol, cast

import torch

from reverie.agents.core import Agent, Stopwatch, Weights
from reverie.errors import (
    DamagedError,
    DeadlineExceededError,
    ReplayError,
    ServerRestartedWarning,
    StorageError,
    UnavailableError,
)
from reverie.runners.account import replay_figures
from reverie.runners.evaluator import Evaluator, confirmation_seeds, screening_seeds
from reverie.runners.messages import (
    Acted,
    Command,
    Failed,
    GoOn,
    Hold,
    Holding,
    Judge,
    Judged,
    Learnt,
    Ready,
    Report,
    Save,
    Served,
    Setup,
    State,
    Stop,
)
from reverie.runners.topology import making_networks_on
from reverie.server import Server
from reverie.sharding import ShardedClient, shard_table

REPORT_SECONDS = 0.1
PUBLISH_SECONDS = 0.02
"""The learner publishes no more often than this while it learns; always before it waits."""
TURN_SECONDS = 0.5
"""The longest that a role waits for a table before it looks for commands again."""
PATIENCE = 2.0
"""Seconds that a role's client tries to reach a shard before the role looks for commands again."""


class Link(Protocol):
    """A role's end of the line to its supervisor."""

    def tell(self, report: Report) -> None:
        """Send a report."""

    def commands(self) -> Iterator[Command]:
        """Those that have come in. Does not block."""

    def pause(self, seconds: float) -> None:
        """Sleep, but for no longer than until a command comes."""


class Role(ABC):
    """One part of a run: made of a `Setup`, stepped by `play`."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.agent = agent_of(setup.agent)
        self.watch = Stopwatch()
        torch.set_num_threads(setup.run.threads if setup.name.kind == "learner" else 1)

    @abstractmethod
    def turn(self, link: Link) -> None:
        """A little of its work. Where there is none it pauses, or waits for at most `TURN_SECONDS`."""

    @abstractmethod
    def report(self) -> Report | None:
        """What happened since the last report; None where there is never anything."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything."""

    def ready(self) -> Ready:
        """Said once, before the first turn."""
        return Ready(os.getpid(), socket.gethostname())

    def do(self, command: Command) -> Report | None:
        """Follow a command other than `Stop`; the answer."""
        raise TypeError(f"a role of kind {self.setup.name.kind} takes no {type(command).__name__}")

    def drain_seconds(self) -> dict[str, float]:
        """Seconds by activity since the last call."""
        drained, self.watch.seconds = self.watch.seconds, {}
        return drained


class Shard(Role):
    """A server with the agent's tables."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        serving = setup.serving
        assert serving is not None
        index = setup.name.index
        tables = list(self.agent.make_tables(setup.env, setup.config, seed=setup.seed))
        if setup.num_shards > 1:
            tables = [shard_table(table, setup.num_shards)[0][index] for table in tables]
        self._server = Server(
            tables,
            serving.port,
            serving.checkpointer,
            shard=index,
            host=serving.host,
            token=serving.token,
            tls=serving.tls,
        )
        self._client = self._server.client()
        self._tables = self.agent.needs(setup.config).tables

    def ready(self) -> Ready:
        """Where it listens, and what it started with."""
        items = int(replay_figures(self._client, *self._tables)["size"])
        return Ready(os.getpid(), socket.gethostname(), self._server.address, items)

    def turn(self, link: Link) -> None:
        """The server has threads of its own."""
        link.pause(REPORT_SECONDS)

    def report(self) -> Served:
        """The table's figures, and who waits for what."""
        why = "; ".join(str(self._client.why(table)) for table in self._tables)
        return Served(replay_figures(self._client, *self._tables), why)

    def do(self, command: Command) -> Report | None:
        """Write a checkpoint."""
        if not isinstance(command, Save):
            return super().do(command)
        try:
            return State(command.number, self._client.checkpoint())
        except StorageError as error:
            return State(command.number, None, problem=str(error))

    def close(self) -> None:
        """Stop the server: all who wait at its tables are told."""
        self._server.stop()


class Learner(Role):
    """Updates while the table can give a whole batch, and publishes the weights."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        assert setup.weights is not None
        self._client = learning_client(setup)
        self._needs = self.agent.needs(setup.config)
        names = self._needs.tables
        self._names = f"table{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"
        with making_networks_on(setup.run.device):
            self._learner = self.agent.make_learner(
                setup.env, setup.config, self._client, seed=setup.seed, watch=self.watch
            )
        if setup.state is not None:
            self._learner.load_state_dict(setup.state)
        self._publisher = setup.weights.publisher(setup.generation)
        self._published, self._next_publication = -1, 0.0
        self._held, self._waits, self._idle = False, "", 0.0
        self._publish()

    def turn(self, link: Link) -> None:
        """One update, if the table allows it.

        It asks before it draws: a draw of a batch that is cut off by a deadline has used up what the limiter allowed,
        and taken items out of a queue.
        """
        if self._held:
            link.pause(TURN_SECONDS)
            return
        try:
            if any(self._client.can_sample(table, self._needs.batch_size) for table in self._needs.tables):
                self._learner.learn()
                self._idle, self._waits = 0.0, ""
                if time.monotonic() >= self._next_publication:
                    self._publish()
                return
            self._waits = f"{self._names} cannot give a batch of {self._needs.batch_size} yet"
        except DeadlineExceededError as error:  # somebody else was quicker
            self._waits = str(error)
        except UnavailableError as error:  # a shard is being started again
            self._waits = str(error)
        self._publish()
        self._idle = min(0.02, max(0.0005, 2 * self._idle))
        with self.watch("wait for the table"):
            link.pause(self._idle)

    def _publish(self) -> Weights:
        weights = self._learner.latest(newer_than=-1)
        assert weights is not None
        if weights.version != self._published:
            with self.watch("publish"):
                self._publisher.publish(weights)
            self._published = weights.version
        self._next_publication = time.monotonic() + PUBLISH_SECONDS
        return weights

    def report(self) -> Learnt:
        """Its version and figures."""
        return Learnt(self._learner.version, self._learner.metrics(), self.drain_seconds(), self._waits)

    def do(self, command: Command) -> Report | None:
        """Hold still, go on, or give its state."""
        match command:
            case Hold():
                self._held = True
                return Holding(self._publish())
            case GoOn():
                self._held = False
                return None
            case Save(number):
                return State(number, self._learner.state_dict(), self._publish())
        return super().do(command)

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()


class Actor(Role):
    """Acts, and waits where the table's limiter holds it back."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        assert setup.weights is not None
        self._source = setup.weights.source()
        self._client = setup.endpoints[setup.name.index % len(setup.endpoints)].client(patience=PATIENCE)
        index = setup.name.index
        # A restart is told by the supervisor, once for all who write there.
        warnings.simplefilter("ignore", ServerRestartedWarning)
        with making_networks_on(setup.run.device):
            self._actor = self.agent.make_actor(
                setup.env, setup.config, self._client, self._source, index=index, seed=setup.seed, watch=self.watch
            )
        if setup.state is not None:
            state = setup.state
            if setup.generation > 0:  # the counts go on, the dice are new: else it would walk into the same end again
                state = {**state, "random": self._actor.state_dict()["random"]}
            self._actor.load_state_dict(state)
        self._settled, self._waits = True, ""

    def turn(self, link: Link) -> None:
        """One step of every environment, once the table has taken those before it."""
        if not self._source.ready:
            self._waits = "no weights were published yet"
            link.pause(0.01)
            return
        try:
            if not self._settled:
                self._actor.settle(timeout=TURN_SECONDS)
            self._waits = ""
        except (DeadlineExceededError, UnavailableError) as error:
            self._waits = str(error)
            return
        self._actor.act()
        self._settled = False

    def report(self) -> Acted:
        """Counts, returns and crashes."""
        state = self._actor.state_dict()
        return Acted(
            env_steps=state["env_steps"],
            version=self._source.given.version,
            state=state,
            returns=tuple(self._actor.drain_returns()),
            crashes=tuple(self._actor.drain_crashes()),
            seconds=self.drain_seconds(),
            waits=self._waits,
        )

    def close(self) -> None:
        """Close environments and writer; items that the table does not take at once are dropped."""
        with suppress(ReplayError):
            self._actor.close()


class GreedyEvaluator(Role):
    """Plays greedy episodes with the weights that it is given."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        run = setup.run
        self._screening = screening_seeds(run.screening_episodes)
        self._confirming = confirmation_seeds(run.confirmation_episodes)
        with making_networks_on(setup.run.device):
            self._policy = self.agent.make_policy(setup.env, setup.config)
        self._evaluator = Evaluator(setup.env.env_id, max(len(self._screening), len(self._confirming)))

    def turn(self, link: Link) -> None:
        """It works on command only."""
        link.pause(TURN_SECONDS)

    def report(self) -> None:
        """It has nothing to tell beside its answers."""

    def do(self, command: Command) -> Report | None:
        """Play on the seeds that screen, and where these reach the target on those that confirm."""
        if not isinstance(command, Judge):
            return super().do(command)
        began = time.perf_counter()
        self._policy.load(command.weights)
        screening = self._evaluator.evaluate(self._policy, self._screening)
        reached = screening.mean_return >= self.setup.run.target_return
        confirmation = None
        if reached or command.confirm:
            confirmation = self._evaluator.evaluate(self._policy, self._confirming)
        return Judged(command.number, screening, confirmation, time.perf_counter() - began)

    def close(self) -> None:
        """Close the environments."""
        self._evaluator.close()


ROLES: dict[str, type[Role]] = {"shard": Shard, "learner": Learner, "evaluator": GreedyEvaluator, "actor": Actor}


def play(setup: Setup, link: Link) -> None:
    """Make a role and let it work until it is told to stop, or fails: whatever happens, the supervisor is told."""
    role: Role | None = None
    try:
        role = ROLES[setup.name.kind](setup)
        link.tell(role.ready())
        _loop(role, link)
    except Exception as error:
        # Of the network: a shard that went away takes those who talk to it along, and they begin again.
        of_the_network = isinstance(error, ReplayError) and not isinstance(error, DamagedError)
        transient = of_the_network or setup.name.kind == "evaluator"
        link.tell(Failed(type(error).__name__, str(error), traceback.format_exc(), transient))
    finally:
        if role is not None:
            role.close()


def _loop(role: Role, link: Link) -> None:
    next_report = 0.0
    while True:
        for command in link.commands():
            if isinstance(command, Stop):
                _tell(role, link)
                return
            answer = role.do(command)
            if answer is not None:
                link.tell(answer)
        role.turn(link)
        if time.monotonic() >= next_report:
            _tell(role, link)
            next_report = time.monotonic() + REPORT_SECONDS


def _tell(role: Role, link: Link) -> None:
    report = role.report()
    if report is not None:
        link.tell(report)


def learning_client(setup: Setup) -> Any:
    """The client that a learner draws through. With several shards it holds the limits of them all."""
    clients = [endpoint.client(patience=PATIENCE) for endpoint in setup.endpoints]
    if len(clients) == 1:
        return clients[0]
    agent = agent_of(setup.agent)
    (table,) = agent.make_tables(setup.env, setup.config, seed=setup.seed)
    return ShardedClient(clients, rate_limiter=shard_table(table, len(clients))[1], seed=setup.seed % 2**32)


def agent_of(name: str) -> Agent:
    """The agent's module."""
    agent: Agent = cast("Agent", importlib.import_module(name))
    return agent
