"""The folder of a run, and its removal with the run."""

import itertools
import os
import signal
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest

pytest.importorskip("torch")

from reverie.agents.core import Weights
from reverie.parameters import FileChannel
from reverie.runners.links import run_folder as folder_module
from reverie.runners.links.run_folder import RunFolder, remove
from reverie.runners.links.weights import WeightsChannel


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_module, "MEMORY", tmp_path)
    return tmp_path


KILLED = """
import os, signal, sys
from pathlib import Path
from reverie.runners.links import run_folder as folder
folder.MEMORY = Path(sys.argv[1])
folder.RunFolder()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.long
def test_the_folder_of_a_killed_run_is_removed_by_the_next_and_those_of_living_runs_are_kept(place):
    other = RunFolder()
    killed = subprocess.run([sys.executable, "-c", KILLED, str(place)], check=False)
    assert killed.returncode == -signal.SIGKILL
    of_no_lock = place / "reverie-run-1-beginning"
    of_no_lock.mkdir()
    assert len(list(place.iterdir())) == 3
    mine = RunFolder()
    assert set(place.iterdir()) == {other.path, of_no_lock, mine.path}
    other.close()
    mine.close()
    assert list(place.iterdir()) == [of_no_lock]
    assert mine.path.name.startswith(f"reverie-run-{os.getpid()}-")


def test_publishing_while_the_folder_is_removed_does_not_keep_the_folder(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    folder.mkdir()
    publisher = WeightsChannel(FileChannel(folder / "weights")).publisher(0)
    weights = (Weights(version, np.zeros(3, np.float32)) for version in itertools.count())
    publisher.publish(next(weights))
    rmdir = os.rmdir

    def just_before(*args, **options):
        with suppress(FileNotFoundError):
            publisher.publish(next(weights))
        rmdir(*args, **options)

    monkeypatch.setattr(os, "rmdir", just_before)
    for _ in range(2):  # by two roles, one after the other
        remove(folder)
    assert list(tmp_path.iterdir()) == []
