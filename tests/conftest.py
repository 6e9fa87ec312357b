"""Shared by all tests: the Hypothesis profiles, the number of threads, the order of tests, and waiting."""

import os
import signal
import threading
import time

# Set before NumPy and PyTorch are imported: with one thread per core in each worker and each process of a test, threads
# would only wait for each other. A run sets its own number.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

# No deadline: times on two busy cores do not depend on the code. Derandomised in CI, so that a failure repeats.
settings.register_profile("quick", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("quick"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "quick")

# Tests send Ctrl-C to this process; started in the background of a shell, it would ignore the signal.
signal.signal(signal.SIGINT, signal.default_int_handler)

#: Seconds after which a wait for a condition fails: a watchdog against hangs. A machine may stall for less than that;
#: this is no check of speed.
WATCHDOG = 200.0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Put the tests of commands into one worker: commands are forked from one process, whose imports take seconds.

    Groups run first, and Ray's before the others: a worker that starts a long group last would finish alone.
    """
    for item in items:
        if "warm" in item.fixturenames and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("commands"))

    def rank(item):
        group = item.get_closest_marker("xdist_group")
        return 2 if group is None else int(group.args[0] != "ray")

    items.sort(key=rank)


@pytest.fixture
def networks_of():
    """A function: the networks of a learner, or of its state, each as one vector of its parameters."""
    import numpy as np

    def vectors(source):
        state = source if isinstance(source, dict) else source.state_dict()
        return {
            name: np.concatenate([one.ravel() for one in named.values()]) for name, named in state["networks"].items()
        }

    return vectors


@pytest.fixture(autouse=True)
def signal_handlers_stay():
    """A handler that a test leaves behind would run in other tests and in the processes that they fork."""
    # That of SIGCHLD stays in a process that had a data loader of PyTorch.
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    left = []
    for number, handler in zip(numbers, before, strict=True):
        if signal.getsignal(number) is not handler:
            left.append(f"{number.name}: {signal.getsignal(number)}")
            signal.signal(number, handler)
    assert not left, f"the test left signal handlers behind: {left}"


@pytest.fixture
def until():
    """Waits until a condition is true, at most `WATCHDOG` seconds: `until(lambda: ...)`."""

    def until(true):
        deadline = time.monotonic() + WATCHDOG
        while not true():
            assert time.monotonic() < deadline, f"not within {WATCHDOG:g} s"
            threading.Event().wait(0.001)

    return until
