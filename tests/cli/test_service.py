"""`reverie serve` as a service: what it reports to a service manager, and its log as JSON."""

import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from datetime import datetime
from unittest.mock import Mock

import pytest

pytest.importorskip("typer")

from reverie.cli import serve
from reverie.cli.log_lines import JsonFormatter
from reverie.cli.service_manager import ServiceManager

COMMAND = [sys.executable, "-c", "import reverie.cli; reverie.cli.main()", "serve"]
#: A wait that ends only where something is broken, in seconds.
PATIENT = 200.0


class Manager:
    """The end of a service manager: a datagram socket at an address."""

    def __init__(self, address):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.settimeout(PATIENT)

    def receive(self):
        return self.socket.recv(4096).decode()


@pytest.fixture
def manager(tmp_path):
    manager = Manager(str(tmp_path / "notify"))
    with manager.socket:
        yield manager


@pytest.mark.long
def test_a_service_manager_is_notified_of_the_start_the_watchdog_and_the_stop(manager, tmp_path):
    environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "300000"}
    process = subprocess.Popen(
        [*COMMAND, "--table", "t"], env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            serving = process.stdout.readline()
            address = re.search(r"on (\S+);", serving)[1]
            assert manager.receive() == f"READY=1\nSTATUS=serving t on {address}"
            assert [manager.receive() for _ in range(3)] == ["WATCHDOG=1"] * 3
            process.send_signal(signal.SIGTERM)
            while (last := manager.receive()) == "WATCHDOG=1":
                pass
            assert last == "STOPPING=1"
            assert process.wait(PATIENT) == 0
        finally:
            process.kill()


def test_an_abstract_address_is_one_with_a_null_byte():
    name = f"reverie-test-{os.getpid()}"
    manager = Manager(f"\0{name}")
    with manager.socket:
        ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).stopping()
        assert manager.receive() == "STOPPING=1"


@pytest.mark.parametrize(
    "environment",
    [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "5000000", "WATCHDOG_PID": "1"}],
)
def test_without_a_watchdog_of_its_own_a_service_reports_nothing_more(manager, tmp_path, environment):
    service = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "notify"), **environment})
    assert service.watchdog_seconds is None
    assert not service.is_due
    service.alive()
    service.ready("here")
    assert manager.receive() == "READY=1\nSTATUS=here"


def test_a_watchdog_is_due_three_times_within_its_time(manager, tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("reverie.cli.service_manager.time.monotonic", lambda: now[0])
    service = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "9000000"})
    assert service.watchdog_seconds == 9.0
    due = []
    for now[0] in range(100, 112):
        if service.is_due:
            due.append(now[0])
            service.alive()
    assert due == [100, 103, 106, 109]


def test_a_service_without_a_manager_is_never_due():
    assert not ServiceManager({"WATCHDOG_USEC": "1"}).is_due


def test_a_manager_that_is_gone_is_reported_once(tmp_path, caplog):
    service = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "nowhere")})
    service.ready("here")
    service.stopping()
    (line,) = caplog.messages
    assert "nowhere cannot be notified" in line


def test_a_server_whose_tables_do_not_answer_is_not_reported_as_alive():
    def answer():
        order.append("asked")
        if len(order) > 3:
            raise RuntimeError("a lock is never released")

    order, held = [], threading.Lock()
    held.acquire()
    server, manager = Mock(), Mock(watchdog_seconds=0.006, is_due=True)
    server.client.return_value.info.side_effect = answer
    manager.alive.side_effect = lambda: order.append("alive")
    with pytest.raises(RuntimeError, match="never released"):
        serve._run(server, held, manager)
    assert order == ["asked", "alive", "asked", "alive", "asked"]


def lines_of(text):
    """The objects of a log; each has exactly the names that the guide lists."""
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        assert list(line)[:5] == ["time", "level", "logger", "message", "fields"]
        assert set(line) <= {"time", "level", "logger", "message", "fields", "exception"}
        assert datetime.fromisoformat(line["time"]).tzinfo is not None
    return lines


@pytest.mark.long
def test_each_line_of_a_servers_log_is_a_json_object(tmp_path):
    (tmp_path / "secret").write_text("of-the-test")
    arguments = ["--log-format", "json", "--json", "--checkpoints", "kept", "--host", "0.0.0.0", "--insecure",
                 "--token-file", "secret", "--http", "0.0.0.0:0"]  # fmt: skip
    process = subprocess.Popen(
        [*COMMAND, *arguments], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            hello = json.loads(process.stdout.readline())
            process.send_signal(signal.SIGTERM)
            lines = lines_of(process.stderr.read())
            assert process.wait(PATIENT) == 0
        finally:
            process.kill()
    (warned,) = [line for line in lines if line["message"].startswith("http without TLS")]
    assert warned["message"].endswith("can read the token and all figures"), "the fields are not in the text"
    assert (warned["level"], warned["logger"]) == ("warning", "reverie_net::http::server")
    assert f":{hello['page'].rstrip('/').rpartition(':')[2]}" in warned["fields"]["address"]
    assert [line["message"] for line in lines][-2] == "stopping"
    assert re.fullmatch(r"saved as .*/kept/.*\.checkpoint", lines[-1]["message"])
    assert {line["logger"] for line in lines[-2:]} == {"reverie"}


@pytest.mark.long
def test_the_address_is_a_line_of_a_log_in_json_and_nothing_is_on_stdout(manager, tmp_path):
    arguments = ["--log-format", "json", "--table", "t", "--http", "127.0.0.1:0"]
    environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        try:
            assert manager.receive().startswith("READY=1")
            process.send_signal(signal.SIGTERM)
            assert process.stdout.read() == ""
            lines = lines_of(process.stderr.read())
            assert process.wait(PATIENT) == 0
        finally:
            process.kill()
    (serving,) = [one for one in lines if one["message"].startswith("serving t on ")]
    found = re.fullmatch(r'serving t on (127\.0\.0\.1:(\d+)); client = reverie\.Client\("\1"\)', serving["message"])
    assert serving["fields"] == {"address": found[1], "port": found[2], "tables": "t"}
    (page,) = [one["fields"]["page"] for one in lines if one["message"].startswith("page and metrics: ")]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", page)


@pytest.mark.long
def test_a_server_that_is_refused_reports_the_reason_in_json(tmp_path):
    run = subprocess.run(
        [*COMMAND, "--log-format", "json", "--host", "0.0.0.0"],
        capture_output=True, text=True, timeout=PATIENT, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert run.returncode == 2
    (line,) = lines_of(run.stderr)
    assert line["level"] == "error"
    assert "name a token with --token-file" in line["message"]


def test_an_exception_is_a_field_of_its_line():
    try:
        raise ValueError("a\nb")
    except ValueError:
        record = logging.LogRecord("reverie", logging.ERROR, "", 1, "it failed: %s", ("x",), sys.exc_info())
    (line,) = lines_of(JsonFormatter().format(record))
    assert line["message"] == "it failed: x"
    assert line["exception"].endswith("ValueError: a\nb")


def test_warnings_and_exceptions_that_end_a_process_or_a_thread_are_lines(tmp_path):
    script = (
        "import threading, warnings\n"
        "from reverie.cli.log_lines import LogFormat, write_log_lines\n"
        "write_log_lines(LogFormat.json)\n"
        "warnings.warn('of Python')\n"
        "thread = threading.Thread(target=lambda: 1 / 0)\n"
        "thread.start(); thread.join()\n"
        "raise KeyError('the end')\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENT, check=False, cwd=tmp_path
    )
    warned, thread, end = lines_of(run.stderr)
    assert "of Python" in warned["message"]
    assert "ZeroDivisionError" in thread["exception"]
    assert (end["level"], end["message"]) == ("critical", "'the end'")
    assert run.returncode == 1
