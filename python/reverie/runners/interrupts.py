"""Ctrl-C and SIGTERM in a run that was started from Python: the run saves a checkpoint and ends, as the command's does.

A run without a folder ends after Ctrl-C with the policy that it has.

A program that was ended by SIGTERM would not run its `finally` blocks either; the run closes what is its own before.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from reverie.runners.reports.events import Event, NotSaved, Result, Saved, StoppedError

if TYPE_CHECKING:
    from reverie.agents.policies import TrainedPolicy

_LOG = logging.getLogger("reverie")


class InterruptState:
    """The state that a run and its `ending_at_interrupts` share."""

    def __init__(self, should_stop: Callable[[], bool], *, saves: bool) -> None:
        self._should_stop, self._saves = should_stop, saves
        self.requested = self._announced = False
        self.terminated = False
        """Whether SIGTERM came."""
        self.result: Result | None = None
        """The result of the run; to be set as soon as there is one."""
        self.is_saved = False
        """Whether the newest checkpoint was written."""

    def should_stop(self) -> bool:
        """Whether a signal or the program asked the run to end."""
        if self.requested and not self._announced:
            self._announced = True
            text = "saving a checkpoint and ending; Ctrl-C now ends without it"
            _LOG.warning(text if self._saves else "ending with the policy so far; Ctrl-C now ends without it")
        return self.requested or self._should_stop()

    def on_event(self, event: Event) -> None:
        """Note whether checkpoints are written: a callback for the run's events."""
        if isinstance(event, Saved | NotSaved):
            self.is_saved = isinstance(event, Saved)


class _Terminated(BaseException):
    """SIGTERM has ended the run."""


@contextmanager
def ending_by_sigterm() -> Iterator[None]:
    """A context around all of a run, which ends the process by SIGTERM once everything in it is closed.

    In a program that has called `ray.init` it is Ray's handler that ends it, by SystemExit: Ray is then closed as well.
    """
    try:
        yield
    except _Terminated:
        handler: Any = signal.getsignal(signal.SIGTERM)
        if _is_rays(handler):
            handler(signal.SIGTERM, None)
        _end_by_sigterm()


@contextmanager
def ending_at_interrupts(folder: Path | None, should_stop: Callable[[], bool]) -> Iterator[InterruptState]:
    """A context in which Ctrl-C and SIGTERM ask a run to save and end.

    Ctrl-C then is a KeyboardInterrupt that names the checkpoint and has the last `policy`. If the run had reached its
    end, the interrupt has its `result` and the policy of that; if it ended with another error, that is the cause. A
    second Ctrl-C interrupts at once. Both attributes are None where there is no value. SIGTERM is logged, and
    `ending_by_sigterm` ends the process with it; schedulers signal a group and its first process, so it may repeat.
    Nothing changes in other threads than the first, for a signal that the program handles in another way than Python
    does by itself, and for SIGTERM in a run that has no `folder`. The handler of SIGTERM that `ray.init` sets is not
    the program's.
    """
    run = InterruptState(should_stop, saves=folder is not None)
    if threading.current_thread() is not threading.main_thread():
        yield run
        return
    owner = os.getpid()

    def interrupt(number: int, frame: object) -> None:
        if run.requested:
            raise _keyboard_interrupt()
        run.requested = True

    def terminate(number: int, frame: object) -> None:
        if os.getpid() != owner:  # a forked child, such as that of an environment: it ends as without this handler
            _end_by_sigterm()
        run.requested = run.terminated = True

    with (
        _handling(signal.SIGINT, lambda before: before is signal.default_int_handler, interrupt),
        _handling(signal.SIGTERM, lambda before: folder is not None and _is_default(before), terminate),
    ):
        try:
            yield run
        except StoppedError as stopped:
            if not run.requested:
                raise
            then = "" if stopped.checkpoint is None else "; train(resume=True) with this folder continues"
            if stopped.earlier is not None:  # perhaps of the folder of another run
                then = ", which train(resume=...) continues"
            unsaved = stopped.checkpoint is None and stopped.env_steps > 0 and stopped.weights is not None
            policy = "; `.policy` of this interrupt has the last weights" if unsaved else ""
            raise _end(run, f"{stopped}{then}{policy}", stopped) from stopped
        except Exception as error:
            if not run.requested:
                raise
            raise _end(run, f"the run ended with {type(error).__name__}: {error}") from error
    if run.requested:  # also just before the handlers were removed
        lost = "" if folder is None else "; no checkpoint has it"
        again = ", and train(resume=True) with this folder returns it" if run.is_saved else lost
        result = "" if run.terminated else ": its result is `.result` of this interrupt"
        raise _end(run, f"the run had reached its end{result}{again}")


@contextmanager
def _handling(
    number: signal.Signals, is_default: Callable[[Any], bool], handler: Callable[[int, object], None]
) -> Iterator[None]:
    """A context with this handler for a signal, if the one before is not the program's own."""
    before = signal.getsignal(number)
    if not is_default(before):
        yield
        return
    signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def _is_default(handler: Any) -> bool:
    """Whether SIGTERM ends a program with this handler, which is not the program's own."""
    return handler is signal.SIG_DFL or _is_rays(handler)


def _is_rays(handler: Any) -> bool:
    """Whether this is the handler of SIGTERM that `ray.init` sets, which ends the program."""
    return callable(handler) and str(getattr(handler, "__module__", "")).partition(".")[0] == "ray"


def _end(run: InterruptState, note: str, stopped: StoppedError | None = None) -> BaseException:
    """The exception that ends a run after a signal."""
    if run.terminated:
        _LOG.warning("ended by SIGTERM: %s", note)
        return _Terminated()
    policy = stopped.policy if stopped is not None else run.result.policy if run.result is not None else None
    interrupt = _keyboard_interrupt(run.result, policy)
    interrupt.add_note(note)
    return interrupt


def _keyboard_interrupt(result: Result | None = None, policy: TrainedPolicy | None = None) -> KeyboardInterrupt:
    """A KeyboardInterrupt that has both attributes, None without a value: a program reads them in any case."""
    interrupt: Any = KeyboardInterrupt()
    interrupt.result, interrupt.policy = result, policy
    return cast(KeyboardInterrupt, interrupt)


def _end_by_sigterm() -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
    sys.exit(128 + signal.SIGTERM)  # where the signal is blocked
