"""The one fixture that makes clients: every test of the flow runs over every transport, and over two shards.

A test whose promise holds for the tables of one server only is marked `one_table_only("the reason")`.
"""

import contextlib

import pytest

from reverie import Table, rate_limiters, selectors
from reverie.testing import PATHS, TRANSPORTS, serve


def pytest_generate_tests(metafunc):
    chosen = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "connect" in metafunc.fixturenames and not any("connect" in names for names in chosen):
        mark = metafunc.definition.get_closest_marker("one_table_only")
        assert mark is None or mark.args, "one_table_only needs a reason"
        metafunc.parametrize("connect", PATHS if mark is None else TRANSPORTS, indirect=True)


@pytest.fixture
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
