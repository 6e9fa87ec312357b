"""The fixture that makes channels: every test that takes `channel` runs over each carrier."""

import contextlib

import pytest

import reverie
from reverie.parameters import FileChannel, LocalChannel, TableChannel
from reverie.testing import TRANSPORTS, serve

ON_RAY = [pytest.mark.long, pytest.mark.xdist_group("ray")]
CARRIERS = ["threads", "file", *TRANSPORTS, pytest.param("ray", marks=ON_RAY)]


@pytest.fixture(params=CARRIERS)
def channel(request, tmp_path):
    """A channel over one carrier, over which nothing was published."""
    with contextlib.ExitStack() as stack:
        if request.param == "threads":
            yield LocalChannel()
        elif request.param == "file":
            yield FileChannel(tmp_path / "parameters")
        elif request.param == "ray":
            pytest.importorskip("ray")
            request.getfixturevalue("ray_head")
            from reverie.parameters.ray import RayChannel

            yield stack.enter_context(contextlib.closing(RayChannel()))
        else:
            yield TableChannel(stack.enter_context(serve([reverie.parameters.table()], request.param)))
