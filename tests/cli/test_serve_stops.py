"""How `reverie serve` ends: its exit code and its last line."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("typer")

import reverie

COMMAND = [sys.executable, "-c", "import reverie.cli; reverie.cli.main()", "serve", "--json", "--grace", "0"]


def test_more_signals_until_the_end_of_the_process_leave_the_exit_code_0():
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline()
        # Until its end: Python gives handlers back before that.
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0


def test_a_stop_that_cannot_write_the_end_of_the_journal_is_one_line_with_exit_code_1(start):
    resource = pytest.importorskip("resource")
    arguments = ("serve", "--json", "--grace", "0", "--journal", "kept")
    process = start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with reverie.Client(json.loads(process.stdout.readline())["address"]) as client:
        client.insert_batch("replay", {"x": np.zeros((3, 2))})
        # No file of the process can grow any more.
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, 0))
        client.insert_batch("replay", {"x": np.ones((3, 2))}, wait=False)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=200) == 1
    printed = process.stderr.read()
    assert "Traceback" not in printed
    last = printed.splitlines()[-1]
    assert last.startswith("reverie: cannot write"), printed
    assert "too large" in last, printed
