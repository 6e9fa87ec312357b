"""Every role of a run in an actor of its own, on a Ray cluster: one machine or many.

Ray places the roles, carries messages and weights, and reports actors that died. Replay bypasses Ray: shards are
servers, reached over shared memory on their own host and over TLS from others, with a token and certificates made for
the run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

try:
    import ray
    from ray.exceptions import GetTimeoutError, RayError
except ImportError as error:  # pragma: no cover - without the extra
    raise ImportError('ray is not installed: pip install "reverie[ray]"') from error

from reverie.parameters.ray import RayChannel
from reverie.runners.checked_run import CheckedRun
from reverie.runners.links.credentials import RunCredentials
from reverie.runners.links.messages import (
    Command,
    Report,
    RoleEnded,
    RoleName,
    RoleReady,
    RoleSetup,
    ShardEndpoint,
    ShardSettings,
)
from reverie.runners.links.parameter_connections import ANSWER_SECONDS, ShardResponse, answers_of, raise_unanswered
from reverie.runners.links.replay_storage import ReplayStorage
from reverie.runners.links.weights import WeightsChannel
from reverie.runners.planning.devices import missing_resource, require_gpus
from reverie.runners.planning.memory import this_machine
from reverie.runners.planning.nodes import ClusterNode, from_ray, missing_memory, place
from reverie.runners.planning.topology import Topology
from reverie.runners.ray.cluster_connection import connected
from reverie.runners.ray.killed_actors import ends_of, wait_for
from reverie.runners.ray.queued_requests import is_queued
from reverie.runners.ray.role_actor import RoleActor
from reverie.runners.ray.stop_probe import UNANSWERED_SECONDS, StopProbe
from reverie.runners.reports.events import Result
from reverie.runners.supervision.launch import launch

SEND_SECONDS = 10.0
DRAIN_SECONDS = 1.0


def run_on_cluster(run: CheckedRun, address: str | None) -> Result:
    """Train with each role in an actor of the cluster at `address`. See `launch.train`."""
    if run.checkpoint_folder is not None:
        run = replace(run, checkpoint_folder=run.checkpoint_folder.absolute())
    if run.resume is not None:
        run = replace(run, resume=run.resume.absolute())
    with connected(address), closing(Cluster(run.topology, check_memory=run.check_memory)) as backend:
        return launch(backend, run)


def nodes_to_fit(address: str | None) -> list[ClusterNode] | None:
    """This machine, if a run with this `address` starts Ray here and so has no other node; else None."""
    starts_here = address is None and not os.environ.get("RAY_ADDRESS") and not ray.is_initialized()
    return [this_machine()] if starts_here else None


def nodes() -> list[ClusterNode]:
    """The nodes of the cluster with their free resources, as Ray's head counts them."""
    return from_ray(ray.nodes(), ray._private.state.available_resources_per_node())


class ActorConnection:
    """A connection to the parameter shards: calls of their Ray actors."""

    def __init__(self, hosts: Sequence[Any]) -> None:
        self._hosts = tuple(hosts)
        self._late: list[Any] = []
        """Calls that timed out and may still run. `ask` waits for them first: each shard has one call per learner."""

    def open(self) -> ActorConnection:
        """A learner's end. Does not wait for the shards."""
        return ActorConnection(self._hosts)

    def ask(self, questions: Sequence[Any]) -> list[Any]:
        """See `ParameterConnection.ask`."""
        _replies(self._late)
        self._late = [host.answer.remote(question) for host, question in zip(self._hosts, questions, strict=True)]
        replies, self._late = _replies(self._late), []
        return answers_of(replies)


def _replies(calls: Sequence[Any]) -> list[ShardResponse]:
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
    result: Any
    """The result of `run`; held, so that Ray keeps its error."""
    drain: Any
    resources: dict[str, float]
    memory: int
    """Bytes that it requests."""
    drained: float = field(default_factory=time.monotonic)
    """The time of the call of `drain`."""
    probe: StopProbe | None = None
    """Set once the role is ready."""
    ended: bool = False
    """The role has ended; its process has not."""


class Cluster:
    """A backend of Ray actors."""

    def __init__(self, topology: Topology, *, check_memory: bool = True) -> None:
        self._credentials = RunCredentials.make()
        there, free = (which().get("GPU", 0.0) for which in (ray.cluster_resources, ray.available_resources))
        require_gpus(topology, there, free)
        if check_memory:
            place(topology, nodes())
        self._memory = {one.role: one.memory_bytes if check_memory else 0 for one in topology.places}
        self._gpus = {place.role: place.num_gpus for place in topology.places}
        self._wanted_cpus = {place.role: place.num_cpus for place in topology.places}
        wanted = sum(place.count * place.num_cpus for place in topology.places)
        self._share = min(1.0, ray.cluster_resources().get("CPU", 0.0) / wanted)
        """The share of its CPUs that each role requests: below 1 if the cluster has fewer than the roles want."""
        self._running: dict[RoleName, _Remote] = {}
        self._killed: list[tuple[RoleName, _Remote]] = []
        """Actors that were killed, and that no later actor of their roles waits for."""
        self._parameters = RayChannel()

    @property
    def weights(self) -> WeightsChannel:
        """The channel for weights: Ray's object store."""
        return WeightsChannel(self._parameters)

    def serving(self, name: RoleName, storage: ReplayStorage, before: ShardEndpoint | None) -> ShardSettings:
        """Serve with TLS and the run's token, at its node's address (filled in there), on a new port each time."""
        tls = self._credentials.server(f"shard-{name.index}.reverie")
        return ShardSettings(token=self._credentials.token, tls=tls, storage=storage)

    def endpoint(self, name: RoleName, ready: RoleReady) -> ShardEndpoint:
        """The address that the shard reported, with the run's token and certificate."""
        assert ready.address is not None
        return ShardEndpoint(
            ready.address, self._credentials.token, self._credentials.client(f"shard-{name.index}.reverie")
        )

    def parameter_addresses(self, shards: Sequence[RoleSetup]) -> ActorConnection:
        """The shards' Ray actors."""
        return ActorConnection([self._running[shard.name].host for shard in shards])

    def start(self, setup: RoleSetup) -> None:
        """Request an actor from Ray for the role."""
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
        self._running[setup.name] = _Remote(
            host,
            host.run.remote(setup, ends_of(self._killed_before(setup.name))),
            host.drain.remote(DRAIN_SECONDS),
            {"GPU": self._gpus[kind], "CPU": num_cpus},
            self._memory[kind],
        )

    def why_not_started(self, name: RoleName) -> str:
        """The resource that is missing or not free for an actor that Ray holds back. Asks Ray's head."""
        running = self._running.get(name)
        if running is None or _is_placed(running.host):
            return ""
        missing = missing_resource(running.resources, ray.cluster_resources(), ray.available_resources())
        missing = missing or missing_memory(running.memory, nodes())
        return missing if missing and is_queued(running.resources, running.memory) else ""

    def why_stopped(self, name: RoleName) -> str:
        """Whether a signal (SIGSTOP) or a debugger has stopped a role whose actor has not answered lately, as text."""
        running = self._running.get(name)
        if running is None or running.probe is None:
            return ""
        if time.monotonic() - running.drained >= UNANSWERED_SECONDS:
            return running.probe.why_stopped()
        running.probe.forget()
        return ""

    def placed(self, setup: RoleSetup) -> RoleSetup:
        """The setup for its place: Ray hides GPUs from a role that requests none, and so it computes on the CPU."""
        if self._gpus[setup.name.kind]:
            return setup
        return replace(setup, run=replace(setup.run, device="cpu", gpus_per_actor=0.0))

    def _cpus(self, name: RoleName) -> float:
        """CPUs to request: whole above 1, else hundredths. Never more than are free, so that all roles fit."""
        # Ray's free CPUs lag behind, e.g. when a node's roles restart together: subtract what the others requested.
        asked = sum(running.resources["CPU"] for other, running in self._running.items() if other != name)
        left = ray.cluster_resources().get("CPU", 0.0) - asked
        free = max(0.0, min(ray.available_resources().get("CPU", 0.0), left))
        cpus = min(self._wanted_cpus[name.kind] * self._share, free)
        return float(int(cpus)) if cpus >= 1 else int(cpus * 100) / 100

    def send(self, name: RoleName, command: Command) -> None:
        """Send a command; a command for an actor that has ended is lost."""
        running = self._running.get(name)
        if running is not None:
            with suppress(RayError):  # it is slow and will get to it, or will be reported as `RoleEnded`
                ray.get(running.host.receive.remote(command), timeout=SEND_SECONDS)

    def listen(self, timeout: float) -> Sequence[tuple[RoleName, Report]]:
        """Reports of the roles; an actor's `RoleEnded` comes after all its other reports."""
        names = {one.drain: name for name, one in self._running.items()}
        if not names:
            time.sleep(timeout)
            return []
        ray.wait(list(names), num_returns=1, timeout=timeout)
        done, _ = ray.wait(list(names), num_returns=len(names), timeout=0)
        received: list[tuple[RoleName, Report]] = []
        for drain in done:
            name = names[drain]
            running = self._running[name]
            try:
                reports, ended = ray.get(drain)
            except RayError as error:  # it ended, or its reports were lost with its node: end it
                self.kill(name)
                received.append((name, RoleEnded(_reason(error))))
                continue
            received.extend((name, report) for report in reports)
            if ended and not reports:
                running.ended = True
                self.kill(name)
                received.append((name, RoleEnded("it ended")))
            else:
                running.drain, running.drained = running.host.drain.remote(DRAIN_SECONDS), time.monotonic()
                for ready in [report for report in reports if isinstance(report, RoleReady)]:
                    running.probe = StopProbe(ready)
        return received

    def kill(self, name: RoleName) -> None:
        """End an actor at once."""
        running = self._running.pop(name, None)
        if running is not None:
            ray.kill(running.host)
            self._killed.append((name, running))

    def _killed_before(self, name: RoleName) -> list[Any]:
        """Removes and returns the killed actors of a role, whose processes its next one waits for."""
        killed = [one.host for role, one in self._killed if role == name]
        self._killed = [one for one in self._killed if one[0] != name]
        return killed

    def close(self) -> None:
        """Kill the actors that still run, and wait for them: the next run may take the same folders."""
        for name in list(self._running):
            self.kill(name)
        with suppress(Exception):  # of several classes, where the cluster is gone
            wait_for(ends_of([one.host for _, one in self._killed if not one.ended]))
        self._parameters.close()


def _is_placed(host: Any) -> bool:
    """Whether Ray has given the actor a process, whose pid is known long before its imports are done.

    Its address does not show this: it is known earlier, when a node is asked for a process.
    """
    return bool(ray._private.state.actors(host._actor_id.hex()).get("Pid"))


def _reason(error: RayError) -> str:
    text, _, _ = str(error).partition(" Some common causes include:")  # as long as a page; Ray prints them itself
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "its Ray actor died: " + (lines[-1] if lines else type(error).__name__)
