"""The client: its connection to a server's tables, and its pickling."""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, final, get_args

from reverie import _native, tls, tokens
from reverie.client.append import WriterCalls
from reverie.client.batch import BatchCalls
from reverie.client.sample import SampleCalls
from reverie.tables import Table
from reverie.tls import ClientTLS
from reverie.tokens import Token

__all__ = ["Client", "Transport"]

Transport = Literal["auto", "in-process", "shared-memory", "grpc"]


class Listening(Protocol):
    """A server in this process that listens, with the attributes that its clients use."""

    @property
    def host(self) -> str: ...
    @property
    def tables(self) -> tuple[Table, ...]: ...
    @property
    def _native(self) -> _native.Server: ...


#: The servers of this process that listen, by port. A forked child process has none of them.
_LISTENING: weakref.WeakValueDictionary[int, Listening] = weakref.WeakValueDictionary()
os.register_at_fork(after_in_child=_LISTENING.clear)

_LOOPBACK = {"localhost", "127.0.0.1", "::1", "0.0.0.0", "::"}


@final
class Client(WriterCalls, SampleCalls, BatchCalls):
    """A client of a server's tables. Threads may share it, and processes by pickling.

    Every call that can wait takes `timeout=` in seconds: 0 tries without waiting, None takes the client's default,
    which is to wait without a deadline unless `timeout=` is set here. A wait without a deadline logs its reason after
    10 s and then sparsely, ends with KeyboardInterrupt at Ctrl-C, and with ClosedError when the server stops. Over a
    network an insert does not end with the server: it goes into the next server at this address. The client connects at
    the first call, and reconnects when the connection is lost; in a forked child the first call makes a new connection.

    Args:
        server_address: `host:port` of the server.
        transport: "auto" calls the tables directly where the server is in this process, uses shared memory where it is
            on this host, and gRPC elsewhere. The other values require one transport.
        token: the server's token; a `reverie.Token` keeps it out of pickles of this client.
        tls: certificates; None connects without TLS.
        timeout: the default of every `timeout=` of this client and of its writers, in seconds.
        patience: seconds that a connection may take to be made, or to be made again, before calls raise
            UnavailableError. Inserts do not: they are kept, and sent when the server is back; a call that waits for one
            waits up to `timeout=`.
        grace: seconds beyond a call's timeout in which the server's answer may arrive: at the deadline the server
            reports what was done and why not more. Where the measured round trip is longer, that counts, up to 5 s. The
            draws of an answer that is later go back to their table.
        max_in_flight_bytes: bytes that may be on their way while no caller waits for them: inserts with `wait=False`;
            items of each writer that has no bound of its own; and, over a network, batches that `batches` asks for
            ahead where `prefetch=` is not given. They are as many as the way holds (its bandwidth times its delay, as
            measured), and no more than this.

    Raises:
        ValueError: for a malformed address, "in-process" where no server of this process listens, or a `Token` that
            cannot be read.
        UnavailableError, UnauthenticatedError, ProtocolError: raised by later calls over a network.
    """

    def __new__(
        cls,
        server_address: str,
        *,
        transport: Transport = "auto",
        token: str | Token | None = None,
        tls: ClientTLS | None = None,
        timeout: float | None = None,
        patience: float = 10.0,
        grace: float = 0.05,
        max_in_flight_bytes: int = 64 << 20,
    ) -> Client:
        """Checks the options; see the class."""
        if not isinstance(server_address, str):
            raise TypeError(f'server_address must be a str, "host:port", got {server_address!r}')
        if transport not in get_args(Transport):
            raise ValueError(f"transport must be one of {get_args(Transport)}, got {transport!r}")
        like = functools.partial(
            cls,
            server_address,
            transport=transport,
            token=token,
            tls=tls,
            timeout=timeout,
            patience=patience,
            grace=grace,
            max_in_flight_bytes=max_in_flight_bytes,
        )
        host, _, port = server_address.rpartition(":")
        server = _LISTENING.get(int(port)) if port.isdecimal() else None
        here = server is not None and (host == server.host or {host.strip("[]"), server.host} <= _LOOPBACK)
        if server is not None and here and transport in ("auto", "in-process"):
            return cls._of(server._native, server.tables, timeout, like, max_in_flight_bytes)
        if transport == "in-process":
            raise ValueError(
                f"no server of this process listens at '{server_address}'; server.client() needs no address"
            )
        self = super().__new__(
            cls,
            timeout=timeout,
            address=server_address,
            transport=transport,
            token=tokens.text_of(token),
            tls=None if tls is None else _files(tls),
            patience=patience,
            grace=grace,
            max_in_flight_bytes=max_in_flight_bytes,
        )
        self._own, self._like = None, like
        return self

    @classmethod
    def _of(
        cls,
        server: _native.Server,
        tables: Sequence[Table],
        timeout: float | None,
        like: functools.partial[Client] | None,
        max_in_flight_bytes: int | None = None,
    ) -> Client:
        """A client of tables in this process."""
        self = super().__new__(cls, server, timeout=timeout, max_in_flight_bytes=max_in_flight_bytes)
        self._own, self._like = tuple(tables), like
        return self

    def close(self) -> None:
        """Releases the chunks that this client was filling, and its connection. The tables stay; idempotent.

        Waits up to a second for inserts and updates with `wait=False`, which continue. Writers keep the connection. A
        later call makes a new one.
        """
        self._close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._like is None:
            raise TypeError(
                "a client of a server that does not listen cannot be pickled: its tables are in this process; share "
                "it between threads, or make the server with listen=True"
            )
        return self._like, ()

    def __repr__(self) -> str:
        if self._own is None:
            return f"Client({self.server_address!r})"
        names = ", ".join(repr(table.name) for table in self._own)
        at = "" if self._like is None else f", address={self.server_address!r}"
        return f"Client(in-process, tables=[{names}]{at})"


def _files(options: ClientTLS) -> tuple[bytes | None, tuple[bytes, bytes] | None, str | None]:
    identity = None
    if options.cert is not None and options.key is not None:
        identity = (tls.read("certificate", options.cert), tls.read("key", options.key))
    ca = None if options.ca is None else tls.read("ca", options.ca)
    return ca, identity, options.server_name
