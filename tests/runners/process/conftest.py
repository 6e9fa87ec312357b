"""Runs in this folder leave nothing behind, and their roles have time to end."""

import multiprocessing
import os
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def roles_may_take_their_time_to_end(monkeypatch):
    """Roles may also send their last figures, which a role that is killed does not."""
    monkeypatch.setattr("reverie.runners.supervision.supervisor.END_SECONDS", 100.0)


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    from process_runs import WATCHDOG, left_by

    yield
    # A run that ends before the fork server has begun leaves the thread that begins it: it forks once, and would meet
    # what the next test replaces.
    for thread in threading.enumerate():
        if thread.name == "fork server":
            thread.join(WATCHDOG)
            assert not thread.is_alive(), f"the fork server has not begun within {WATCHDOG:g} s"
    assert [one for one in multiprocessing.active_children() if one.name.startswith("reverie")] == []
    assert left_by(os.getpid()) == []
