"""The ends of `reverie train` other than success: errors, signals, and a closed output."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import typer

from reverie.cli.common import EXIT_INTERRUPTED, EXIT_NOT_REACHED, complain, refuse


@contextmanager
def ends_told(folder: Path) -> Iterator[None]:
    """A context that reports a run's errors and stops in one line each, with their exit codes."""
    from reverie.agents.core import EnvironmentCrashedError
    from reverie.agents.learning import DivergedError
    from reverie.errors import DamagedError
    from reverie.runners import CheckpointError, DeviceError, NoRoomError, RoleError, StalledError, StoppedError

    try:
        yield
    except StoppedError as error:
        where = "there" if error.checkpoint is not None else "the previous checkpoint, or starts again if there is none"
        print(f"reverie: {error}; the same command with --resume continues from {where}", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except KeyboardInterrupt:
        print("reverie: interrupted; earlier checkpoints are intact", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except (StalledError, DivergedError, EnvironmentCrashedError, TimeoutError) as error:
        complain(error)
        raise typer.Exit(EXIT_NOT_REACHED) from None
    except RoleError as error:
        if error.error == DamagedError.__name__:  # in a checkpoint that a shard started from
            _refuse_tables(error, folder)
        print(f"{error.traceback}reverie: {error}", file=sys.stderr)
        raise typer.Exit(EXIT_NOT_REACHED) from None
    except DamagedError as error:
        _refuse_tables(error, folder)
    except (CheckpointError, DeviceError, NoRoomError) as error:
        refuse(error)
    except OSError as error:  # network errors, or a disk that is full from the start
        refuse(error)


def _refuse_tables(damage: Exception, folder: Path) -> NoReturn:
    """Report the damage, the checkpoint of these tables, and a checkpoint to resume from; ends the command."""
    from reverie.runners import checkpoints

    newest = checkpoints.find(folder)
    refuse(f"{damage}\nreverie: these are the tables of {newest}; {checkpoints.instead_of(newest)}")


def wishes_to_end() -> tuple[signal.Signals, ...]:
    """Signals by which a user, a scheduler or a closed terminal ends a run; after `nohup` without SIGHUP."""
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hangs_up else []))


@contextmanager
def asked_to_stop() -> Iterator[Any]:
    """A context in which Ctrl-C, SIGTERM and the end of the terminal ask the run to save and end at the next turn.

    A second Ctrl-C interrupts at once. Other signals may repeat: schedulers signal a group and its first process.
    """
    asked = told = False
    terminals = [number for number in range(3) if os.isatty(number)]

    def ask(number: int, frame: object) -> None:
        nonlocal asked
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked = True
        if number == signal.SIGHUP:
            _let_go(terminals)

    def is_asked() -> bool:
        nonlocal told
        if asked and not told:
            told = True
            print("reverie: saving a checkpoint and ending; Ctrl-C now ends without it", file=sys.stderr, flush=True)
        return asked

    before = {number: signal.signal(number, ask) for number in wishes_to_end()}
    try:
        yield is_asked
    finally:
        for number, handler in before.items():
            # Ignore repeated signals while the process ends.
            signal.signal(number, signal.SIG_IGN if asked and number != signal.SIGINT else handler)


def reader_is_gone() -> None:
    """Make a run save and end, as on SIGTERM, if the reader of its output has closed it (as `| head` does).

    A run that saves nothing, such as the demo, ends here.
    """
    _let_go([number for number in (1, 2) if _is_unread(number)])
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        raise SystemExit(EXIT_INTERRUPTED)
    signal.raise_signal(signal.SIGTERM)


def _is_unread(number: int) -> bool:
    poll = select.poll()
    poll.register(number, 0)  # POLLERR and POLLHUP are always reported
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _let_go(outputs: list[int]) -> None:
    """Redirect closed outputs to /dev/null: an error of a write would end the run before it saves."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in outputs:
        os.dup2(nowhere, number)
    os.close(nowhere)
