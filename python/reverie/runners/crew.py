"""The roles of a run: started, listened to, and started again where they end. The same for every runner.

Roles live on a `Stage`, which knows how to make them and how to talk to them. What was asked of a role and not answered
is asked again of the one that takes its place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from reverie.agents.core import seed_of
from reverie.checkpointers import CheckpointerBase
from reverie.runners.events import RoleError
from reverie.runners.messages import (
    Acted,
    Command,
    Died,
    Endpoint,
    Failed,
    GoOn,
    Hold,
    Judge,
    Judged,
    Ready,
    Report,
    RoleName,
    Save,
    Serving,
    Setup,
    State,
    Stop,
)
from reverie.runners.parameters import Weighted
from reverie.runners.topology import Topology

LEARNER, EVALUATOR = RoleName("learner"), RoleName("evaluator")
SHORT_LIFE_SECONDS = 60.0
SHORT_LIVES = 5
"""A role that ends so often, never having lived for `SHORT_LIFE_SECONDS`, is not started again: the run ends."""

ANSWERS: dict[type[Report], type[Command]] = {State: Save, Judged: Judge}
"""What an answer settles. `Hold` is in force until `GoOn`, also for a learner that is started again meanwhile."""


class Stage(Protocol):
    """Where roles live."""

    @property
    def weights(self) -> Weighted:
        """How weights travel here."""

    def serving(self, name: RoleName, checkpointer: CheckpointerBase | None, before: Endpoint | None) -> Serving:
        """How a shard is to serve; `before` is where the one was whose place it takes."""

    def endpoint(self, name: RoleName, ready: Ready) -> Endpoint:
        """How to reach a shard that is ready."""

    def start(self, setup: Setup) -> None:
        """Make a role. Does not wait for it."""

    def tell(self, name: RoleName, command: Command) -> None:
        """Send a command; one for a role that is gone is lost."""

    def listen(self, timeout: float) -> Sequence[tuple[RoleName, Report]]:
        """What roles told, in order; waits at most `timeout` seconds for the first. The last of each is `Died`."""

    def kill(self, name: RoleName) -> None:
        """End a role at once; nothing more is heard of it."""

    def close(self) -> None:
        """End whatever still lives, and wait for it."""


@dataclass
class Member:
    """A role, as its supervisor sees it."""

    setup: Setup
    ready: Ready | None = None
    ended: bool = False
    """Told to stop, and gone."""
    born: float = 0.0
    short_lives: int = 0
    failure: Failed | None = None
    orders: dict[type[Command], Command] = field(default_factory=dict)
    """What it was asked and has not answered."""
    state: dict[str, Any] | None = None
    """What the next one goes on from."""
    state_of: str = "nothing"
    waiting: bool = False
    """Not begun yet: a shard that it talks to is not there."""
    moving: bool = False
    """A learner that was asked for its state, to be started again with it: a shard is elsewhere now."""


class Crew:
    """All roles of a run.

    `on_report` gets every report but those about life and death; `on_restart` the role, what ended it, what the new one
    goes on from, and how often it was started again.
    """

    def __init__(
        self,
        stage: Stage,
        agent: str,
        topology: Topology,
        checkpointers: Sequence[CheckpointerBase | None],
        *,
        state: dict[str, Any] | None,
        on_report: Callable[[RoleName, Report], None],
        on_restart: Callable[[RoleName, str, str, int], None],
    ) -> None:
        self.stage, self.topology = stage, topology
        self.members: dict[RoleName, Member] = {}
        self.shards = [RoleName("shard", i) for i in range(topology.num_shards)]
        self.actors = [RoleName("actor", i) for i in range(topology.num_actors)]
        self._agent, self._checkpointers, self._resumed = agent, checkpointers, state
        self._on_report, self._on_restart = on_report, on_restart
        self._endpoints: dict[RoleName, Endpoint] = {}

    def start_shards(self) -> None:
        """Start the shards; the others need their addresses."""
        for name in self.shards:
            self._begin(name, None)

    def start_others(self) -> None:
        """Start learner, evaluator and actors, once the shards are ready."""
        state = self._resumed
        self._begin(LEARNER, None if state is None else state["learner"])
        self._begin(EVALUATOR, None)
        for name in self.actors:
            self._begin(name, None if state is None else state["actors"][name.index])

    def ask(self, name: RoleName, command: Command) -> None:
        """Send a command, and again to a role that takes the place of this one before it has answered."""
        member = self.members[name]
        if isinstance(command, GoOn):
            member.orders.pop(Hold, None)
        else:
            member.orders[type(command)] = command
        if member.ready is not None:
            self.stage.tell(name, command)

    def all_ready(self) -> bool:
        """Whether every role that was started is there."""
        return all(member.ready is not None for member in self.members.values())

    def all_ended(self, names: Sequence[RoleName]) -> bool:
        """Whether roles that were told to stop are gone."""
        return all(self.members[name].ended for name in names)

    def listen(self, timeout: float) -> None:
        """Hear what the roles have to say; waits at most `timeout` seconds for the first word.

        Raises `RoleError` where one ended in a way that starting it again would not mend.
        """
        generations = {name: member.setup.generation for name, member in self.members.items()}
        for name, report in self.stage.listen(timeout):
            member = self.members[name]
            if member.setup.generation != generations[name]:
                continue  # the last words of one that was replaced while we listened
            match report:
                case Ready():
                    self._is_ready(name, member, report)
                case Failed():
                    member.failure = report
                case Died():
                    self._is_gone(name, member, report.reason)
                case _:
                    if type(report) in ANSWERS:
                        member.orders.pop(ANSWERS[type(report)], None)
                    self._remember(name, member, report)
                    self._on_report(name, report)

    def _begin(self, name: RoleName, state: dict[str, Any] | None) -> None:
        topology = self.topology
        setup = Setup(
            name=name,
            agent=self._agent,
            env=topology.env,
            config=topology.config,
            run=topology.run,
            num_shards=topology.num_shards,
            seed=self._seed(name, 0),
            state=state,
        )
        resumed = self._resumed is not None and name != EVALUATOR
        self.members[name] = Member(setup, state=state, state_of="its checkpoint" if resumed else "nothing")
        self._start(self.members[name])

    def _start(self, member: Member) -> None:
        name = member.setup.name
        if name.kind == "shard":
            before = self._endpoints.get(name)
            serving = self.stage.serving(name, self._checkpointers[name.index], before)
            member.setup = replace(member.setup, serving=serving)
        member.ready, member.failure, member.moving = None, None, False
        member.waiting = name.kind in ("actor", "learner") and not self._shards_ready()
        if member.waiting:
            return  # begun once the shards are there, which it would only wait for
        if name.kind in ("actor", "learner"):
            endpoints = tuple(self._endpoints[shard] for shard in self.shards)
            member.setup = replace(member.setup, endpoints=endpoints, weights=self.stage.weights)
        member.born = time.monotonic()
        self.stage.start(member.setup)

    def _shards_ready(self) -> bool:
        return all(self.members[shard].ready is not None for shard in self.shards)

    def _again(self, member: Member) -> None:
        """Start a role again, from what is known of it."""
        name, generation = member.setup.name, member.setup.generation + 1
        member.setup = replace(
            member.setup, generation=generation, seed=self._seed(name, generation), state=member.state
        )
        self._start(member)

    def _seed(self, name: RoleName, generation: int) -> int:
        """As in one process, for roles that were never started again and runs that were never resumed."""
        path = [{"shard": 0, "learner": 1, "actor": 2, "evaluator": 3}[name.kind]]
        if name.kind in ("shard", "actor"):
            path.append(name.index)
        if name.kind == "shard" and self._resumed is not None:
            # A table's random state is not in its checkpoint: draws must not be those of the start again.
            path.append(self._resumed["env_steps"])
        return seed_of(self.topology.seed, *path, *([generation] if generation else []))

    def _is_ready(self, name: RoleName, member: Member, ready: Ready) -> None:
        member.ready = ready
        if name.kind == "shard":
            before, now = self._endpoints.get(name), self.stage.endpoint(name, ready)
            self._endpoints[name] = now
            if before is not None and before.address != now.address:
                self._follow(name)
            if self._shards_ready():
                for other in [one for one in self.members.values() if one.waiting]:
                    self._start(other)
        for command in member.orders.values():
            self.stage.tell(name, command)

    def _follow(self, shard: RoleName) -> None:
        """A shard is elsewhere now: those who talk to it begin again, at its new address."""
        for name, member in self.members.items():
            if member.ended or member.waiting or name.kind in ("shard", "evaluator"):
                continue
            if name.kind == "actor":
                if name.index % len(self.shards) == shard.index:
                    self.stage.kill(name)
                    self._again(member)
            elif member.ready is not None:
                member.moving = True
                self.ask(name, Save(-1))

    def _remember(self, name: RoleName, member: Member, report: Report) -> None:
        match report:
            case State(_, str()) if name.kind == "shard":
                member.state_of = "its checkpoint"
            case Acted(env_steps, _, state):
                member.state, member.state_of = state, f"step {env_steps:,} of its own, with a new seed"
            case State(_, state) if name == LEARNER:
                member.state, member.state_of = state, f"update {state['version']:,}"
                if member.moving:
                    self.stage.kill(name)
                    self._again(member)

    def _is_gone(self, name: RoleName, member: Member, reason: str) -> None:
        failure = member.failure
        if Stop in member.orders:
            member.ended = True
            return
        if failure is not None:
            reason = f"{failure.error}: {failure.text}"
            if not failure.transient:
                raise RoleError(str(name), failure.error, failure.text, failure.traceback)
        short = time.monotonic() - member.born < SHORT_LIFE_SECONDS
        member.short_lives = member.short_lives + 1 if short else 0
        if member.short_lives >= SHORT_LIVES:
            text = f"it ended {SHORT_LIVES} times within {SHORT_LIFE_SECONDS:g} s of its start, the last time: {reason}"
            raise RoleError(str(name), "" if failure is None else failure.error, text, "")
        self._again(member)
        self._on_restart(name, reason, member.state_of, member.setup.generation)
