"""What every test shares: one Hypothesis profile, the same draws on every machine, and how to wait."""

import os
import signal
import threading
import time

# Before anything imports NumPy or PyTorch: their threads, one for each core in each worker and each process of a test,
# would only wait for one another. A run sets its own number.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

# No deadline: two busy cores say nothing about the code. Derandomised in CI, so that a red run stays red.
settings.register_profile("quick", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("quick"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "quick")

# Tests send Ctrl-C to this process; started in the background of a shell, it would ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)

#: Seconds after which a test gives up what must come about: a watchdog against hangs. A machine may stand still for as
#: long as it likes below that, and nothing is said about speed.
WATCHDOG = 200.0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Commands are forked from one process, which imports PyTorch for seconds: their tests stay in one worker.

    The groups come first, those of Ray before all: a worker that begins a long group last would end alone.
    """
    for item in items:
        if "warm" in item.fixturenames and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("commands"))

    def rank(item):
        group = item.get_closest_marker("xdist_group")
        return 2 if group is None else int(group.args[0] != "ray")

    items.sort(key=rank)


@pytest.fixture
def until():
    """Waits until something is true, however long that takes: `until(lambda: ...)`."""

    def until(true):
        deadline = time.monotonic() + WATCHDOG
        while not true():
            assert time.monotonic() < deadline, f"not within {WATCHDOG:g} s"
            threading.Event().wait(0.001)

    return until
