"""A row of a table of results links to the folder with its files, which has the name that `--rows` takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "docs" / "results.md", ROOT / "docs" / "replay-matters.md"]
LINK = re.compile(r"\]\(\.\./benchmarks/results/learn/([^)]+)\)")
NOT_RUN = ("not run yet", "preset")


@pytest.fixture
def rows(learn: Any) -> dict[str, Any]:
    found: dict[str, Any] = learn.rows.ROWS
    return found


def test_the_links_of_both_pages_name_each_row_that_has_results(rows: dict[str, Any]) -> None:
    linked = [name for page in PAGES for name in LINK.findall(page.read_text()) if not name.endswith(".png")]
    folders = [folder.name for folder in (ROOT / "benchmarks" / "results" / "learn").iterdir() if folder.is_dir()]
    assert sorted(set(linked)) == sorted(folders)
    assert set(linked) <= rows.keys()
    assert [name for name in linked if not list((ROOT / "benchmarks/results/learn" / name).glob("*.json"))] == []


def test_each_line_of_a_table_of_results_has_a_link_or_was_not_run() -> None:
    for page in PAGES:
        results = page.read_text().partition("## Origin of presets and targets")[0]
        lines = [line for line in results.splitlines() if re.match(r"\| (?!environment|row|agent|experience)", line)]
        assert len(lines) > 10
        assert [line for line in lines if not LINK.search(line) and not any(word in line for word in NOT_RUN)] == []


def test_the_page_names_a_row_that_exists_for_the_option(rows: dict[str, Any]) -> None:
    text = PAGES[0].read_text()
    (named,) = re.findall(r"benchmarks\.learn --rows ([a-z][a-z-]+) --seeds \d+", text)
    assert named in rows
    assert f"learn/{named})" in text
