"""A role's Ray actor: the role's end of the messages between it and the supervisor."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import ray

from reverie.runners.links.messages import Command, Report, RoleReady, RoleSetup
from reverie.runners.links.parameter_connections import ShardResponse, reply_to
from reverie.runners.ray.killed_actors import wait_for
from reverie.runners.ray.report_queue import ReportQueue
from reverie.runners.roles.role_loop import run_role


class RoleActor:
    """A role's Ray actor: the role runs in one thread, other threads handle messages."""

    def __init__(self) -> None:
        self._commands: deque[Command] = deque()
        self._arrived = threading.Event()
        self._reports = ReportQueue()
        self._has_reports = threading.Event()
        self._ended = False
        self._answer: Callable[[Any], Any] | None = None

    def run(self, setup: RoleSetup, killed: Sequence[Any] = ()) -> None:
        """Run the role until it ends, after the ends of its earlier processes, to which `killed` refers."""
        wait_for(list(killed))
        if setup.serving is not None:
            address = ray.util.get_node_ip_address()
            setup = replace(setup, serving=replace(setup.serving, host=address))
        try:
            run_role(setup, self)
        finally:
            self._ended = True
            self._has_reports.set()

    def drain(self, seconds: float) -> tuple[list[Report], bool]:
        """Reports since the last call, and whether the role has ended. Waits at most `seconds` for the first."""
        if not self._ended:
            self._has_reports.wait(seconds)
        ended = self._ended
        self._has_reports.clear()
        return self._reports.drain(), ended

    def receive(self, command: Command) -> None:
        """Pass a command to the role."""
        self._commands.append(command)
        self._arrived.set()

    def answer(self, question: Any) -> ShardResponse:
        """Answer a learner's question to a parameter shard, which is reported as ready only once it serves."""
        assert self._answer is not None
        return reply_to(question, self._answer)

    def serve(self, answer: Callable[[Any], Any]) -> None:
        """The role's end: answer learners' questions with `answer`."""
        self._answer = answer

    def send(self, report: Report) -> None:
        """The role's end: send a report."""
        if isinstance(report, RoleReady):
            report = replace(report, host=ray.get_runtime_context().get_node_id())
        self._reports.put(report)
        self._has_reports.set()

    def commands(self) -> Iterator[Command]:
        """The role's end: commands received since the last call. Does not block."""
        self._arrived.clear()
        while self._commands:
            yield self._commands.popleft()

    def pause(self, seconds: float) -> None:
        """The role's end: sleep until a command comes, at most `seconds`."""
        self._arrived.wait(seconds)
