"""Every error that Reverie raises, apart from ValueError and TypeError for bad arguments.

Each has the contents of its text as attributes, so that no program has to parse the text.
"""

from __future__ import annotations

from typing import Any

from reverie._picklable import Picklable

__all__ = [
    "ClosedError",
    "DamagedError",
    "DeadlineExceededError",
    "ForkedError",
    "InternalError",
    "ProtocolError",
    "RaggedError",
    "ReplayError",
    "ResourceExhaustedError",
    "ReverbError",
    "ServerRestartedWarning",
    "SignatureError",
    "StorageError",
    "SupersededError",
    "TrainingWarning",
    "UnauthenticatedError",
    "UnavailableError",
    "UnknownKeyError",
    "UnknownOutcomeError",
    "UnknownTableError",
]


class ReplayError(Picklable, Exception):
    """The root of Reverie's errors.

    Attributes:
        step_written: True for an error of a writer's `append` that was raised after the step was written: of items, or
            of a wait. Go on with the next step; the same step again would be a second one. KeyboardInterrupt and
            MemoryError have it, too, where `append` raises them.
    """

    step_written: bool = False


def _mark_step_written(error: BaseException) -> None:
    """Notes on an error of a writer's `append` that the step was written."""
    if not getattr(error, "step_written", False):
        error.step_written = True  # type: ignore[attr-defined]
        error.add_note("the step was written: go on with the next one")


#: dm-reverb's name for the root.
ReverbError = ReplayError


class DeadlineExceededError(ReplayError, TimeoutError):
    """The time given by `timeout=` passed.

    Attributes:
        why: which calls wait at the table, for what, and what would free them; the text of `client.why(table)`.
            If a journal has not written all that was done: what the journal waits for.
        partial: what was already done: a `Batch` of the draws made so far, the keys of the items already inserted (of
            `insert` the names of the tables that took the step), or None where nothing was.
        drawn: where the draws made so far cannot be one batch, each as a `Batch` of its own; `partial` is then None.

    Draws from a table that deletes sampled items are never lost: they are in the error, or back in their table.
    """

    def __init__(self, message: str, *, why: str = "", partial: Any = None, drawn: list[Any] | None = None) -> None:
        super().__init__(message)
        self.drawn = drawn or []
        self.why = why
        self.partial = partial


class UnknownTableError(ReplayError, LookupError, ValueError, RuntimeError):
    """The server has no table with this name. Ported code catches it as ValueError or RuntimeError.

    Attributes:
        name: the unknown name.
        known: the names of the server's tables.
    """

    def __init__(self, message: str, *, name: str = "", known: list[str] | None = None) -> None:
        super().__init__(message)
        self.name = name
        self.known = known or []


class UnknownKeyError(ReplayError, LookupError):
    """The table has no item with this key: the item was deleted, or never existed.

    Attributes:
        table: the table.
        key: the unknown key.
    """

    def __init__(self, message: str, *, table: str = "", key: int = 0) -> None:
        super().__init__(message)
        self.table = table
        self.key = key


class SignatureError(ReplayError, ValueError):
    """Data that does not match the table's signature, or the data before it.

    Attributes:
        path: the column as the user knows it (`obs/pixels`); empty for the whole nest.
        got: the dtype, shape or structure of the data.
        want: the dtype, shape or structure that was expected.
        drawn: where the items of one batch do not match each other: the draws, each as a `Batch` of its own. The items
            of a table that deletes sampled items are nowhere else.
    """

    def __init__(
        self, message: str, *, path: str = "", got: str = "", want: str = "", drawn: list[Any] | None = None
    ) -> None:
        super().__init__(message)
        self.drawn = drawn or []
        self.path = path
        self.got = got
        self.want = want


class RaggedError(ReplayError, ValueError):
    """Items of one batch cannot be stacked into one array per column.

    Attributes:
        path: the column.
        reason: what differs between the items, and which argument helps.
        drawn: the draws, each as a `Batch` of its own. The items of a table that deletes sampled items are nowhere
            else.
    """

    def __init__(self, message: str, *, path: str = "", reason: str = "", drawn: list[Any] | None = None) -> None:
        super().__init__(message)
        self.drawn = drawn or []
        self.path = path
        self.reason = reason


class ResourceExhaustedError(ReplayError):
    """A request needs more memory than its limit can ever allow.

    Attributes:
        what: the request.
        needed: bytes that it needs.
        budget: bytes that are allowed.
        hint: what to do about it.
        drawn: of a batch of a consuming table that is too large for the server to send, the draws, each as a `Batch` of
            its own: they are in the table no more.
    """

    def __init__(
        self,
        message: str,
        *,
        what: str = "",
        needed: int = 0,
        budget: int = 0,
        hint: str = "",
        drawn: list[Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.drawn = drawn or []
        self.what = what
        self.needed = needed
        self.budget = budget
        self.hint = hint


class ClosedError(ReplayError, RuntimeError):
    """The table, its server, the client or the writer was closed. Ported code catches it as RuntimeError.

    Attributes:
        name: what was closed.
    """

    def __init__(self, message: str, *, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class UnavailableError(ReplayError, ConnectionError):
    """The server cannot be reached. The text has the address, the call and the time spent."""


class UnknownOutcomeError(DeadlineExceededError, UnavailableError):
    """An insert was cancelled, and it is unknown whether the server inserted its items before.

    It happens where the connection is lost, or the server is silent, between the insert and its confirmation. A caller
    that inserts again without asking may have the item twice.

    Attributes:
        number: the client's number of the insert.
        partial: what is known to be inserted: keys, or for `insert` the names of tables.
        outcome: `outcome.wait(timeout=None)` reconnects, and returns the keys of the inserted items as an int64 array;
            after that none is added. It raises this error again when the timeout passes, and UnavailableError where the
            server no longer knows the client. None in an unpickled copy.
    """

    def __init__(
        self, message: str, *, number: int = 0, why: str = "", partial: Any = None, outcome: Any = None
    ) -> None:
        super().__init__(message, why=why, partial=partial)
        self.number = number
        self.outcome = outcome

    def __reduce__(self) -> tuple[Any, ...]:
        make, arguments, attributes = super().__reduce__()
        return make, arguments, {**attributes, "outcome": None}


class UnauthenticatedError(ReplayError, PermissionError):
    """The server does not admit this client: a missing or wrong token, or a certificate that is not trusted."""


class ProtocolError(ReplayError):
    """The peer sent a malformed message, or uses another version of the protocol."""


class ServerRestartedWarning(RuntimeWarning):
    """The server that a writer writes to was restarted.

    Its content before the restart is gone, unless a checkpoint had it; unconfirmed data was sent again.
    """


class TrainingWarning(UserWarning):
    """A run trains, but not as its user may expect: a setting or column has no effect, or a processor is slow at it."""


class ForkedError(ReplayError, RuntimeError):
    """An in-process handle was used in a forked child process, which has neither its threads nor its tables."""


class DamagedError(ReplayError):
    """Stored bytes are damaged. No part of them was used.

    Attributes:
        path: the file; empty for a chunk in memory.
        what: the damage.
        offset: the byte at which the damaged part begins.
    """

    def __init__(self, message: str, *, path: str = "", what: str = "", offset: int = 0) -> None:
        super().__init__(message)
        self.path = path
        self.what = what
        self.offset = offset


class StorageError(ReplayError, OSError):
    """The file system refused an operation.

    Attributes:
        path: the file or folder.
        action: the operation.
        reason: the error that the file system reported.
    """

    def __init__(self, message: str, *, path: str = "", action: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.action = action
        self.reason = reason


class SupersededError(ReplayError, RuntimeError):
    """Parameters were not published: a newer publisher has published to their channel, which keeps those.

    Attributes:
        version: the version that was to be published.
        newest: the newest version of the channel.
    """

    def __init__(self, message: str, *, version: Any = None, newest: Any = None) -> None:
        super().__init__(message)
        self.version = version
        self.newest = newest


class InternalError(ReplayError):
    """A defect in Reverie itself; please report the text."""
