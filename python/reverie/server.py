"""The server: tables, and who may reach them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import final

from reverie import _native, checkpointers
from reverie.client import Client
from reverie.tables import Table

__all__ = ["Server"]


@final
class Server:
    """Holds tables, from its construction until `stop`.

    Args:
        tables: at least one; names must differ, and each may be on one server only.
        port: must be None: this version serves this process only.
        checkpointer: where checkpoints are kept, see `reverie.checkpointers`; None is a temporary folder. Where it has
            one, the tables start with its items, under the keys that they had, and one line of the log says so.
        listen: must be False: this version serves this process only.
        max_bytes: bytes that the chunks of all tables may take together. Beyond, inserts wait, and say so; where
            nothing that anybody waits for could free bytes they are refused.
        restore_config: whose options a restored table has. "constructor": those given here; where they differ from
            the checkpoint's the log says so, a smaller `max_size` evicts through the remover, and tables that are not
            given here are left out. "checkpoint": those of the checkpoint, and its other tables are there, too.

    Raises:
        ValueError: for no tables, two of one name, limits that can never work, or what this version does not serve.
        DamagedError: for a checkpoint that is not what was written; no item of it was used.
        SignatureError, ValueError: for items of the checkpoint that a table's signature or selectors do not allow.
    """

    def __init__(
        self,
        tables: Iterable[Table],
        port: int | None = None,
        checkpointer: checkpointers.CheckpointerBase | None = None,
        *,
        listen: bool = True,
        max_bytes: int | None = None,
        restore_config: checkpointers.RestoreConfig = "constructor",
    ) -> None:
        if listen or port is not None:
            raise ValueError(
                "this version of reverie serves the process it runs in only: pass listen=False and no port, and use "
                "server.client()"
            )
        checkpointer = checkpointers.default_checkpointer() if checkpointer is None else checkpointer
        if not isinstance(checkpointer, checkpointers.CheckpointerBase):
            raise TypeError(f"checkpointer must be one of reverie.checkpointers, got {checkpointer!r}")
        if restore_config not in ("constructor", "checkpoint"):
            raise ValueError(f'restore_config must be "constructor" or "checkpoint", got {restore_config!r}')
        if not hasattr(tables, "__iter__"):
            raise TypeError(f"tables must be a list of reverie.Table, got a {type(tables).__name__}; put it into [...]")
        tables = list(tables)
        for table in tables:
            if not isinstance(table, Table):
                raise TypeError(f"tables must be reverie.Table, got a {type(table).__name__}")
            if table._host is not None:
                raise ValueError(f"table '{table.name}' is on a server already; .replace() gives a new one like it")
        given = tables
        checkpoint = checkpointers.newest(checkpointer)
        if checkpoint is not None and restore_config == "checkpoint":
            tables = checkpointers.as_saved(tables, checkpoint)
        seed = int.from_bytes(os.urandom(8), "little")
        self._tables = tuple(tables)
        self._native = _native.Server(tables, max_bytes=max_bytes, seed=seed)
        # Before anybody can reach the tables.
        self._checkpoints = checkpointers.start(checkpointer, self._native, checkpoint)
        self._stopped = threading.Event()
        client = Client(self._native, tables=self._tables)
        for table in {*given, *tables}:
            table._attach(client)

    def client(self, *, timeout: float | None = None) -> Client:
        """A client that reaches the tables directly, in this process.

        Args:
            timeout: the default of every `timeout=` of this client and of its writers, in seconds.
        """
        return Client(self._native, tables=self._tables, timeout=timeout)

    def localhost_client(self) -> Client:
        """`client()`, under the name that ported code uses."""
        return self.client()

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables in the order in which they were given."""
        return self._tables

    def stop(self) -> None:
        """Ends every wait with ClosedError and refuses what comes after. Idempotent.

        Blocks while a periodic checkpoint is being taken.
        """
        self._checkpoints.stop()
        self._native.close()
        self._checkpoints.release()
        self._stopped.set()

    def wait(self) -> None:
        """Blocks until `stop` is called, or until Ctrl-C raises KeyboardInterrupt."""
        self._stopped.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a server lives in its process and cannot be pickled; make it where it should live")

    def __repr__(self) -> str:
        names = ", ".join(repr(table.name) for table in self._tables)
        return f"Server(tables=[{names}], listen=False{', stopped' if self._stopped.is_set() else ''})"
