"""Ctrl-C in a run that was started from Python: the run saves a checkpoint and ends, as that of the command does."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from reverie.runners.reports.events import Event, NotSaved, Result, Saved, StoppedError

_LOG = logging.getLogger("reverie")


class Interruptible:
    """What a run and its `saving_at_interrupts` exchange."""

    def __init__(self, should_stop: Callable[[], bool]) -> None:
        self._should_stop = should_stop
        self.requested = self._announced = False
        self.result: Result | None = None
        """The result of the run; to be set as soon as there is one."""
        self.is_saved = False
        """Whether the newest checkpoint was written."""

    def should_stop(self) -> bool:
        """Whether Ctrl-C or the program asked the run to end."""
        if self.requested and not self._announced:
            self._announced = True
            _LOG.warning("saving a checkpoint and ending; Ctrl-C now ends without it")
        return self.requested or self._should_stop()

    def on_event(self, event: Event) -> None:
        """Note whether checkpoints are written: a callback for the run's events."""
        if isinstance(event, Saved | NotSaved):
            self.is_saved = isinstance(event, Saved)


@contextmanager
def saving_at_interrupts(folder: Path | None, should_stop: Callable[[], bool]) -> Iterator[Interruptible]:
    """A context in which Ctrl-C asks a run to save and end, and then is a KeyboardInterrupt that names the checkpoint.

    If the run had reached its end, the interrupt has its `result`; if it ended with another error, that is the cause.
    A second Ctrl-C interrupts at once. Nothing changes for a run that has no `folder`, in other threads than the first,
    and where the program handles Ctrl-C in another way than Python does by itself.
    """
    run = Interruptible(should_stop)
    here = threading.current_thread() is threading.main_thread()
    if folder is None or not here or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield run
        return

    def request_stop(number: int, frame: object) -> None:
        if run.requested:
            raise KeyboardInterrupt
        run.requested = True

    signal.signal(signal.SIGINT, request_stop)
    try:
        yield run
    except StoppedError as stopped:
        if not run.requested:
            raise
        then = "" if stopped.checkpoint is None else "; train(resume=True) with this folder continues"
        raise _interrupt(f"{stopped}{then}") from stopped
    except Exception as error:
        if not run.requested:
            raise
        raise _interrupt(f"the run ended with {type(error).__name__}: {error}") from error
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if run.requested:
        again = ", and train(resume=True) with this folder returns it" if run.is_saved else "; no checkpoint has it"
        interrupt = _interrupt(f"the run had reached its end: its result is `.result` of this interrupt{again}")
        interrupt.result = run.result  # type: ignore[attr-defined]
        raise interrupt


def _interrupt(note: str) -> KeyboardInterrupt:
    interrupt = KeyboardInterrupt()
    interrupt.add_note(note)
    return interrupt
