"""Helpers for tests of code that uses Reverie: servers, and Hypothesis strategies for what is stored."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from reverie._late_types import late
from reverie.client import Client
from reverie.rate_limiters import MinSize, RateLimiter
from reverie.server import Server
from reverie.sharding import shard_table
from reverie.tables import Table

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy
else:

    class SearchStrategy:
        """Hypothesis's class in type hints, without the type of its examples."""

        def __class_getitem__(cls, example):
            return late("hypothesis.strategies", "SearchStrategy")


__all__ = ["DTYPES", "PATHS", "TRANSPORTS", "Path", "ServerProcess", "Transport", "arrays", "host", "nests", "serve"]

Transport = Literal["in-process", "shared-memory", "grpc"]
Path = Literal[Transport, "two-shards"]

#: Every way in which a client can reach the tables of one server.
TRANSPORTS: tuple[Transport, ...] = ("in-process", "shared-memory", "grpc")
#: The transports, and two servers as one replay; the flow's tests run over each.
PATHS: tuple[Path, ...] = (*TRANSPORTS, "two-shards")

#: The numeric dtypes that every column can hold, without those of ml_dtypes.
DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)


@contextlib.contextmanager
def serve(
    tables: Sequence[Table], transport: Path = "in-process", *, timeout: float | None = None, **options: Any
) -> Iterator[Client]:
    """A client of a fresh server with these tables, over a transport; the server stops at the end.

    In-process, the server is in this process. Otherwise it is in another one, which is started once and makes a server
    for each call; the client's transport is asserted. With "two-shards", the tables are spread over two servers in this
    process, and the client has the limits of all of them.

    Args:
        tables: the tables. Over two shards, those whose limiter is not `MinSize(1)` have the same limiter.
        transport: one of `PATHS`.
        timeout: the client's.
        options: for `Server`.

    Raises:
        ValueError: for an unknown transport, and as for `Server`.
        AssertionError: the client did not get this transport.
    """
    if transport not in PATHS:
        raise ValueError(f"transport must be one of {PATHS}, got {transport!r}")
    if transport == "two-shards":
        shards, limiter = _two_shards(tables)
        with contextlib.ExitStack() as stack:
            # Each server has a disk of its own.
            disks = [
                {"disk": os.path.join(options["disk"], str(shard))} if "disk" in options else {} for shard in (0, 1)
            ]
            servers = [
                stack.enter_context(Server(part, listen=False, shard=shard, **{**options, **disk}))
                for (shard, part), disk in zip(enumerate(shards), disks, strict=True)
            ]
            clients = [server.client() for server in servers]
            yield stack.enter_context(Client(clients, rate_limiter=limiter, seed=1, timeout=timeout))
        return
    if transport == "in-process":
        with Server(tables, listen=False, **options) as server, server.client(timeout=timeout) as client:
            yield client
        return
    with host().serve(tables, **options) as address:
        # A busy machine may take its time: what a test asserts is the answer.
        client = Client(address, transport=transport, token=options.get("token"), timeout=timeout, grace=30.0)
        with client:
            got = client.info().transport
            if got != transport:
                raise AssertionError(f"the transport is {got!r}, not {transport!r}")
            yield client


def _two_shards(tables: Sequence[Table]) -> tuple[list[list[Table]], RateLimiter | None]:
    """The tables of two servers that are one replay, and the limits over both."""
    shards: list[list[Table]] = [[], []]
    limiters: list[RateLimiter] = []
    for table in tables:
        parts, limiter = shard_table(table, 2)
        if limiter == MinSize(1):
            parts = [part.replace(rate_limiter=limiter) for part in parts]
        elif limiter not in limiters:
            limiters.append(limiter)
        for shard, part in zip(shards, parts, strict=True):
            shard.append(part)
    if len(limiters) > 1:
        raise ValueError(f"the tables of two shards have one limiter, got {limiters}")
    return shards, limiters[0] if limiters else None


def _refuse_windows() -> None:
    if sys.platform == "win32":
        raise NotImplementedError(
            "Windows gives a new process no socket of its parent: test with the transport 'in-process'"
        )


class ServerProcess:
    """Another process that makes servers on request; see `host`."""

    def __init__(self) -> None:
        _refuse_windows()
        ours, theirs = socket.socketpair()
        code = f"from reverie.testing import _run_host; _run_host({theirs.fileno()})"
        self.process = subprocess.Popen([sys.executable, "-c", code], pass_fds=[theirs.fileno()])
        theirs.close()
        self._pipe: Connection[Any, Any] = Connection(ours.detach())
        self._lock = threading.Lock()
        self._pid = os.getpid()

    @contextlib.contextmanager
    def serve(self, tables: Sequence[Table], **options: Any) -> Iterator[str]:
        """Makes a server in that process; its address. An error of `Server` there is raised here."""
        number, address = self._ask("make", (list(tables), options))
        try:
            yield address
        finally:
            # Gone with its process where a test has ended that.
            with contextlib.suppress(OSError, EOFError):
                self.stop(number)

    def stop(self, number: int) -> None:
        """Stops one of its servers, at most once."""
        self._ask("stop", number)

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """The process is stopped (SIGSTOP) for the length of the block: its connections stay, and it answers nothing.

        Blocks until all its threads have stopped.

        Raises:
            NotImplementedError: on Windows.
            RuntimeError: the process has ended.
        """
        if sys.platform == "win32":
            raise NotImplementedError("Windows cannot stop a process and let it go on")
        self.process.send_signal(signal.SIGSTOP)
        try:
            stopped = os.waitpid(self.process.pid, os.WUNTRACED)[1]
            if not os.WIFSTOPPED(stopped):
                raise RuntimeError(f"the process ended (status {stopped}) and cannot be suspended")
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    @property
    def alive(self) -> bool:
        """True while the process runs, and is a child of this one."""
        return self._pid == os.getpid() and self.process.poll() is None

    def close(self) -> None:
        """Ends the process, and with it all of its servers."""
        self._pipe.close()
        self.process.wait()

    def _ask(self, what: str, argument: Any) -> Any:
        with self._lock:
            self._pipe.send((what, argument))
            good, answer = self._pipe.recv()
        if not good:
            raise answer
        return answer


_HOST: ServerProcess | None = None


def host() -> ServerProcess:
    """The process that makes servers for this one; started at the first call, and again where it has ended."""
    global _HOST
    if _HOST is None or not _HOST.alive:
        _HOST = ServerProcess()
        atexit.register(_HOST.close)
    return _HOST


def _run_host(descriptor: int) -> None:
    servers: dict[int, Server] = {}
    numbers = itertools.count()
    pipe: Connection[Any, Any] = Connection(descriptor)
    while True:
        try:
            what, argument = pipe.recv()
        except EOFError:
            # The requesting process has ended: no other can reach these servers.
            os._exit(0)
        try:
            if what == "make":
                tables, options = argument
                server = Server(tables, **options)
                servers[number := next(numbers)] = server
                answer: Any = (number, server.address)
            else:
                if argument in servers:
                    servers.pop(argument).stop()
                answer = None
        except Exception as error:
            pipe.send((False, error))
        else:
            pipe.send((True, answer))


def arrays(max_side: int = 3) -> SearchStrategy[np.ndarray[Any, Any]]:
    """Arrays of any dtype that a column can hold, of up to three axes, in any memory order."""
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as hnp

    dtypes = st.sampled_from([*DTYPES, "S3", "U2", ">i4", ">f8"])
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=max_side)
    plain = dtypes.flatmap(lambda dtype: hnp.arrays(np.dtype(dtype), shapes))
    return st.one_of(
        plain, plain.map(lambda array: array.T), plain.map(lambda array: array[..., ::-1] if array.ndim else array)
    )


def nests(leaves: SearchStrategy[Any], max_leaves: int = 6) -> SearchStrategy[Any]:
    """Nests of dicts, lists and tuples with at least one leaf."""
    from hypothesis import strategies as st

    def extend(children: SearchStrategy[Any]) -> SearchStrategy[Any]:
        keys = st.text("abc/", min_size=1, max_size=3)
        return st.one_of(
            st.dictionaries(keys, children, min_size=1, max_size=3),
            st.dictionaries(st.integers(-3, 300), children, min_size=1, max_size=3),
            st.lists(children, min_size=1, max_size=3),
            st.lists(children, min_size=1, max_size=3).map(tuple),
        )

    return st.recursive(leaves, extend, max_leaves=max_leaves)
