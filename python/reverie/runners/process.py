"""Every role of a run in a process of its own, on this machine.

Replay goes over shared memory, weights through one file in memory, and gradients through Unix sockets. The supervisor
and each role exchange messages through one pipe, on which the supervisor never blocks. A role whose pipe is closed has
lost its supervisor and ends itself, so that no process outlives a run.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import select
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from reverie.parameters import FileChannel
from reverie.runners.checked_run import CheckedRun
from reverie.runners.links.message_sockets import RoleSocket, SupervisorSocket, socket_pair
from reverie.runners.links.messages import (
    Command,
    Kind,
    Report,
    RoleEnded,
    RoleFailed,
    RoleName,
    RoleReady,
    RoleSetup,
    ShardEndpoint,
    ShardSettings,
)
from reverie.runners.links.parameter_connections import SocketAddresses, SocketServer
from reverie.runners.links.replay_storage import ReplayStorage
from reverie.runners.links.run_folder import RunFolder, remove
from reverie.runners.links.weights import WeightsChannel
from reverie.runners.reports.events import Result
from reverie.runners.roles.process_title import set_title
from reverie.runners.roles.role_loop import run_role
from reverie.runners.supervision.launch import launch

assert sys.platform == "linux"  # elsewhere `launch` refuses this runner: there are no pidfds

KILL_SECONDS = 60.0
NOT_BEGUN = (
    "its process ended with exit code 1 before it began; its error is on stderr; a likely cause: each process imports"
    ' the program that trains, which must do so under `if __name__ == "__main__":`'
)
"""Why a process ends with exit code 1 before it runs its role: `multiprocessing` imports the main module first."""


def run_in_processes(run: CheckedRun) -> Result:
    """Train with each role in a process of its own. See `launch.train`."""
    with closing(Processes()) as backend:
        return launch(backend, run)


@dataclass
class _Process:
    process: BaseProcess
    pipe: SupervisorSocket
    pidfd: int
    """A pidfd of the process, readable once it has ended. The pipe alone is not enough: it may outlive the process in a
    child that an environment has forked. `process` alone is not either: it has no answer once the fork server ends."""
    has_reported: bool = False


class Processes:
    """A backend of processes."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        # Imported once and shared by all: PyTorch takes seconds and hundreds of megabytes.
        self._context.set_forkserver_preload(["reverie.runners.roles.role_loop"])
        self._token = secrets.token_urlsafe(32)
        self._run_folder = RunFolder()
        self._folder = self._run_folder.path
        self._running: dict[RoleName, _Process] = {}
        self._killed: list[tuple[RoleName, _Process]] = []
        """Processes that were killed and may still be ending."""
        self._waiting: dict[RoleName, RoleSetup] = {}
        """Roles to fork once the fork server is ready."""
        self._begun: set[Kind] = set()
        """Kinds of roles that have been ready: their processes can import the program."""
        self._fork_server_ready = threading.Event()
        self._problem: BaseException | None = None
        threading.Thread(target=self._start_fork_server, name="fork server", daemon=True).start()

    def _start_fork_server(self) -> None:
        """Start the fork server, whose imports take seconds, or minutes on a busy machine.

        Meanwhile the run polls its roles, reports that it waits, and can be stopped.
        """
        try:
            first = self._context.Process(target=_do_nothing, name="reverie's first", daemon=True)
            first.start()
            first.kill()
            first.join()
        except BaseException as error:
            self._problem = error
        self._fork_server_ready.set()

    @property
    def weights(self) -> WeightsChannel:
        """The channel for weights: a file in the folder of the run."""
        return WeightsChannel(FileChannel(self._folder / "weights"))

    def serving(self, name: RoleName, storage: ReplayStorage, before: ShardEndpoint | None) -> ShardSettings:
        """Serve on loopback with the run's token, so that a client which finds another run's shard at its old port
        cannot write there. A restarted shard keeps its port if it is free, so that clients find it there."""
        port = None if before is None else int(before.address.rpartition(":")[2])
        return ShardSettings(port=port, token=self._token, storage=storage)

    def endpoint(self, name: RoleName, ready: RoleReady) -> ShardEndpoint:
        """The address that the shard reported, with the run's token."""
        assert ready.address is not None
        return ShardEndpoint(ready.address, self._token)

    def parameter_addresses(self, shards: Sequence[RoleSetup]) -> SocketAddresses:
        """The Unix socket of each parameter shard, in the run's folder."""
        return SocketAddresses(tuple(_socket_path(self._folder, shard) for shard in shards))

    def start(self, setup: RoleSetup) -> None:
        """Fork a process for the role as soon as the fork server is ready."""
        self._waiting[setup.name] = setup
        if self._fork_server_ready.is_set():
            self._fork_waiting()

    def _fork_waiting(self) -> None:
        if self._problem is not None:
            raise self._problem
        for name in list(self._waiting):
            self._fork(self._waiting.pop(name))

    def _fork(self, setup: RoleSetup) -> None:
        # Until the role's process before has ended it holds its locks: those of a journal, or of a disk's folder.
        self._wait_for_killed(setup.name)
        ours, theirs = socket_pair()
        process = self._context.Process(
            target=_run_process, args=(setup, theirs, self._folder), name=f"reverie {setup.name}", daemon=True
        )
        process.start()
        theirs.close()
        assert process.pid is not None
        try:
            pidfd = os.pidfd_open(process.pid)
        except ProcessLookupError:  # it has ended, and so has its pipe
            pidfd = os.open(os.devnull, os.O_RDONLY)
        self._running[setup.name] = _Process(process, ours, pidfd)

    def send(self, name: RoleName, command: Command) -> None:
        """Send a command, or keep what its pipe has no room for; a command for a process that has ended is lost."""
        running = self._running.get(name)
        if running is not None:
            with suppress(OSError):  # it will be reported as `RoleEnded`
                running.pipe.send(command)

    def listen(self, timeout: float) -> Sequence[tuple[RoleName, Report]]:
        """Reports of the roles; a process's `RoleEnded` comes after all its other reports.

        A role that stops in the middle of a message does not block the others.
        """
        if self._waiting:
            if not self._fork_server_ready.wait(timeout):
                return []
            self._fork_waiting()
        received: list[tuple[RoleName, Report]] = []
        ready = self._ready_descriptors(timeout)
        for name, running in list(self._running.items()):
            if running.pipe.fileno() in ready:
                with suppress(OSError):  # its reports can still be read
                    running.pipe.flush()
            elif running.pidfd not in ready:
                continue
            reports, closed = running.pipe.receive()
            running.has_reported |= bool(reports)
            self._begun |= {name.kind for report in reports if isinstance(report, RoleReady)}
            received += [(name, report) for report in reports]
            if closed or running.pidfd in ready:
                reason = self._remove_ended(name)
                if running.process.exitcode == 1 and not running.has_reported and name.kind not in self._begun:
                    received.append((name, RoleFailed("", NOT_BEGUN, "", transient=False)))
                received.append((name, RoleEnded(reason)))
        return received

    def _ready_descriptors(self, timeout: float) -> set[int]:
        """The pipes and pidfds that are ready; waits at most `timeout` seconds for the first."""
        poll = select.poll()
        for running in self._running.values():
            poll.register(running.pidfd, select.POLLIN)
            poll.register(running.pipe, select.POLLIN | (select.POLLOUT if running.pipe.is_sending else 0))
        return {descriptor for descriptor, _ in poll.poll(timeout * 1000)}

    def _remove_ended(self, name: RoleName) -> str:
        """Remove a role that has ended or closed its pipe; returns how it ended."""
        running = self._running[name]
        if not wait([running.pidfd], KILL_SECONDS):
            self.kill(name)
            return "it closed its pipe and did not end, and was killed"
        running.process.join(KILL_SECONDS)
        self._forget(name)
        return _reason(running.process.exitcode)

    def why_not_started(self, name: RoleName) -> str:
        """Always empty: the number of processes on this machine is not limited."""
        return ""

    def why_stopped(self, name: RoleName) -> str:
        """Whether a signal (SIGSTOP) or a debugger has stopped the process, as text; empty if not."""
        running = self._running.get(name)
        if running is None or not _is_stopped(running.process.pid):
            return ""
        return f"is stopped (kill -CONT {running.process.pid} resumes it)"

    def kill(self, name: RoleName) -> None:
        """End a process at once."""
        self._waiting.pop(name, None)
        running = self._running.pop(name, None)
        if running is not None:
            with suppress(OSError):  # it has ended
                signal.pidfd_send_signal(running.pidfd, signal.SIGKILL)
            running.pipe.close()
            self._killed.append((name, running))

    def _forget(self, name: RoleName) -> None:
        running = self._running.pop(name)
        running.pipe.close()
        os.close(running.pidfd)

    def close(self) -> None:
        """Kill the processes that still run, wait for them, and remove the folder of the run."""
        for name in list(self._running):
            self.kill(name)
        for name, _ in list(self._killed):
            self._wait_for_killed(name)
        self._run_folder.close()

    def _wait_for_killed(self, name: RoleName) -> None:
        """Wait until the killed processes of a role have ended."""
        ending = [process for role, process in self._killed if role == name]
        self._killed = [one for one in self._killed if one[0] != name]
        for killed in ending:
            wait([killed.pidfd], KILL_SECONDS)
            os.close(killed.pidfd)
            killed.process.join(KILL_SECONDS)


def _is_stopped(pid: int | None) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # it has ended
        return False
    return stat.rpartition(")")[2].split()[0] in "tT"


def _reason(exitcode: int | None) -> str:
    if exitcode is None:
        return "it ended, and its exit code is unknown"
    if exitcode >= 0:
        return f"it ended with exit code {exitcode}"
    return f"killed by {signal.Signals(-exitcode).name}"


class SocketLink:
    """A role's end of its pipe. A thread reads it, so that a busy role notices when its supervisor has ended."""

    def __init__(self, pipe: RoleSocket, on_end: Callable[[], None], socket_path: Path) -> None:
        self._pipe, self._on_end, self._socket_path = pipe, on_end, socket_path
        self._commands: deque[Command] = deque()
        self._arrived = threading.Event()
        self._server: SocketServer | None = None
        threading.Thread(target=self._read, name="commands", daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                command = self._pipe.receive()
            except (EOFError, OSError):
                self._on_end()
                return
            self._commands.append(command)
            self._arrived.set()

    def send(self, report: Report) -> None:
        """Send a report."""
        self._pipe.send(report)

    def commands(self) -> Iterator[Command]:
        """Commands received since the last call. Does not block."""
        self._arrived.clear()
        while self._commands:
            yield self._commands.popleft()

    def pause(self, seconds: float) -> None:
        """Sleep until a command comes, at most `seconds`."""
        self._arrived.wait(seconds)

    def serve(self, answer: Callable[[Any], Any]) -> None:
        """Answer learners' questions through a socket, until `close`."""
        self._server = SocketServer(self._socket_path, answer)

    def close(self) -> None:
        """Close the connections of learners; the pipe stays open until the process ends."""
        if self._server is not None:
            self._server.close()


def _socket_path(folder: Path, shard: RoleSetup) -> Path:
    """The socket's path, a new one for each start of a shard: no learner reaches a replacement by mistake."""
    return folder / f"parameters-{shard.name.index}-{shard.generation}"


def _do_nothing() -> None:
    """Target of the first process, which only starts the fork server and is killed at once."""


def _run_process(setup: RoleSetup, line: socket.socket, folder: Path) -> None:
    """A role's process, from its start to its end."""
    # Ctrl-C, the end of a terminal, and a signal to a process group or a service reach every process of the run. Only
    # the supervisor handles them, and it ends its roles.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    set_title(f"{setup.name} of {setup.agent.name} on {setup.env.env_id}")

    def orphaned() -> None:
        remove(folder)
        os._exit(1)

    link = SocketLink(RoleSocket(line), orphaned, _socket_path(folder, setup))
    run_role(setup, link)
    link.close()
    # Skips the interpreter's shutdown: threads of the network and of PyTorch have nothing left to do.
    os._exit(0)
