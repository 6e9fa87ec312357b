"""The server: it holds tables, and listens for clients."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import threading
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, final

from reverie import _checks, _native, checkpointers, tokens
from reverie._forks import OwnerProcess
from reverie.client import _LISTENING, Client
from reverie.journal import Journal
from reverie.pages import Page
from reverie.spans import RequestSpans
from reverie.tables import Table
from reverie.tls import ServerTLS
from reverie.tokens import Token

__all__ = ["Server"]

#: Seconds between two checks of `wait` for log lines of the network.
_LOG_PERIOD = 0.5


@final
class Server:
    """Holds tables from its construction until `stop`, and listens for clients.

    Args:
        tables: at least one; their names differ, and each table is on one server only.
        port: the port to listen on; None takes a free one, see `.port`.
        checkpointer: where checkpoints are kept, see `reverie.checkpointers`; None means a temporary folder. If it has
            a checkpoint, the tables start with its items and their keys, and the log reports that in one line.
        listen: False serves this process only, through `client()`.
        host: the address to listen on. Off loopback it needs a `token`, and `tls` unless `insecure`.
        token: what clients must send; a `reverie.Token` names its location, and keeps it out of pickles of its clients.
        tls: certificates; None takes plain text.
        insecure: allows connections off loopback without TLS, never without the token.
        max_bytes: maximum bytes of the chunks of all tables together, in memory and on the `disk`. Inserts beyond it
            wait, as `client.why` reports, and are refused if no sample could free bytes. Full tables go on exchanging
            items at the bound, and may exceed it by an item each. None means the rest of `max_memory`; a server with
            listen=False and no `max_memory`, or with a `disk`, has no such bound.
        disk: a folder for chunks that do not fit in memory, for this server alone: a table may then be larger than the
            memory. Chunks move there when `memory_bytes` are used up, those that were not read lately first, and are
            read from there; see the guide "Tables larger than memory". It does not replace a journal or checkpoints:
            the files are removed with the server. None keeps all chunks in memory.
        memory_bytes: maximum bytes of memory of the chunks of all tables together, where there is a `disk`; inserts
            beyond it wait until older chunks have moved. It must have room for chunks that are still being written and
            for the index of those on the disk, some 200 bytes each: inserts for which these leave too little are
            treated as beyond `max_bytes`. None means what `max_bytes` would be without a disk.
        disk_bytes: maximum bytes of the files in `disk`; None means as many as the disk has. When they are used up, and
            memory, too, inserts are treated as beyond `max_bytes`, those into full tables as well. A sixteenth, at most
            64 MiB, is kept free to compact files, and up to a twentieth of the files may be of items that are gone.
        max_memory: memory limit, in bytes, of a server that listens: `max_bytes` for its tables, and the rest, at most
            6 GiB, for connections (batches in transit, inserts that wait, responses that were not received); requests
            beyond it are refused. None means three quarters of the memory that this process may use: of its control
            group's limit, or of the machine's memory. The log and `client.info()` report the figures.
        journal: writes every change to the disk before it is acknowledged, see `reverie.Journal`; None means no
            journal. If its folder has one, the tables start with its content, and the log reports that in one line. The
            folder of `checkpointer`, if both are given, must be the same.
        restore_config: the source of a restored table's options. "constructor": those given here; the log names the
            differences from the checkpoint, a smaller `max_size` evicts through the remover, and tables that are not
            given here are left out. "checkpoint": those of the checkpoint, which adds its other tables.
        grace: seconds that `stop` gives clients to read what they requested.
        session_timeout: seconds for which the session of a lost connection is kept: requests that its client sends
            again are done once, and its unacknowledged draws wait for it. Afterwards they return to their tables, and
            inserts that still wait are withdrawn.
        local: offers shared memory to clients of this user on this host.
        max_connections: clients that may be connected at a time, over gRPC and over shared memory each; one more is
            refused with a message. The number is lower where the limit of open files requires it, and the log reports
            that; `client.info().max_connections` is the number in use.
        http: a port for browsers and monitoring, 9090 on 127.0.0.1 or `host:port`: a page at `/`, metrics, health and
            JSON; see the guide "Watch a server". Port 0 takes a free one, see `.http_address`. It has the `token`,
            `tls` and `insecure` of this server, and off loopback it needs them as `host` does. None has no such port.
        shard: the number of this server among several that are one replay, `reverie.Client([...])`, from 0 to 63. It is
            part of the keys of its items.
        tracing: makes an OpenTelemetry span of each request of a client with `tracing=True` whose trace is recorded,
            with the time that it waited and the reason; see the guide "Watch a server". Needs `reverie[otel]`, and a
            server that listens.

    Raises:
        ImportError: for `tracing` without OpenTelemetry.
        ValueError: for no tables, two tables with one name, limits that can never work, an address that is in use, or
            not safe, a checkpoint that a journal in its folder continues, without that `journal`, and a checkpoint that
            lacks files of its journal.
        DamagedError: for a damaged checkpoint or journal; no item of it was used.
        StorageError: for a journal that another server writes to, or that a command has read for 30 seconds, or that
            cannot be written, and likewise for a `disk`.
        SignatureError, ValueError: for items of the checkpoint that a table's signature or selectors refuse.
        OSError: for certificates and tokens that cannot be read.
    """

    def __init__(
        self,
        tables: Iterable[Table] | None = None,
        port: int | None = None,
        checkpointer: checkpointers.CheckpointerBase | None = None,
        *,
        listen: bool = True,
        host: str = "127.0.0.1",
        token: str | Token | None = None,
        tls: ServerTLS | None = None,
        insecure: bool = False,
        max_bytes: int | None = None,
        max_memory: int | None = None,
        disk: str | os.PathLike[str] | None = None,
        memory_bytes: int | None = None,
        disk_bytes: int | None = None,
        journal: Journal | None = None,
        restore_config: checkpointers.RestoreConfig = "constructor",
        grace: float = 5.0,
        session_timeout: float = 60.0,
        local: bool = True,
        max_connections: int = 4096,
        http: str | int | None = None,
        shard: int = 0,
        tracing: bool = False,
    ) -> None:
        if not listen and port is not None:
            raise ValueError(f"a server with listen=False has no port, got port={port}")
        if tracing and not listen:
            raise ValueError(
                "tracing is for a server that listens; in this process, client(tracing=True) makes the spans"
            )
        from reverie import _memory

        port = 0 if port is None else _checks.count("port", port, 0)
        grace = _checks.number("grace", grace)
        session_timeout = _checks.number("session_timeout", session_timeout)
        max_connections = _checks.count("max_connections", max_connections, 1)
        max_bytes = None if max_bytes is None else _checks.count("max_bytes", max_bytes, 1, _checks.MANY)
        max_memory = None if max_memory is None else _checks.count("max_memory", max_memory, 1, _checks.MANY)
        tier = None
        if disk is None:
            if memory_bytes is not None or disk_bytes is not None:
                raise ValueError("memory_bytes and disk_bytes need a disk: the folder to which chunks move")
            memory = _memory.divide(max_memory, max_bytes) if listen or max_memory is not None else None
            max_bytes = max_bytes if memory is None else memory.tables
        else:
            if memory_bytes is not None:
                memory_bytes = _checks.count("memory_bytes", memory_bytes, 1, _checks.MANY)
            if disk_bytes is not None:
                disk_bytes = _checks.count("disk_bytes", disk_bytes, 1, _checks.MANY)
            memory = _memory.divide(max_memory, memory_bytes, "memory_bytes")
            tier = (os.fspath(disk), memory.tables, disk_bytes)
        if _checks.count("shard", shard, 0) > 63:
            raise ValueError(f"shard must be between 0 and 63, got {shard}")
        if journal is not None and not isinstance(journal, Journal):
            raise TypeError(f"journal must be a reverie.Journal, got {journal!r}")
        if journal is not None:
            checkpointer = checkpointers.of_journal(journal, checkpointer)
        checkpointer = checkpointers.default_checkpointer() if checkpointer is None else checkpointer
        if not isinstance(checkpointer, checkpointers.CheckpointerBase):
            raise TypeError(f"checkpointer must be one of reverie.checkpointers, got {checkpointer!r}")
        if restore_config not in ("constructor", "checkpoint"):
            raise ValueError(f'restore_config must be "constructor" or "checkpoint", got {restore_config!r}')
        http_place = None if http is None else _checks.host_and_port("http", http)
        given = tables = _free(() if tables is None else tables)  # None is dm-reverb's default: the engine refuses it.
        folder = checkpointers.folder_of(checkpointer, journal)
        try:
            checkpoint = folder.newest or checkpointer.fallback_checkpoint_path
            if checkpoint is not None and restore_config == "checkpoint":
                tables = checkpointers.as_saved(tables, checkpoint)
            seed = int.from_bytes(os.urandom(8), "little")
            self._tables = tuple(tables)
            self._native = _native.Server(tables, max_bytes=max_bytes, disk=tier, seed=seed, shard=shard)
            self._checkpoints = _native.Checkpoints(self._native, folder)
        except BaseException:
            folder.release()
            raise
        self._process = OwnerProcess("server")
        # A signal handler may call `stop` while its thread is in `stop`.
        self._stopping, self._stop_began = threading.RLock(), False
        self._stopped = threading.Event()
        self._host = host
        self._like: functools.partial[Client] | None = None
        self._spans: RequestSpans | None = None
        try:
            # Before a client can reach the tables.
            checkpointers.start(self._checkpoints, checkpointer, checkpoint, journal, restore_config, listens=listen)
            if listen or http_place is not None:
                token_text = tokens.text_of(token)
                identity, client_ca = (None, None) if tls is None else tls.read()
            if listen and memory is not None:
                self._native.listen(
                    host,
                    port,
                    token=token_text,
                    identity=identity,
                    client_ca=client_ca,
                    insecure=insecure,
                    local=local,
                    grace=grace,
                    memory=(memory.memory, memory.network),
                    max_connections=max_connections,
                    session_timeout=session_timeout,
                    spans=tracing,
                )
                # After the log lines of the network's start.
                _native._deliver_logs()
                memory.log(self.address)
                _LISTENING[self.port] = self
                if tls is None:
                    self._like = functools.partial(Client, self.address, token=token)
            if tracing:
                self._spans = RequestSpans(self)
            if http_place is not None:
                self._native.listen_http(
                    *http_place, token=token_text, identity=identity, client_ca=client_ca, insecure=insecure
                )
        except BaseException:
            # The ports and the folders of a server that could not be made are free again.
            self.stop()
            raise
        # Its tables are copies: with a cycle of references, the items would stay until Python's cycle collector runs.
        attached = Client._of(self._native, [table.replace() for table in tables], None, None)
        for table in {*given, *tables}:
            table._attach(attached)

    def _show(self, page: Page) -> None:
        """Opens the HTTP port of a server that has none, with credentials of its own, unlike that of `http=`."""
        page.open(self._native)

    def client(self, *, timeout: float | None = None, tracing: bool = False) -> Client:
        """A client in this process, which calls the tables directly.

        Args:
            timeout: the default of every `timeout=` of this client and of its writers, in seconds.
            tracing: makes an OpenTelemetry span of each call, as for `Client`.
        """
        like = None if self._like is None else functools.partial(self._like, timeout=timeout, tracing=tracing)
        return Client._of(self._native, self._tables, timeout, like, tracing=tracing)

    def localhost_client(self) -> Client:
        """`client()`, under dm-reverb's name."""
        return self.client()

    @property
    def host(self) -> str:
        """The constructor's `host`."""
        return self._host

    @property
    def address(self) -> str:
        """The address that the server listens on, `host:port`.

        Raises:
            ValueError: for a server with listen=False.
        """
        address = self._native.address
        if address is None:
            raise ValueError("a server with listen=False has no address; server.client() makes its clients")
        return address

    @property
    def port(self) -> int:
        """The port that the server listens on.

        Raises:
            ValueError: for a server with listen=False.
        """
        return int(self.address.rpartition(":")[2])

    @property
    def http_address(self) -> str:
        """The address of the page and of the metrics, `host:port`.

        Raises:
            ValueError: for a server without `http`.
        """
        address = self._native.http_address
        if address is None:
            raise ValueError("a server without http= has no HTTP port; pass http=0")
        return address

    def publish(self, figures: Mapping[str, Any]) -> None:
        """Shows the figures of a training run on the page and in the metrics, in place of earlier ones.

        Runs of `reverie.runners` call it about once a second. Does not block.

        Args:
            figures: `agent`, `env` (names), `env_steps` and `updates`, and any of the other fields of `/api/run`, which
                the guide "Watch a server" lists. At most 64 KiB as JSON.

        Raises:
            ValueError: for a server without `http`, and for a field that is missing, unknown, invalid or too large.
        """
        if self._native.http_address is None:
            raise ValueError('a server without http= shows no run; pass http="127.0.0.1:0"')
        self._native.publish(json.dumps(figures, allow_nan=False))

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables, in the order of the constructor."""
        return self._tables

    def stop(self, *, checkpoint: bool = False) -> str | None:
        """Handles what has arrived, ends what waits, notifies clients and refuses what comes after. Idempotent.

        Waiting requests end with ClosedError, except inserts of remote clients: their clients keep those, and send them
        to the next server at this address.

        Blocks first while a periodic checkpoint is taken; then until clients have read what they requested, for `grace`
        and about two seconds at most; then for the last checkpoint and the end of the journal. Ctrl-C during the last
        checkpoint is raised when that is written; a second one abandons it, where there is no journal. Ctrl-C ends the
        wait for the journal: it ends in the background while the process lives, and its folder is released then.

        Args:
            checkpoint: take a last checkpoint when nothing goes in any more: every insert that was confirmed to its
                client is in it, where one of `client.checkpoint()` lacks what goes in between it and the stop.

        Returns:
            the path of the last checkpoint; None without one, and where the server was already stopped. A call during
            another thread's call waits for that, and returns None.

        Raises:
            StorageError: the file system refused the checkpoint, or the end of the journal; the server is stopped all
                the same.
            ForkedError: in a forked child.
        """
        self._process.check()
        with self._stopping:
            if self._stop_began:
                return None
            self._stop_began = True
            return self._end(checkpoint)

    def _end(self, checkpoint: bool) -> str | None:
        for port in [port for port, server in _LISTENING.items() if server is self]:
            del _LISTENING[port]
        checkpoints, saved = self._checkpoints, list[str]()
        # Last in, first out; an error or Ctrl-C in one of them leaves none of the others out.
        with contextlib.ExitStack() as ending:
            # The log lines since the last call: perhaps no later call comes that would write them.
            ending.callback(_native._deliver_logs)
            ending.callback(self._stopped.set)
            if self._spans is not None:
                ending.callback(self._spans.stop)
            ending.callback(checkpoints.release)
            ending.callback(checkpoints.end_journal)
            if checkpoint:
                ending.callback(lambda: saved.append(str(checkpoints.save_last()["path"])))
            with contextlib.ExitStack() as closing:
                closing.callback(self._native.close)
                checkpoints.stop()
        return saved[0] if saved else None

    def wait(self, timeout: float | None = None) -> bool:
        """Blocks until `stop` is called, or until Ctrl-C raises KeyboardInterrupt.

        Args:
            timeout: seconds at most; None waits without a limit.

        Returns:
            True where the server was stopped, False where the timeout passed.

        Raises:
            ForkedError: in a forked child.
        """
        self._process.check()
        seconds = math.inf if timeout is None else _checks.number("timeout", timeout)
        if not seconds >= 0:
            raise ValueError(f"timeout must be None or at least 0 seconds, got {timeout}")
        end = time.monotonic() + seconds
        while not self._stopped.wait(max(0.0, min(_LOG_PERIOD, end - time.monotonic()))):
            _native._deliver_logs()
            if time.monotonic() >= end:
                return False
        return True

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.is_here():  # a forked child that leaves the block ends with its own exit
            self.stop()

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a server lives in its process and cannot be pickled; make it in the process that serves")

    def __repr__(self) -> str:
        names = ", ".join(repr(table.name) for table in self._tables)
        at = "listen=False" if self._native.address is None else f"address={self.address!r}"
        return f"Server(tables=[{names}], {at}{', stopped' if self._stopped.is_set() else ''})"


def _free(tables: Iterable[Table]) -> list[Table]:
    """The tables as a list; TypeError for other objects, ValueError for a table that is on a server."""
    if not hasattr(tables, "__iter__"):
        raise TypeError(f"tables must be a list of reverie.Table, got a {type(tables).__name__}; put it into [...]")
    tables = list(tables)
    for table in tables:
        if not isinstance(table, Table):
            raise TypeError(f"tables must be reverie.Table, got a {type(table).__name__}")
        if table._host is not None:
            raise ValueError(f"table '{table.name}' is already on a server; .replace() makes a new table like it")
    return tables
