"""Fixtures that tests of runners share."""

from functools import partial

import pytest

from reverie import _memory


@pytest.fixture(scope="session")
def large_machine(tmp_path_factory):
    """The root of the file system of a machine with 1 TiB of free memory."""
    root = tmp_path_factory.mktemp("machine")
    (root / "proc").mkdir()
    (root / "proc/meminfo").write_text(f"MemAvailable: {2**30} kB\n")
    return root


@pytest.fixture(autouse=True)
def memory_enough(monkeypatch, large_machine):
    """Other work on the machine does not change these tests, although a plan reads the memory that is free."""
    monkeypatch.setattr(_memory, "available_memory", partial(_memory.available_memory, large_machine))


@pytest.fixture
def full_disk(monkeypatch):
    """Checkpoints of runs find no space."""

    def full(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("reverie.runners.checkpoints.checkpoint_files._write", full)
