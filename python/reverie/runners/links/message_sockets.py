"""The connection between a supervisor and a role's process: a Unix socket with length-prefixed messages.

Messages are pickled as by `multiprocessing`. A role's end blocks. The supervisor's end never blocks: it reads what has
arrived and writes what the socket has room for, so that a role that stops in the middle of a message, read or written,
blocks no other role.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from multiprocessing.reduction import ForkingPickler
from typing import Any

_LENGTH = struct.Struct("!Q")


def socket_pair() -> tuple[SupervisorSocket, socket.socket]:
    """The supervisor's end, and a socket for the role's `RoleSocket`, which can be passed to another process."""
    ours, theirs = socket.socketpair()
    return SupervisorSocket(ours), theirs


class RoleSocket:
    """A role's end, which blocks. One thread may send while another receives."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def send(self, message: Any) -> None:
        """Send a message. Blocks until the supervisor has read all but what fits into the socket's buffer."""
        data = ForkingPickler.dumps(message)
        self._socket.sendall(_LENGTH.pack(len(data)))
        self._socket.sendall(data)

    def receive(self) -> Any:
        """The next message; waits for it. Raises EOFError if the supervisor has ended."""
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        return ForkingPickler.loads(self._read(length))

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        rest = memoryview(data)
        while rest:
            count = self._socket.recv_into(rest)
            if count == 0:
                raise EOFError("the supervisor has ended")
            rest = rest[count:]
        return data


class SupervisorSocket:
    """The supervisor's end, which never blocks. Not thread-safe."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._outgoing: deque[memoryview] = deque()
        self._length = True
        """Whether the next bytes are the length of a message; False for the message itself."""
        self._expect(_LENGTH.size)

    def _expect(self, size: int) -> None:
        self._incoming = bytearray(size)
        self._rest = memoryview(self._incoming)

    def fileno(self) -> int:
        """The file descriptor, for `poll`."""
        return self._socket.fileno()

    @property
    def is_sending(self) -> bool:
        """Whether it keeps bytes that the socket had no room for; call `flush` once the socket is writable."""
        return bool(self._outgoing)

    def send(self, message: Any) -> None:
        """Send a message, or keep what the socket has no room for. Raises OSError if the role has ended."""
        data = ForkingPickler.dumps(message)
        self._outgoing += (memoryview(_LENGTH.pack(len(data))), memoryview(data))
        self.flush()

    def flush(self) -> None:
        """Send what was kept, as far as there is room. Raises OSError if the role has ended."""
        while self._outgoing:
            first = self._outgoing[0]
            try:
                sent = self._socket.send(first)
            except BlockingIOError:
                return
            if sent < len(first):
                self._outgoing[0] = first[sent:]
            else:
                self._outgoing.popleft()

    def receive(self) -> tuple[list[Any], bool]:
        """The complete messages received, in order, and whether the role's end is closed."""
        messages: list[Any] = []
        while True:
            try:
                count = self._socket.recv_into(self._rest)
            except BlockingIOError:
                return messages, False
            except OSError:
                return messages, True
            if count == 0:
                return messages, True
            self._rest = self._rest[count:]
            while not self._rest:  # an empty message needs no bytes
                whole, self._length = self._incoming, not self._length
                if self._length:
                    messages.append(ForkingPickler.loads(whole))
                    self._expect(_LENGTH.size)
                else:
                    self._expect(_LENGTH.unpack(whole)[0])

    def close(self) -> None:
        """Close the socket; what was kept is discarded."""
        self._socket.close()
