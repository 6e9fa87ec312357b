"""Connections between learners and parameter shards: one question to each shard, all in flight at once.

A learner has at most one question at each shard, so that nothing queues. Every answer has a deadline. The agent defines
the questions and answers.
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol

from reverie.errors import DeadlineExceededError, UnavailableError

ANSWER_SECONDS = 5.0
"""The timeout of a shard's answer."""
BACKLOG = 128


class ParameterConnection(Protocol):
    """A learner's end. Not thread-safe."""

    def ask(self, questions: Sequence[Any]) -> list[Any]:
        """The answers of all shards, of shard i to question i. Blocks.

        Raises `UnavailableError` if a shard cannot be reached, and `DeadlineExceededError` if one did not respond in
        `ANSWER_SECONDS`; it is unknown then which shards processed their question. RuntimeError if one refused.
        """


class ParameterAddresses(Protocol):
    """The addresses of the shards. Can be pickled; open it in the process that uses it."""

    def open(self) -> ParameterConnection:
        """A learner's end. Does not wait for the shards."""


class ShardResponse(NamedTuple):
    """The response to a question."""

    answer: Any
    refusal: str = ""
    """The exception that the question raised, as text; empty if none."""


def reply_to(question: Any, answer: Callable[[Any], Any]) -> ShardResponse:
    """The shard's answer or its refusal: a question that raises does not end a shard that other learners need."""
    try:
        return ShardResponse(answer(question))
    except Exception as error:
        return ShardResponse(None, f"{type(error).__name__}: {error}")


def answers_of(replies: Sequence[ShardResponse]) -> list[Any]:
    """The answers. Raises RuntimeError if one is a refusal."""
    for index, reply in enumerate(replies):
        if reply.refusal:
            raise RuntimeError(f"parameter shard {index} refused: {reply.refusal}")
    return [reply.answer for reply in replies]


def raise_unanswered(index: int, error: BaseException | None = None) -> NoReturn:
    """Raise the error of `ParameterConnection.ask` for shard `index`: past its deadline, or unreachable."""
    if error is None:
        raise DeadlineExceededError(f"parameter shard {index} did not respond within {ANSWER_SECONDS:g} s")
    raise UnavailableError(f"parameter shard {index} cannot be reached: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class SocketAddresses:
    """Shards on this machine, each behind a `SocketServer` at its path."""

    paths: tuple[Path, ...]

    def open(self) -> SocketConnection:
        """A learner's end. Does not wait for the shards."""
        return SocketConnection(self.paths)


class SocketConnection:
    """A learner's connections to `SocketServer`s, made at the first question and again after any error."""

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
            self.close()  # a late answer would be taken for that of the next question
            raise
        return answers_of(replies)

    def close(self) -> None:
        """Close the connections; idempotent."""
        for connection in self._connections:
            connection.close()
        self._connections = []


@contextmanager
def _of_shard(index: int) -> Iterator[None]:
    """A context that turns socket errors into the errors of `ParameterConnection.ask`."""
    try:
        yield
    except BlockingIOError:  # the socket's timeout has passed
        raise_unanswered(index)
    except (OSError, EOFError) as error:
        raise_unanswered(index, error)


def _connect(path: Path) -> Connection[Any, Any]:
    connected = _unix_socket()
    try:
        _set_timeout(connected, socket.SO_SNDTIMEO)
        _set_timeout(connected, socket.SO_RCVTIMEO)
        connected.connect(str(path))
    except BaseException:
        connected.close()
        raise
    return Connection(connected.detach())


def _unix_socket() -> socket.socket:
    if sys.platform == "win32":
        raise RuntimeError("sockets of files are for the runner 'process', which needs Linux")
    return socket.socket(socket.AF_UNIX)


def _set_timeout(connected: socket.socket, which: int) -> None:
    """Set the timeout of a single read or write to `ANSWER_SECONDS`: a `Connection` has no timeout of its own."""
    seconds, fraction = divmod(ANSWER_SECONDS, 1)
    connected.setsockopt(socket.SOL_SOCKET, which, struct.pack("ll", int(seconds), int(fraction * 1e6)))


class SocketServer:
    """A shard's end: a Unix socket in a folder that only its user can access, and a thread for each learner.

    `answer` is called in these threads.
    """

    def __init__(self, path: Path, answer: Callable[[Any], Any]) -> None:
        self._answer = answer
        self._socket = _unix_socket()
        self._socket.bind(str(path))
        self._socket.listen(BACKLOG)
        self._lock = threading.Lock()
        """Guards the sockets of connections, and whether new ones are accepted."""
        self._sockets: set[socket.socket] = set()
        self._closed = False
        threading.Thread(target=self._accept, name="parameter server", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connected,), name="learner connection", daemon=True).start()

    def _serve(self, connected: socket.socket) -> None:
        _set_timeout(connected, socket.SO_SNDTIMEO)
        with self._lock:
            if self._closed:
                connected.close()
                return
            self._sockets.add(connected)
        try:
            with Connection(connected.dup().detach()) as connection:
                while True:
                    connection.send(reply_to(connection.recv(), self._answer))
        except (OSError, EOFError):
            return  # the learner has ended, or reads no answers
        finally:
            with self._lock:
                self._sockets.discard(connected)
            connected.close()

    def close(self) -> None:
        """Accept no more learners, and close the connections; idempotent."""
        with self._lock:
            self._closed = True
            for one in (self._socket, *self._sockets):
                _shut_down(one)
        self._socket.close()


def _shut_down(one: socket.socket) -> None:
    """Shut a socket down, which wakes threads that wait on it."""
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it has ended
