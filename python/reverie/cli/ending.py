"""How `reverie train` ends: asked to, or because it must."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from reverie.cli.common import EXIT_INTERRUPTED, EXIT_NOT_REACHED, complain, refuse


@contextmanager
def ends_told() -> Iterator[None]:
    """How a run can end other than well: each in a line, with its exit code."""
    from reverie.agents.core import EnvironmentCrashedError
    from reverie.agents.learning import DivergedError
    from reverie.errors import DamagedError
    from reverie.runners import CheckpointError, DeviceError, RoleError, StalledError, StoppedError

    try:
        yield
    except StoppedError as error:
        print(f"reverie: {error}; the same command with --resume goes on from there", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except KeyboardInterrupt:
        print("reverie: interrupted; checkpoints written before are whole", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except (StalledError, DivergedError, EnvironmentCrashedError, TimeoutError) as error:
        complain(error)
        raise typer.Exit(EXIT_NOT_REACHED) from None
    except RoleError as error:
        if error.error == DamagedError.__name__:  # of a checkpoint that a shard was to begin from
            refuse(error)
        print(f"{error.traceback}reverie: {error}", file=sys.stderr)
        raise typer.Exit(EXIT_NOT_REACHED) from None
    except (
        CheckpointError,
        DamagedError,
        DeviceError,
        OSError,
    ) as error:  # of the network, or of a disk that is full from the start
        refuse(error)


@contextmanager
def asked_to_stop() -> Iterator[Any]:
    """Ctrl-C asks the run to save and end at the next turn; a second one interrupts at once."""
    asked = False

    def ask(number: int, frame: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
