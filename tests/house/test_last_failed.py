"""The tests that CI runs again are all that failed, also those of a group in one worker."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FAILING = (
    "import pytest\n@pytest.mark.xdist_group('a group')\ndef test_{name}():\n    assert False\ndef test_other(): pass\n"
)


def ran(folder, *options):
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "--dist", "loadgroup", "-rfp", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTEST_ADDOPTS", None)
    environment = {key: value for key, value in environment.items() if not key.startswith("PYTEST_XDIST")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    return done.stdout


def test_tests_of_a_group_that_failed_are_run_again_next_to_others(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_sessionstart\n")
    (tmp_path / "test_alone.py").write_text("def test_alone():\n    assert False\ndef test_other(): pass\n")
    (tmp_path / "test_grouped.py").write_text(FAILING.format(name="grouped"))
    assert "2 failed, 2 passed" in ran(tmp_path)
    again = ran(tmp_path, "--last-failed")
    assert "2 failed" in again, again
    assert "passed" not in again, again
