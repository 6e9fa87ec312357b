"""The one fixture that makes clients: every test of the flow runs over every transport."""

import contextlib

import pytest

from reverie import Table, rate_limiters, selectors
from reverie.testing import TRANSPORTS, serve


@pytest.fixture(params=TRANSPORTS)
def connect(request):
    """Makes a client of a fresh server: `connect(table, ...)`; without tables one uniform table "t"."""
    with contextlib.ExitStack() as stack:

        def connect(*tables, **options):
            tables = tables or (uniform("t"),)
            return stack.enter_context(serve(tables, request.param, **options))

        yield connect


def uniform(name, max_size=1000, **options):
    options = {"sampler": selectors.Uniform(seed=1), "remover": selectors.Fifo(), **options}
    return Table(name, max_size=max_size, rate_limiter=options.pop("rate_limiter", rate_limiters.MinSize(1)), **options)


@pytest.fixture(name="uniform")
def _uniform():
    return uniform
