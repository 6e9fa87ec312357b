"""How learners and parameter shards talk: a question to each shard, all on their way at once, and the answers.

A learner has one question at each shard at most, so that nothing queues; every answer has a deadline. What is asked and
answered is the agent's own.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol

from reverie.errors import DeadlineExceededError, UnavailableError

ANSWER_SECONDS = 5.0
"""A shard that takes longer is given up for this question."""
BACKLOG = 128


class ParameterConnection(Protocol):
    """A learner's end. Not for several threads at once."""

    def ask(self, questions: Sequence[Any]) -> list[Any]:
        """The answers of all shards, of shard i to question i. Blocks.

        Raises `UnavailableError` where a shard is not there, and `DeadlineExceededError` where one gave no answer
        within `ANSWER_SECONDS`: nobody knows then which shards did what was asked. RuntimeError where one refused.
        """


class ParameterAddresses(Protocol):
    """Where the shards are; it can be pickled, and is opened where it is used."""

    def open(self) -> ParameterConnection:
        """A learner's end. Does not wait for the shards."""


class Reply(NamedTuple):
    """What comes back for a question."""

    answer: Any
    refusal: str = ""
    """The exception that the question ended with, where it did."""


def reply_to(question: Any, answer: Callable[[Any], Any]) -> Reply:
    """The shard's answer, or its refusal: what one learner asks ends no shard that others need."""
    try:
        return Reply(answer(question))
    except Exception as error:
        return Reply(None, f"{type(error).__name__}: {error}")


def answers_of(replies: Sequence[Reply]) -> list[Any]:
    """The answers. Raises RuntimeError where one is a refusal."""
    for index, reply in enumerate(replies):
        if reply.refusal:
            raise RuntimeError(f"parameter shard {index} refused: {reply.refusal}")
    return [reply.answer for reply in replies]


def raise_unanswered(index: int, error: BaseException | None = None) -> NoReturn:
    """Raise what `ParameterConnection.ask` raises for shard `index`: past its deadline, or unreachable."""
    if error is None:
        raise DeadlineExceededError(f"parameter shard {index} gave no answer within {ANSWER_SECONDS:g} s")
    raise UnavailableError(f"parameter shard {index} cannot be reached: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class SocketAddresses:
    """Shards of this machine, each behind a `SocketServer` at its path."""

    paths: tuple[Path, ...]

    def open(self) -> SocketConnection:
        """A learner's end. Does not wait for the shards."""
        return SocketConnection(self.paths)


class SocketConnection:
    """A learner's end of connections to doors, made when they are first needed, and anew after anything went wrong."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._connections: list[Connection[Any, Any]] = []

    def ask(self, questions: Sequence[Any]) -> list[Any]:
        """See `ParameterConnection.ask`."""
        try:
            for index in range(len(self._connections), len(self._paths)):
                with _of_shard(index):
                    self._connections.append(_connect(self._paths[index]))
            for index, question in enumerate(questions):
                with _of_shard(index):
                    self._connections[index].send(question)
            replies = []
            for index, connection in enumerate(self._connections):
                with _of_shard(index):
                    replies.append(connection.recv())
        except BaseException:
            self.close()  # an answer that comes later would be taken for that of the next question
            raise
        return answers_of(replies)

    def close(self) -> None:
        """Hang up; idempotent."""
        for connection in self._connections:
            connection.close()
        self._connections = []


@contextmanager
def _of_shard(index: int) -> Iterator[None]:
    """What goes wrong within is told as `ParameterConnection.ask` tells it."""
    try:
        yield
    except BlockingIOError:  # what a socket raises past its limit
        raise_unanswered(index)
    except (OSError, EOFError) as error:
        raise_unanswered(index, error)


def _connect(path: Path) -> Connection[Any, Any]:
    line = socket.socket(socket.AF_UNIX)
    try:
        _limit(line, socket.SO_SNDTIMEO)
        _limit(line, socket.SO_RCVTIMEO)
        line.connect(str(path))
    except BaseException:
        line.close()
        raise
    return Connection(line.detach())


def _limit(line: socket.socket, which: int) -> None:
    """No single read or write of a connection, which knows no deadline itself, takes longer than `ANSWER_SECONDS`."""
    seconds, fraction = divmod(ANSWER_SECONDS, 1)
    line.setsockopt(socket.SOL_SOCKET, which, struct.pack("ll", int(seconds), int(fraction * 1e6)))


class SocketServer:
    """A shard's end: a Unix socket, in a folder that is its user's alone, and a thread for each learner that came.

    `answer` is called in these threads.
    """

    def __init__(self, path: Path, answer: Callable[[Any], Any]) -> None:
        self._answer = answer
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen(BACKLOG)
        self._lines: set[socket.socket] = set()
        threading.Thread(target=self._accept, name="door", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(line,), name="line", daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        _limit(line, socket.SO_SNDTIMEO)
        self._lines.add(line)
        try:
            with Connection(line.dup().detach()) as connection:
                while True:
                    connection.send(reply_to(connection.recv(), self._answer))
        except (OSError, EOFError):
            return  # the learner is gone, or takes no answers
        finally:
            self._lines.discard(line)
            line.close()

    def close(self) -> None:
        """Let nobody in any more, and hang up."""
        for one in (self._socket, *self._lines):
            _end(one)
        self._socket.close()


def _end(one: socket.socket) -> None:
    """End what others wait for on a socket."""
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it has ended
