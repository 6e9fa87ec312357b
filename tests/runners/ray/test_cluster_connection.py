"""A run's connection to a Ray cluster, and the error if Ray does not start."""

import os
import signal
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("ray")

import ray
from ray._private import services, utils

from reverie.runners.ray import cluster_connection


@pytest.fixture
def asked(monkeypatch):
    """A Ray that is there or raises, in the order of `outcomes`; what it was asked for, and in which environment."""
    calls, outcomes = [], []

    def init(**options):
        calls.append((options["address"], {name: os.environ.get(name) for name in cluster_connection.PATIENCE}))
        if outcomes and (outcome := outcomes.pop(0)) is not None:
            raise outcome

    for name in (*cluster_connection.PATIENCE, "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: calls.append("shutdown"))
    return calls, outcomes


SESSION = "import os; print(os.getsid(0) == os.getpid())"


def replaces_the_handler(**options):
    signal.signal(signal.SIGTERM, lambda number, frame: None)


def test_a_ray_started_here_has_longer_timeouts_and_keeps_the_users_settings(asked, monkeypatch):
    calls, _ = asked
    mine, *others = cluster_connection.PATIENCE
    monkeypatch.setenv(mine, "7")
    with cluster_connection.connected(None):
        assert [name for name in others if name in os.environ] == []
    assert calls == [("local", {**cluster_connection.PATIENCE, mine: "7"}), "shutdown"]
    assert os.environ[mine] == "7"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Ray ends its processes by their group")
def test_the_processes_of_a_ray_started_here_are_in_new_sessions_and_others_are_not(asked, monkeypatch):
    """A signal to the run's process group, of a scheduler or a terminal that ends, therefore reaches the run alone."""
    seen = []

    def init(**options):
        process = services.ConsolePopen([sys.executable, "-c", SESSION], stdout=subprocess.PIPE, text=True)
        seen.append(process.communicate()[0].strip())

    monkeypatch.setattr(ray, "init", init)
    for address in (None, "auto"):
        with cluster_connection.connected(address):
            pass
    assert seen == ["True", "False"]


def test_a_ray_without_the_names_that_are_replaced_starts_as_it_is(asked, monkeypatch):
    calls, _ = asked
    monkeypatch.delattr(services, "ConsolePopen")
    monkeypatch.delattr(utils, "set_sigterm_handler")
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        with cluster_connection.connected(None):
            assert not hasattr(services, "ConsolePopen")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert [what if what == "shutdown" else what[0] for what in calls] == ["local", "shutdown"]


def test_the_sigterm_handler_stays_while_connected_to_a_cluster(asked, monkeypatch):
    """Ray replaces it with a handler that ends the process."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(ray, "init", replaces_the_handler)
    saves = lambda number, frame: None  # noqa: E731
    signal.signal(signal.SIGTERM, saves)
    try:
        with cluster_connection.connected(None):
            assert signal.getsignal(signal.SIGTERM) is saves
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_sigterm_while_ray_starts_reaches_the_runs_handler(asked, monkeypatch):
    """With Ray's handler the command would end without a message, and with an exit code that is not its own."""
    received = []

    def init(**options):
        utils.set_sigterm_handler(lambda number, frame: received.append("Ray"))
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(ray, "init", init)
    set_by_ray, before = utils.set_sigterm_handler, signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda number, frame: received.append("run"))
    try:
        with cluster_connection.connected(None):
            assert utils.set_sigterm_handler is set_by_ray
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == ["run"]


def test_the_default_of_sigterm_is_restored_after_the_connection(asked, monkeypatch):
    monkeypatch.setattr(ray, "init", replaces_the_handler)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with cluster_connection.connected(None):
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize(("address", "variable"), [("auto", None), (None, "10.0.0.7:6379")])
def test_a_running_cluster_is_joined_with_one_attempt(asked, monkeypatch, address, variable):
    calls, outcomes = asked
    if variable is not None:
        monkeypatch.setenv("RAY_ADDRESS", variable)
    outcomes.append(ConnectionError("no cluster there"))
    with pytest.raises(ConnectionError, match="no cluster there"), cluster_connection.connected(address):
        raise AssertionError("it is not there")
    assert calls == [(address, dict.fromkeys(cluster_connection.PATIENCE))]


def test_a_cluster_that_this_process_is_part_of_is_left_as_it_is(asked, monkeypatch):
    calls, _ = asked
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    with cluster_connection.connected(None):
        pass
    assert calls == []


def test_a_ray_that_does_not_start_is_reported_with_its_limits_and_what_to_do(asked):
    calls, outcomes = asked
    outcomes.append(Exception("the current node timed out"))
    what_to_do = r"timed out\): a node must start within 30 s .*--runner process.*--address auto"
    with pytest.raises(ConnectionError, match=what_to_do), cluster_connection.connected(None):
        raise AssertionError("it is not there")
    assert [what if what == "shutdown" else what[0] for what in calls] == ["local", "shutdown"]
    assert not any(name in os.environ for name in cluster_connection.PATIENCE)
