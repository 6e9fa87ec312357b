"""Runs of `reverie train` in processes of their own: those of a sweep, and those of a search."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, cast

import typer

from reverie.cli import running, train_plan
from reverie.cli.common import EXIT_INTERRUPTED, exit_code, find_modules_here, refuse
from reverie.cli.exits import stop_signals
from reverie.cli.train_request import TrainRequest

COMMAND = (sys.executable, "-c", "from reverie.cli.run_processes import serve; serve()")
"""The command of a run's process; the file descriptor of its connection is appended."""


class RunProcesses:
    """The runs of a command, each a process in its own process group.

    Ctrl-C in a terminal then reaches only the command, which signals each run once: a second signal would end a run
    without saving.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped = False
        self._processes: dict[str, subprocess.Popen[str]] = {}
        """Processes that have not ended, by the name of the run, which is unique among runs at the same time."""

    def train(self, request: TrainRequest) -> tuple[int, dict[str, Any] | None]:
        """Run one request; returns exit code and result. Its output goes to stderr, each line with the run's name."""
        if sys.platform == "win32":
            refuse("Windows lacks what a sweep or a search needs to start and end its runs: train one run at a time")
        ours, theirs = Pipe()
        with ours:
            with theirs, self._lock:  # no run begins once they are stopped
                if self._stopped:
                    return EXIT_INTERRUPTED, None
                process = subprocess.Popen(
                    [*COMMAND, str(theirs.fileno())],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    pass_fds=[theirs.fileno()],
                    process_group=0,
                )
                self._processes[request.name] = process
            with suppress(BrokenPipeError):  # the process ended before it read the request, and printed the reason
                ours.send(request)
            assert process.stdout is not None
            for line in process.stdout:
                sys.stderr.write(f"[{request.name}] {line}")
            code, result = process.wait(), _received(ours)
        process.stdout.close()
        with self._lock:  # not after an exception: `stop` ends the process then
            del self._processes[request.name]
        return code, result

    def interrupt(self, name: str) -> None:
        """Ask the run of this name to save and end. Does not wait; does nothing if it has ended."""
        with self._lock:
            process = self._processes.get(name)
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGINT)

    def stop(self) -> None:
        """Ask every run to save and end, and wait for them; a second Ctrl-C interrupts them, a third kills them."""
        with self._lock:
            self._stopped = True
            processes = list(self._processes.values())
        if sys.platform == "win32":  # where none begins
            return
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGKILL):
            for process in processes:
                if process.poll() is None:
                    process.send_signal(number)
            try:
                for process in processes:
                    process.wait()
                return
            except KeyboardInterrupt:
                continue


def _received(connection: Connection[Any, Any]) -> dict[str, Any] | None:
    """The result that the run sent before its process ended; None if it sent nothing."""
    try:
        return cast("dict[str, Any]", connection.recv()) if connection.poll() else None
    except (EOFError, ConnectionResetError):
        return None


def serve() -> None:
    """The process of one run: receives the request, trains, sends the result, and exits with the run's exit code."""
    from reverie.runners.roles.process_title import set_title

    find_modules_here()
    number = int(sys.argv[1])
    os.set_inheritable(number, False)
    connection: Connection[Any, Any] = Connection(number)
    with connection:
        try:
            request: TrainRequest = connection.recv()
            set_title(f"train {request.agent} --env {request.env} --seed {request.seed}")
            result, folder = train_plan.run(request)
        except typer.Exit as ended:
            sys.exit(ended.exit_code)
        except KeyboardInterrupt:  # before training began, or more than once
            sys.exit(EXIT_INTERRUPTED)
        connection.send(running.as_object(result, folder))
    sys.exit(exit_code(result.confirmed, result.topology.run.target_return))


@contextmanager
def signals_as_ctrl_c() -> Iterator[None]:
    """A context that handles SIGTERM and SIGHUP as Ctrl-C: the runs, in other groups, save and end.

    Repeated signals are ignored; only a repeated Ctrl-C interrupts.
    """
    interrupted = False

    def interrupt(number: int, frame: object) -> None:
        nonlocal interrupted
        if not interrupted:
            interrupted = True
            raise KeyboardInterrupt

    numbers = [number for number in stop_signals() if number != signal.SIGINT]
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
