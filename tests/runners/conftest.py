"""What tests of runners share."""

import pytest


@pytest.fixture(autouse=True)
def memory_enough(monkeypatch):
    """What else runs on the machine is no matter of these tests: a plan asks what is free at its moment."""
    memory = pytest.importorskip("reverie.runners.planning.memory")
    monkeypatch.setattr(memory, "available_memory", lambda: 2**40)
