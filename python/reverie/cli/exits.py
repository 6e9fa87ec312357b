"""The ends of commands that run agents, other than success: errors, signals, and a closed output."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import typer

from reverie.cli.common import EXIT_CRASHED, EXIT_INTERRUPTED, print_error, refuse


@contextmanager
def errors_reported(interrupted: str) -> Iterator[None]:
    """A context that reports errors of agents and environments in one line each, with their exit codes.

    `interrupted` is what Ctrl-C leaves, for its line.
    """
    from reverie.agents.compiling import CompileError
    from reverie.agents.core import EnvironmentCrashedError
    from reverie.agents.env_errors import UnknownEnvironmentError, UnsupportedEnvironmentError
    from reverie.agents.outcomes import DivergedError
    from reverie.agents.recording import RecordingError
    from reverie.errors import DamagedError
    from reverie.integrations.datasets import DatasetError
    from reverie.runners import CheckpointError, DeviceError, NoRoomError, StalledError

    try:
        yield
    except KeyboardInterrupt:
        print(f"reverie: interrupted; {interrupted}", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except (StalledError, DivergedError, EnvironmentCrashedError, CompileError, RecordingError, TimeoutError) as error:
        print_error(error)
        raise typer.Exit(EXIT_CRASHED) from None
    except (CheckpointError, DamagedError, DeviceError, NoRoomError) as error:
        refuse(error)
    except DatasetError as error:  # found when a row of it is read
        refuse(error)
    except (UnknownEnvironmentError, UnsupportedEnvironmentError) as error:  # found when it is made, reset or stepped
        refuse(error)
    except OSError as error:  # network errors, or a disk that is full from the start
        refuse(error)
    except (typer.Exit, typer.Abort):
        raise
    except Exception:  # of the agent or its layers, or a defect: its place matters
        traceback.print_exc()
        raise typer.Exit(EXIT_CRASHED) from None


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """A context in which SIGTERM interrupts as Ctrl-C does, so that what was begun is removed or kept as documented."""
    earlier = signal.getsignal(signal.SIGTERM)
    if earlier is not signal.SIG_DFL or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)


@contextmanager
def run_errors_reported(folder: Path) -> Iterator[None]:
    """`errors_reported` of a run, whose checkpoints are in `folder`; also reports its stops and errors of its roles."""
    from reverie.agents.core import EnvironmentCrashedError
    from reverie.agents.env_errors import UnknownEnvironmentError, UnsupportedEnvironmentError
    from reverie.agents.named_parameters import ParameterError
    from reverie.agents.step_checks import InvalidStepError, MisshapenStepError
    from reverie.errors import DamagedError
    from reverie.integrations.datasets import DatasetError
    from reverie.runners import RoleError, StoppedError

    with errors_reported("earlier checkpoints are intact"):
        try:
            yield
        except StoppedError as error:
            begins = error.checkpoint is None and error.earlier is None
            then = "starts again" if begins else "continues from there"
            print(f"reverie: {error}; the same command with --resume {then}", file=sys.stderr)
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except RoleError as error:
            if error.error == DamagedError.__name__:  # in a checkpoint that a shard started from
                _refuse_damaged_tables(error, folder)
            # In a checkpoint that a learner started from; when an actor made, reset or stepped an environment, or read
            # a data set.
            refused = ParameterError, UnknownEnvironmentError, UnsupportedEnvironmentError, DatasetError
            if error.error in [one.__name__ for one in refused]:
                refuse(error)
            # Their texts have all that matters: the environment, its seed and step; the file, and the system's error.
            named = InvalidStepError, MisshapenStepError, EnvironmentCrashedError, OSError
            if not error.traceback or error.error in [one.__name__ for one in named]:
                print_error(error)
            else:
                print(f"{error.traceback}reverie: {error}", file=sys.stderr)
            raise typer.Exit(EXIT_CRASHED) from None
        except DamagedError as error:
            _refuse_damaged_tables(error, folder)


def _refuse_damaged_tables(damage: Exception, folder: Path) -> NoReturn:
    """Report the damage, the checkpoint of these tables, and how to resume; ends the command."""
    from reverie.runners import checkpoints

    newest = checkpoints.find(folder)
    hint = checkpoints.journal_hint(newest) or checkpoints.fallback_hint(newest)
    refuse(f"{damage}\nreverie: these are the tables of {newest}; {hint}")


def stop_signals() -> tuple[signal.Signals, ...]:
    """Signals by which a user, a scheduler or a closed terminal ends a run; after `nohup` without SIGHUP."""
    if sys.platform == "win32":  # has no SIGHUP
        return (signal.SIGINT, signal.SIGTERM)
    handles_hangup = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if handles_hangup else []))


@contextmanager
def stop_on_signals() -> Iterator[Any]:
    """A context in which Ctrl-C, SIGTERM and the end of the terminal ask the run to save and end at the next turn.

    A second Ctrl-C interrupts at once. Other signals may repeat: schedulers signal a group and its first process.
    """
    requested = announced = False
    terminals = [number for number in range(3) if os.isatty(number)]

    def request_stop(number: int, frame: object) -> None:
        nonlocal requested
        if requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        requested = True
        if sys.platform != "win32" and number == signal.SIGHUP:
            _discard_output(terminals)

    def is_requested() -> bool:
        nonlocal announced
        if requested and not announced:
            announced = True
            print("reverie: saving a checkpoint and ending; Ctrl-C now ends without it", file=sys.stderr, flush=True)
        return requested

    before = {number: signal.signal(number, request_stop) for number in stop_signals()}
    try:
        yield is_requested
    finally:
        for number, handler in before.items():
            # Ignore repeated signals while the process ends.
            signal.signal(number, signal.SIG_IGN if requested and number != signal.SIGINT else handler)


def stop_for_closed_output() -> None:
    """Make a run save and end, as on SIGTERM, if the reader of its output has closed it (as `| head` does).

    A run that saves nothing, such as the demo, ends here.
    """
    _discard_output([number for number in (1, 2) if _is_closed(number)])
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        raise SystemExit(EXIT_INTERRUPTED)
    signal.raise_signal(signal.SIGTERM)


def _is_closed(number: int) -> bool:
    if sys.platform == "win32":  # an output that a write found closed stays: its errors are reported
        return False
    poll = select.poll()
    poll.register(number, 0)  # POLLERR and POLLHUP are always reported
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _discard_output(outputs: list[int]) -> None:
    """Redirect closed outputs to /dev/null: an error of a write would end the run before it saves."""
    devnull = os.open(os.devnull, os.O_RDWR)
    for number in outputs:
        os.dup2(devnull, number)
    os.close(devnull)
