"""Every error that Reverie raises, apart from ValueError and TypeError for bad arguments.

Each carries what its text says as attributes, so that no program has to parse the text.
"""

from __future__ import annotations

from typing import Any

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
    "UnauthenticatedError",
    "UnavailableError",
    "UnknownFateError",
    "UnknownKeyError",
    "UnknownTableError",
]


class ReplayError(Exception):
    """The root of Reverie's errors."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Set again as they are: some are added later, `drawn` and notes, and are no keyword arguments.
        return type(self), self.args, self.__dict__


#: dm-reverb's name for the root.
ReverbError = ReplayError


class DeadlineExceededError(ReplayError, TimeoutError):
    """The time given by `timeout=` passed.

    Attributes:
        why: which calls wait at the table, for what, and what would free them; the text of `client.why(table)`.
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
    """The server has no table of that name. Ported code catches ValueError or RuntimeError for it.

    Attributes:
        name: the name that was asked for.
        known: the names there are.
    """

    def __init__(self, message: str, *, name: str = "", known: list[str] | None = None) -> None:
        super().__init__(message)
        self.name = name
        self.known = known or []


class UnknownKeyError(ReplayError, LookupError):
    """No item of the table has that key, or has it any more.

    Attributes:
        table: the table.
        key: the key that was asked for.
    """

    def __init__(self, message: str, *, table: str = "", key: int = 0) -> None:
        super().__init__(message)
        self.table = table
        self.key = key


class SignatureError(ReplayError, ValueError):
    """Data that does not fit the signature, or what came before it.

    Attributes:
        path: the column as the user knows it (`obs/pixels`); empty for the whole nest.
        got: what was given.
        want: what would have fitted.
        drawn: where items of one batch do not fit one another, the draws, each as a `Batch` of its own: those of a
            consuming table are in the table no more.
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
    """Items of one batch that cannot become one array per column.

    Attributes:
        path: the column.
        reason: what differs, and what to ask for.
        drawn: the draws, each as a `Batch` of its own: those of a consuming table are in the table no more.
    """

    def __init__(self, message: str, *, path: str = "", reason: str = "", drawn: list[Any] | None = None) -> None:
        super().__init__(message)
        self.drawn = drawn or []
        self.path = path
        self.reason = reason


class ResourceExhaustedError(ReplayError):
    """Something larger than any room that could be made for it.

    Attributes:
        what: what asked for the room.
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
    """The table, its server, the client or the writer was closed. Ported code catches RuntimeError for it.

    Attributes:
        name: what was closed.
    """

    def __init__(self, message: str, *, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class UnavailableError(ReplayError, ConnectionError):
    """The server, or the way to it, is not there. The text says where it was looked for, for what and for how long."""


class UnknownFateError(DeadlineExceededError, UnavailableError):
    """An insert was withdrawn, and the server has not said yet whether it is in its table.

    It happens where the connection is lost, or the server is silent, between the insert and its confirmation. A caller
    that inserts again without asking may have the item twice.

    Attributes:
        number: the insert, as its client numbers them.
        partial: what is known to be in: keys, or of `insert` the names of tables.
        fate: `fate.wait(timeout=None)` gives the keys of what is in, as an int64 array, once the server was reached
            again; the insert does not go in afterwards. It raises this error again where the timeout passes, and
            UnavailableError where the server no longer knows the client. None in a copy from another process.
    """

    def __init__(self, message: str, *, number: int = 0, why: str = "", partial: Any = None, fate: Any = None) -> None:
        super().__init__(message, why=why, partial=partial)
        self.number = number
        self.fate = fate

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args, {**self.__dict__, "fate": None}


class UnauthenticatedError(ReplayError, PermissionError):
    """The server does not admit this client: a missing or wrong token, or a certificate that is not trusted."""


class ProtocolError(ReplayError):
    """The other end does not keep to the protocol, or speaks another version of it."""


class ServerRestartedWarning(RuntimeWarning):
    """The server that a writer writes to was restarted.

    What it held before is gone, unless a checkpoint had it; what it had not confirmed was sent again.
    """


class ForkedError(ReplayError, RuntimeError):
    """An in-process handle was used in a forked child, where its threads and its tables are not."""


class DamagedError(ReplayError):
    """Stored bytes are not what was written. Nothing of them was used.

    Attributes:
        path: the file; empty for a chunk in memory.
        what: what is wrong.
        offset: the byte at which the part that is wrong begins.
    """

    def __init__(self, message: str, *, path: str = "", what: str = "", offset: int = 0) -> None:
        super().__init__(message)
        self.path = path
        self.what = what
        self.offset = offset


class StorageError(ReplayError, OSError):
    """The file system refused.

    Attributes:
        path: the file or folder.
        action: what was tried.
        reason: what the file system says.
    """

    def __init__(self, message: str, *, path: str = "", action: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.action = action
        self.reason = reason


class InternalError(ReplayError):
    """A defect of the engine itself; the text is what its author needs."""
