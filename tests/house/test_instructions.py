"""The comparison of instruction counts, on counts that a stand-in for valgrind prints."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = {"rustc": "rustc 1.0", "machine": "x86_64"}


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, with a program to count that does nothing and a `valgrind` that counts 1,000 instructions."""
    spec = importlib.util.spec_from_file_location("instructions", ROOT / "tools" / "instructions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    valgrind = tmp_path / "valgrind"
    valgrind.write_text("#!/bin/sh\necho 10\necho 'Collected : 1000' >&2\n")
    valgrind.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(module, "COUNTS", tmp_path / "counts.json")
    monkeypatch.setattr(module, "environment", lambda: HERE)
    monkeypatch.setattr(module, "build", lambda: tmp_path / "program")
    return module


def keep(tool: ModuleType, **per_item: float) -> None:
    tool.COUNTS.write_text(json.dumps({**HERE, "per_item": per_item}))


@pytest.mark.parametrize(("before", "status"), [(98.0, 0), (97.0, 1), (200.0, 0)])
def test_a_work_that_needs_over_three_percent_more_instructions_fails_the_comparison(
    tool: ModuleType, capsys: pytest.CaptureFixture[str], before: float, status: int
) -> None:
    keep(tool, fill=before)
    assert tool.main(["fill"]) == status
    assert ("grown" in capsys.readouterr().out) == bool(status)


def test_new_counts_are_kept_if_requested_and_those_of_other_works_stay(tool: ModuleType) -> None:
    keep(tool, fill=5.0, draw=7.0)
    assert tool.main(["--write", "fill"]) == 0
    assert json.loads(tool.COUNTS.read_text()) == {**HERE, "per_item": {"fill": 100.0, "draw": 7.0}}


def test_counts_of_another_compiler_are_not_compared(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    tool.COUNTS.write_text(json.dumps({**HERE, "rustc": "rustc 0.9", "per_item": {"fill": 1.0}}))
    assert tool.main(["fill"]) == 0
    assert "not compared" in capsys.readouterr().out


def test_a_machine_without_valgrind_reports_that_nothing_is_compared(
    tool: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert tool.main(["fill"]) == 0
    assert "valgrind is missing" in capsys.readouterr().out


def test_a_program_that_fails_is_not_counted(tool: ModuleType, tmp_path: Path) -> None:
    keep(tool, fill=100.0)
    (tmp_path / "valgrind").write_text("#!/bin/sh\necho 'Collected : 1000' >&2\nexit 3\n")
    with pytest.raises(SystemExit, match="fill: valgrind failed"):
        tool.main(["fill"])


def test_the_file_has_a_count_of_every_work(tool: ModuleType) -> None:
    counts = json.loads((ROOT / "benchmarks" / "instructions.json").read_text())
    assert set(counts["per_item"]) == set(tool.WORKS)
    source = (ROOT / "benchmarks" / "instructions" / "src" / "main.rs").read_text()
    assert all(f'("{work}", Work::' in source for work in tool.WORKS)
