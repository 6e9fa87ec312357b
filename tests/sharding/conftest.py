"""Sharded replays over every way of reaching a server."""

import contextlib

import pytest

from reverie import Client, Server, Table, rate_limiters, selectors
from reverie.testing import TRANSPORTS, serve


def prioritized(name="t", max_size=10_000, **options):
    options = {"sampler": selectors.Prioritized(1.0), "remover": selectors.Fifo(), **options}
    return Table(name, max_size=max_size, rate_limiter=options.pop("rate_limiter", rate_limiters.MinSize(1)), **options)


@pytest.fixture(name="prioritized")
def _prioritized():
    """Makes a table that draws by priority."""
    return prioritized


@pytest.fixture
def stack():
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def sharded(stack):
    """Makes a client of fresh shards in this process, one for each table: `sharded([table, ...], **options)`."""

    def sharded(tables, **options):
        servers = [stack.enter_context(Server([table], listen=False, shard=i)) for i, table in enumerate(tables)]
        options = {"timeout": 200.0, "seed": 1, **options}
        return stack.enter_context(Client([server.client() for server in servers], **options))

    return sharded


@pytest.fixture(params=TRANSPORTS)
def everywhere(request, stack):
    """The same over every transport."""

    def everywhere(tables, **options):
        clients = [stack.enter_context(serve([table], request.param, shard=i)) for i, table in enumerate(tables)]
        return stack.enter_context(Client(clients, **{"timeout": 200.0, "seed": 1, **options}))

    return everywhere
