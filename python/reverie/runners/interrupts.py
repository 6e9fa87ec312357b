"""Ctrl-C in a run that was started from Python: the run saves a checkpoint and ends, as that of the command does."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from reverie.runners.reports.events import StoppedError

_LOG = logging.getLogger("reverie")


@contextmanager
def saving_at_interrupts(folder: Path | None, should_stop: Callable[[], bool]) -> Iterator[Callable[[], bool]]:
    """A context in which Ctrl-C asks a run to save and end, and then is a KeyboardInterrupt that names the checkpoint.

    Yields the run's `should_stop`. A second Ctrl-C interrupts at once. Nothing changes for a run that has no `folder`,
    in other threads than the first, and where the program handles Ctrl-C in another way than Python does by itself.
    """
    here = threading.current_thread() is threading.main_thread()
    if folder is None or not here or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield should_stop
        return
    requested = announced = False

    def request_stop(number: int, frame: object) -> None:
        nonlocal requested
        if requested:
            raise KeyboardInterrupt
        requested = True

    def is_requested() -> bool:
        nonlocal announced
        if requested and not announced:
            announced = True
            _LOG.warning("saving a checkpoint and ending; Ctrl-C now ends without it")
        return requested or should_stop()

    signal.signal(signal.SIGINT, request_stop)
    try:
        yield is_requested
    except StoppedError as stopped:
        if not requested:
            raise
        raise _interrupt(f"{stopped}; train(resume=True) with this folder continues") from stopped
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if requested:
        raise _interrupt("the run had reached its end; train(resume=True) with this folder returns its result")


def _interrupt(note: str) -> KeyboardInterrupt:
    interrupt = KeyboardInterrupt()
    interrupt.add_note(note)
    return interrupt
