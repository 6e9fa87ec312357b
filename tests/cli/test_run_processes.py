"""The processes of a sweep's and a search's runs."""

import gc
import os
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("typer")

from reverie.cli import run_processes
from reverie.cli.common import EXIT_INTERRUPTED
from reverie.cli.run_processes import RunProcesses
from reverie.cli.train_request import TrainRequest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts open files in /proc")

RUN = """
import sys
from multiprocessing.connection import Connection
with Connection(int(sys.argv[1])) as connection:
    connection.recv_bytes()
    print("ran")
    connection.send({"seed": 3})
sys.exit(4)
"""


@pytest.fixture
def runs(monkeypatch):
    monkeypatch.setattr(run_processes, "COMMAND", (sys.executable, "-c", RUN))
    gc.disable()  # what is released is not left to it
    yield RunProcesses()
    gc.enable()


def open_files():
    return sorted(os.listdir("/proc/self/fd"))


def request():
    return TrainRequest(agent="dqn", env="CartPole-v1", seed=3)


def test_a_run_that_has_ended_holds_no_file_and_no_process(runs, capsys):
    before = open_files()
    assert runs.train(request()) == (4, {"seed": 3})
    assert "ran" in capsys.readouterr().err
    assert open_files() == before
    assert not runs._processes
    assert runs.train(request()) == (4, {"seed": 3}), "a name may come again"


def test_a_run_that_may_not_begin_holds_no_file(runs):
    runs.stop()
    before = open_files()
    assert runs.train(request()) == (EXIT_INTERRUPTED, None)
    assert open_files() == before
