"""The page of the benchmarks has the last whole run of each suite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def last(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks import last

    return last


def test_the_page_of_the_benchmarks_has_the_last_whole_run_of_each_suite(last: Any) -> None:
    page = (ROOT / "benchmarks" / "README.md").read_text()
    reported = last.section(ROOT / "benchmarks" / "results")
    assert reported in page, "it differs: run python -m benchmarks.last"


def test_the_section_has_the_rows_with_a_target_of_the_newest_whole_run(last: Any, tmp_path: Path) -> None:
    asked, free = "| a | b | 1 | 2 | x3 | 1 to 4 | x2 | yes |", "| c | - | 1 | - | - | - | - | - |"
    for name, text in (
        ("2026-01-01-0000-network", "| 1 writer processes of reverie |"),
        ("2026-01-02-0304-network", f"{last.HEADER}\n{asked}\n{free}\n| 1 writer processes of reverie |"),
        ("2026-01-03-0000-network", "some rows"),
    ):
        (tmp_path / f"{name}.md").write_text(text + "\n")
    (tmp_path / "2026-01-02-0304-network-throughput.png").touch()
    reported = last.section(tmp_path)
    assert reported.startswith("**Network**, 2026-01-02 03:04: [all rows]")
    assert asked in reported
    assert free not in reported
    assert "2026-01-02-0304-network-throughput.png)" in reported
    page = tmp_path / "README.md"
    page.write_text("no section")
    with pytest.raises(ValueError, match="has 0 sections"):
        last.write(page, tmp_path)
