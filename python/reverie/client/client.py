"""The client: its connection to the tables of one server or of several, and its pickling."""

from __future__ import annotations

import functools
import os
import random
import sys
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, final, get_args

from reverie import _checks, _native, rate_limiters, spans, tls, tokens
from reverie.client.append import WriterCalls
from reverie.client.batch import BatchCalls
from reverie.client.sample import SampleCalls
from reverie.tables import Table
from reverie.tls import ClientTLS
from reverie.tokens import Token

__all__ = ["Client", "Transport"]

Transport = Literal["auto", "in-process", "shared-memory", "grpc"]


class ListeningServer(Protocol):
    """A server in this process that listens, with the attributes that its clients use."""

    @property
    def host(self) -> str: ...
    @property
    def tables(self) -> tuple[Table, ...]: ...
    @property
    def _native(self) -> _native.Server: ...


#: The servers of this process that listen, by port. A forked child process has none of them.
_LISTENING: weakref.WeakValueDictionary[int, ListeningServer] = weakref.WeakValueDictionary()
if sys.platform != "win32":  # which cannot fork
    os.register_at_fork(after_in_child=_LISTENING.clear)

_LOOPBACK = {"localhost", "127.0.0.1", "::1", "0.0.0.0", "::"}


@final
class Client(WriterCalls, SampleCalls, BatchCalls):
    """A client of the tables of one server, or of several servers that are one replay.

    Threads may share it, and processes by pickling.

    Every call here that can wait takes `timeout=` in seconds: 0 tries without waiting, None takes the client's default,
    which is to wait without a deadline unless `timeout=` is set here. A wait without a deadline logs its reason after
    10 s and then sparsely, ends with KeyboardInterrupt at Ctrl-C, and with ClosedError when the server stops. Over a
    network an insert does not end with the server: it goes into the next server at this address. The client connects at
    the first call, and reconnects when the connection is lost; in a forked child the first call makes a new connection.

    With a list of servers, an item is drawn with the probability that it would have if all items were in one table: a
    server is chosen by its mass (the sum of its weights; for uniform tables the size), and then draws one of its items.
    `Batch.info.probability` is the product of both probabilities, and `table_size` the number of items of all servers,
    so that `Batch.weights` are those of one table. Draws are distributed by the masses that the servers last reported,
    and each response reports the mass again: if a server received too many draws, the surplus is drawn again from
    others, so that all draws follow the present masses. The reported probability is the one that was used. The rows of
    a batch are grouped by server: shuffle them before splitting it. Times in `inserted_at` are from each server's own
    clock. An insert or a writer uses one server. Figures are sums, and `info().shards` has those of each server.

    Every server has a number (`Server(..., shard=i)`), which is part of its items' keys. Its tables have
    `rate_limiters.Rationed` or `MinSize(1)`; the client that samples keeps the limits over all servers. When a call
    fails because a server cannot be reached, that server is left out, with a warning, until it answers again; the
    others go on. Keys of a lost server, or of one that came back without its items, are stale. Such a client connects
    when it is made.

    Args:
        server_address: `host:port` of the server; or a list of several, of addresses or `Client`s, in the same order
            for all clients that choose servers by index.
        rate_limiter: for a list: the limits over all servers, for the one client that samples (the learner's). It gives
            every server a ration of inserts, which the server enforces for all writers. Without one, draws wait for the
            first item, and this client does not limit inserts. Pickled copies have none.
        among: `(i, n)`, for a list: this is number i of n clients that sample by these limits: learners that share one
            replay. All of them get `rate_limiter`, and number 0 hands out the rations. Together they may exceed the
            limits by a batch each, since a draw is allowed by the counts that its client last received. Later changes
            (`configure`) must be made at each of them.
        seed: for a list: fixes the choice of servers; None takes a random one.
        transport: "auto" calls the tables directly where the server is in this process, uses shared memory where it is
            on this host, and gRPC elsewhere. The other values require one transport.
        token: the server's token; a `reverie.Token` keeps it out of pickles of this client.
        tls: certificates; None connects without TLS.
        timeout: the default of every `timeout=` of this client and of its writers, in seconds.
        patience: seconds that a connection may take to be made, or to be made again, before calls raise
            UnavailableError, and one of several servers counts as lost; so does one that keeps its connection and
            answers nothing for this long, and one second more. Inserts do not raise it: they are kept, and sent when
            the server is back; a call that waits for one waits up to `timeout=`.
        grace: seconds beyond a call's timeout in which the server's answer may arrive: at the deadline the server
            reports what was done and why not more. If the measured round trip is longer, it is used instead, up to 5 s.
            A server with a journal may take 0.1 s more. The draws of an answer that arrives later go back to their
            table.
        max_in_flight_bytes: bytes that may be on their way while no caller waits for them: inserts with `wait=False`;
            items of each writer that has no bound of its own; and, over a network, batches that `batches` asks for
            ahead where `prefetch=` is not given. They are as many as the way holds (its bandwidth times its delay, as
            measured), and no more than this. With several servers, each has this bound.
        max_kept_bytes: over a network, bytes of confirmed inserts that are kept until a server with a journal whose
            `sync` is not "always" has them on the disk. A server that starts after a loss of power without them gets
            them again, once. Beyond the bound, the oldest are not kept; `info().kept_bytes` shows how many are. With
            several servers, each has this bound.
        tracing: makes an OpenTelemetry span of each call, under the caller's current span, and passes its ids on to the
            server. An item of a writer belongs to the span that is current when it is made; waits of writers and
            for a batch of `batches` have spans; see the guide "Watch a server". Needs `reverie[otel]`.

    `transport`, `token`, `tls`, `patience`, `grace` and `max_kept_bytes` are for addresses, and so is `tracing` of
    writers: a `Client` in the list has its own.

    Raises:
        ValueError: for a malformed address, "in-process" where no server of this process listens, or a `Token` that
            cannot be read; for `rate_limiter`, `among` or `seed` with one address; for a list of no servers or more
            than 64, two servers with the same number, or tables with their own limits.
        ImportError: for `tracing` without OpenTelemetry.
        UnavailableError, UnauthenticatedError, ProtocolError: raised by later calls over a network; with a list,
            UnavailableError if no server answers within `patience` seconds.
    """

    #: The limits over several servers, for `repr`.
    _limiter: rate_limiters.RateLimiter | None = None

    def __new__(
        cls,
        server_address: str | Sequence[str | Client],
        *,
        rate_limiter: rate_limiters.RateLimiter | None = None,
        among: tuple[int, int] = (0, 1),
        seed: int | None = None,
        transport: Transport = "auto",
        token: str | Token | None = None,
        tls: ClientTLS | None = None,
        timeout: float | None = None,
        patience: float = 10.0,
        grace: float = 0.05,
        max_in_flight_bytes: int = 64 << 20,
        max_kept_bytes: int = 32 << 20,
        tracing: bool = False,
    ) -> Client:
        """Checks the options; see the class."""
        if transport not in get_args(Transport):
            raise ValueError(f"transport must be one of {get_args(Transport)}, got {transport!r}")
        options: dict[str, Any] = {
            "transport": transport,
            "token": token,
            "tls": tls,
            "timeout": timeout,
            "patience": patience,
            "grace": grace,
            "max_in_flight_bytes": max_in_flight_bytes,
            "max_kept_bytes": max_kept_bytes,
        }
        if not isinstance(server_address, str):
            return cls._of_several(server_address, rate_limiter, among, seed, options, tracing=tracing)
        given = {"rate_limiter": rate_limiter is not None, "among": among != (0, 1), "seed": seed is not None}
        for name in (name for name, is_given in given.items() if is_given):
            raise ValueError(f"{name} is for a list of servers; for one server, its table has the limits and the seeds")
        like = functools.partial(cls, server_address, **options, tracing=tracing)
        host, _, port = server_address.rpartition(":")
        server = _LISTENING.get(int(port)) if port.isdecimal() else None
        here = server is not None and (host == server.host or {host.strip("[]"), server.host} <= _LOOPBACK)
        if server is not None and here and transport in ("auto", "in-process"):
            return cls._of(server._native, server.tables, timeout, like, max_in_flight_bytes, tracing=tracing)
        if transport == "in-process":
            raise ValueError(
                f"no server of this process listens at '{server_address}'; server.client() needs no address"
            )
        texts: dict[str, Any] = {"token": tokens.text_of(token), "tls": None if tls is None else _files(tls)}
        self = super().__new__(cls._kind(tracing), address=server_address, **{**options, **texts})
        self._own, self._like = None, like
        return self

    @classmethod
    def _of_several(
        cls,
        servers: Sequence[str | Client],
        limiter: rate_limiters.RateLimiter | None,
        among: tuple[int, int],
        seed: int | None,
        options: dict[str, Any],
        *,
        tracing: bool,
    ) -> Client:
        """A client of several servers. The writers at a server are those of its own client."""
        if not isinstance(servers, Sequence):
            raise TypeError(f'server_address must be a str, "host:port", or a list of addresses, got {servers!r}')
        clients = tuple(
            server if isinstance(server, Client) else cls(server, **options, tracing=tracing) for server in servers
        )
        names = [client.server_address or "in this process" for client in clients]
        seed = int.from_bytes(os.urandom(8), "little") if seed is None else _checks.count("seed", seed, 0)
        own = {name: options[name] for name in ("timeout", "max_in_flight_bytes")}
        self = super().__new__(
            cls._kind(tracing), shards=(list(clients), names, limiter, _among(among, limiter), seed), **own
        )
        self._own, self._like = None, functools.partial(cls, clients, **own, tracing=tracing)
        self._shards, self._limiter, self._random = clients, limiter, random.Random(seed)
        return self

    @classmethod
    def _of(
        cls,
        server: _native.Server,
        tables: Sequence[Table],
        timeout: float | None,
        like: functools.partial[Client] | None,
        max_in_flight_bytes: int | None = None,
        *,
        tracing: bool = False,
    ) -> Client:
        """A client of tables in this process."""
        self = super().__new__(cls._kind(tracing), server, timeout=timeout, max_in_flight_bytes=max_in_flight_bytes)
        self._own, self._like = tuple(tables), like
        return self

    @classmethod
    def _kind(cls, tracing: bool) -> type[Client]:
        # Only a client that traces has the wrapped calls, so that the others cost nothing.
        kind: Any = cls
        return spans.traced(kind) if tracing else cls

    @property
    def clients(self) -> tuple[Client, ...]:
        """A client of each server: this one, or those of several servers."""
        return self._shards or (self,)

    @property
    def num_shards(self) -> int:
        """The number of servers, those that cannot be reached included; 1 for a client of one server."""
        return len(self.clients)

    def close(self) -> None:
        """Releases the chunks that this client was filling, and its connection. The tables stay; idempotent.

        Waits up to a second for inserts and updates with `wait=False`, which continue. Writers keep the connection. A
        later call makes a new one. A client of several servers closes its `clients`; its calls that wait, and all later
        ones, raise ClosedError.
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
        if self._shards:
            limiter = "" if self._limiter is None else f", rate_limiter={self._limiter!r}"
            return f"Client({[client.server_address or client for client in self._shards]}{limiter})"
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


def _among(among: tuple[int, int], limiter: rate_limiters.RateLimiter | None) -> tuple[int, int]:
    """Checks `among`. Raises ValueError if it is invalid, and for several clients without a limiter."""
    index, count = among
    index, count = _checks.count("among[0]", index, 0), _checks.count("among[1]", count, 1)
    if index >= count:
        raise ValueError(f"among is {among}, and must be (i, n): number i of n clients, i below n")
    if count > 1 and limiter is None:
        raise ValueError(f"among is {among}, of clients that keep limits together: give each of them rate_limiter, too")
    return index, count
