"""Every role of a run in an actor of its own, on a Ray cluster: one machine or many.

Ray places the roles, carries messages and weights, and tells who died. Replay goes past it: shards are servers, reached
over shared memory on their own host and over TLS from others, with a token and certificates made for the run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    import ray
    from ray.exceptions import GetTimeoutError, RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as error:  # pragma: no cover - without the extra
    raise ImportError('ray is not installed: pip install "reverie[ray]"') from error

from reverie.agents.core import Weights
from reverie.checkpointers import CheckpointerBase
from reverie.runners.checked_run import CheckedRun
from reverie.runners.links.credentials import RunCredentials
from reverie.runners.links.messages import Command, Died, Endpoint, Ready, Report, RoleName, Serving, Setup
from reverie.runners.links.parameter_connections import ANSWER_SECONDS, Reply, answers_of, raise_unanswered
from reverie.runners.links.weights import Edition, NewestWeights, Publisher, Subscription
from reverie.runners.planning.nodes import Node, lacking_memory, of_figures, place
from reverie.runners.planning.topology import Topology, lacking, require_gpus, this_machine
from reverie.runners.ray.cluster_connection import connected
from reverie.runners.ray.role_actor import RoleActor
from reverie.runners.ray.stop_probe import UNANSWERED_SECONDS, StopProbe
from reverie.runners.reports.events import Result
from reverie.runners.supervision.launch import launch

ASK_SECONDS = 0.02
"""An actor asks for newer weights no more often than this."""
TELL_SECONDS = 10.0
DRAIN_SECONDS = 1.0


def run_on_cluster(run: CheckedRun, address: str | None) -> Result:
    """Train with each role in an actor of the cluster at `address`. See `launch.train`."""
    if run.checkpoint_folder is not None:
        run = replace(run, checkpoint_folder=run.checkpoint_folder.absolute())
    if run.resume is not None:
        run = replace(run, resume=run.resume.absolute())
    with connected(address), closing(Cluster(run.topology, check_memory=run.check_memory)) as stage:
        return launch(stage, run)


def nodes_to_fit(address: str | None) -> list[Node] | None:
    """This machine, where a run with this `address` starts Ray here, and so has no other node; else None."""
    starts_here = address is None and not os.environ.get("RAY_ADDRESS") and not ray.is_initialized()
    return [this_machine()] if starts_here else None


def nodes() -> list[Node]:
    """The nodes of the cluster and what each has free, as Ray's head counts it."""
    return of_figures(ray.nodes(), ray._private.state.available_resources_per_node())


@dataclass(frozen=True)
class StoredWeights:
    """Through Ray's object store: put once for each edition, and read there by all of a node."""

    server: Any

    def publisher(self, generation: int) -> Publisher:
        """The learner's end."""
        return _StorePublisher(self.server, generation)

    def source(self) -> Subscription:
        """The end of one who acts."""
        return Subscription(_Asking(self.server))


class _StorePublisher:
    def __init__(self, server: Any, generation: int) -> None:
        self._server, self._generation = server, generation
        self._last: Any = None

    def publish(self, weights: Weights) -> None:
        if self._last is not None:
            with suppress(RayError):  # it is being started again; this edition is newer anyhow
                ray.get(self._last, timeout=TELL_SECONDS)
        where = [ray.put(weights.flat)]
        self._last = self._server.publish.remote(Edition(self._generation, weights.version), where)


class _Asking:
    """One question on its way at most; its answer is looked for, never waited for."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._asked: Any = None
        self._next = 0.0

    def __call__(self, known: Edition | None) -> tuple[Edition, NDArray[np.float32]] | None:
        if self._asked is None:
            if time.monotonic() < self._next:
                return None
            self._next = time.monotonic() + ASK_SECONDS
            self._asked = self._server.newest.remote(known)
        if not ray.wait([self._asked], timeout=0)[0]:
            return None
        asked, self._asked = self._asked, None
        try:
            answer = ray.get(asked)
            if answer is None:
                return None
            edition, (where,) = answer
            return Edition(*edition), ray.get(where, timeout=TELL_SECONDS)
        except RayError:
            return None  # the server or the object went with its node; there will be a newer edition


class ActorConnection:
    """The way to parameter shards: calls of their Ray actors."""

    def __init__(self, hosts: Sequence[Any]) -> None:
        self._hosts = tuple(hosts)
        self._late: list[Any] = []
        """Calls that were given up and may still be done: a shard has one of this learner at most."""

    def open(self) -> ActorConnection:
        """A learner's end. Does not wait for the shards."""
        return ActorConnection(self._hosts)

    def ask(self, questions: Sequence[Any]) -> list[Any]:
        """See `ParameterConnection.ask`."""
        _replies(self._late)
        self._late = [host.answer.remote(question) for host, question in zip(self._hosts, questions, strict=True)]
        replies, self._late = _replies(self._late), []
        return answers_of(replies)


def _replies(calls: Sequence[Any]) -> list[Reply]:
    deadline = time.monotonic() + ANSWER_SECONDS
    replies = []
    for index, call in enumerate(calls):
        try:
            replies.append(ray.get(call, timeout=max(0.0, deadline - time.monotonic())))
        except GetTimeoutError:
            raise_unanswered(index)
        except RayError as error:
            raise_unanswered(index, error)
    return replies


@dataclass
class _Remote:
    host: Any
    life: Any
    """What `run` will give; held, so that Ray does not forget an error."""
    drain: Any
    asks: dict[str, float]
    memory: int
    """Bytes that it asks for."""
    drained: float = field(default_factory=time.monotonic)
    """When `drain` was called."""
    probe: StopProbe | None = None
    """Of a role that is there."""


class Cluster:
    """A stage of Ray actors."""

    def __init__(self, topology: Topology, *, check_memory: bool = True) -> None:
        self._credentials = RunCredentials.make()
        there, free = (which().get("GPU", 0.0) for which in (ray.cluster_resources, ray.available_resources))
        require_gpus(topology, there, free)
        if check_memory:
            place(topology, nodes())
        self._memory = {one.role: one.memory_bytes if check_memory else 0 for one in topology.places}
        self._gpus = {place.role: place.num_gpus for place in topology.places}
        self._wishes = {place.role: place.num_cpus for place in topology.places}
        wished = sum(place.count * place.num_cpus for place in topology.places)
        self._share = min(1.0, ray.cluster_resources().get("CPU", 0.0) / wished)
        """Where the cluster has fewer CPUs than the roles ask for, each asks for less."""
        self._living: dict[RoleName, _Remote] = {}
        # Beside the supervisor: what it knows would go with another node, and actors wait for it, the learner for them.
        beside = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        server = ray.remote(NewestWeights).options(num_cpus=0, max_restarts=-1, scheduling_strategy=beside)
        self._parameters = server.remote()

    @property
    def weights(self) -> StoredWeights:
        """How weights travel here."""
        return StoredWeights(self._parameters)

    def serving(self, name: RoleName, checkpointer: CheckpointerBase | None, before: Endpoint | None) -> Serving:
        """At its node's address, which it finds out there, with TLS and the run's token; at a new port each time."""
        tls = self._credentials.server(f"shard-{name.index}.reverie")
        return Serving(token=self._credentials.token, tls=tls, checkpointer=checkpointer)

    def endpoint(self, name: RoleName, ready: Ready) -> Endpoint:
        """Where the shard says that it listens."""
        assert ready.address is not None
        return Endpoint(ready.address, self._credentials.token, self._credentials.client(f"shard-{name.index}.reverie"))

    def parameter_addresses(self, shards: Sequence[Setup]) -> ActorConnection:
        """Calls of their actors."""
        return ActorConnection([self._living[shard.name].host for shard in shards])

    def start(self, setup: Setup) -> None:
        """Ask Ray for an actor."""
        kind, setup = setup.name.kind, self.placed(setup)
        num_cpus = self._cpus(setup.name)
        options = {
            "num_gpus": self._gpus[kind],
            "num_cpus": num_cpus,
            "memory": self._memory[kind],
            "max_concurrency": 4,
            "max_restarts": 0,
            "scheduling_strategy": "SPREAD" if kind in ("shard", "actor") else "DEFAULT",
        }
        host = ray.remote(RoleActor).options(**options).remote()
        self._living[setup.name] = _Remote(
            host,
            host.run.remote(setup),
            host.drain.remote(DRAIN_SECONDS),
            {"GPU": self._gpus[kind], "CPU": num_cpus},
            self._memory[kind],
        )

    def lacks(self, name: RoleName) -> str:
        """What the cluster does not have, or has not free, for an actor without a place. Asks Ray's head."""
        living = self._living.get(name)
        if living is None or _has_place(living.host):
            return ""
        lacks = lacking(living.asks, ray.cluster_resources(), ray.available_resources())
        return lacks or lacking_memory(living.memory, nodes())

    def stopped(self, name: RoleName) -> str:
        """A signal (SIGSTOP), or a debugger, on whatever node it is: of a role whose actor has not answered lately."""
        living = self._living.get(name)
        if living is None or living.probe is None:
            return ""
        if time.monotonic() - living.drained >= UNANSWERED_SECONDS:
            return living.probe.stopped()
        living.probe.forget()
        return ""

    def placed(self, setup: Setup) -> Setup:
        """As it is to be where it runs: a role that asks for no GPU, to which Ray shows none, computes on the CPU."""
        if self._gpus[setup.name.kind]:
            return setup
        return replace(setup, run=replace(setup.run, device="cpu", gpus_per_actor=0.0))

    def _cpus(self, name: RoleName) -> float:
        """A whole number above 1, else hundredths; never more than is free: a smaller cluster must still hold all."""
        # Ray tells late of what it gave, as when a node's roles begin anew together: others are counted as they asked.
        asked = sum(living.asks["CPU"] for other, living in self._living.items() if other != name)
        left = ray.cluster_resources().get("CPU", 0.0) - asked
        free = max(0.0, min(ray.available_resources().get("CPU", 0.0), left))
        cpus = min(self._wishes[name.kind] * self._share, free)
        return float(int(cpus)) if cpus >= 1 else int(cpus * 100) / 100

    def tell(self, name: RoleName, command: Command) -> None:
        """Send a command; one for an actor that is gone is lost."""
        living = self._living.get(name)
        if living is not None:
            with suppress(RayError):  # it is slow and will come to it, or will be told as died
                ray.get(living.host.order.remote(command), timeout=TELL_SECONDS)

    def listen(self, timeout: float) -> Sequence[tuple[RoleName, Report]]:
        """What roles told; the end of an actor comes after all that it had to tell."""
        names = {one.drain: name for name, one in self._living.items()}
        if not names:
            time.sleep(timeout)
            return []
        ray.wait(list(names), num_returns=1, timeout=timeout)
        done, _ = ray.wait(list(names), num_returns=len(names), timeout=0)
        told: list[tuple[RoleName, Report]] = []
        for drain in done:
            name = names[drain]
            living = self._living[name]
            try:
                reports, ended = ray.get(drain)
            except RayError as error:  # gone, or its last words went with its node: it must not live on unheard
                self.kill(name)
                told.append((name, Died(_reason(error))))
                continue
            told.extend((name, report) for report in reports)
            if ended and not reports:
                self.kill(name)
                told.append((name, Died("it ended")))
            else:
                living.drain, living.drained = living.host.drain.remote(DRAIN_SECONDS), time.monotonic()
                for ready in [report for report in reports if isinstance(report, Ready)]:
                    living.probe = StopProbe(ready)
        return told

    def kill(self, name: RoleName) -> None:
        """End an actor at once."""
        living = self._living.pop(name, None)
        if living is not None:
            ray.kill(living.host)

    def close(self) -> None:
        """Kill what still lives."""
        for name in list(self._living):
            self.kill(name)
        ray.kill(self._parameters)


def _has_place(host: Any) -> bool:
    """Whether Ray has given the actor a process: its number is known then, long before it has imported anything. (An
    address is known before: that of the node that is asked for a process.)

    What is free says nothing of it: the place that it was given is not free either.
    """
    return bool(ray._private.state.actors(host._actor_id.hex()).get("Pid"))


def _reason(error: RayError) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "its Ray actor died: " + (lines[-1] if lines else type(error).__name__)
