"""Blocks of TOML and YAML are read by what reads such files, and the extras that are named exist."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import reverie

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("python/**/*.md")])
BLOCK = re.compile(r"^```(toml|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(
        language,
        block,
        id=f"{page.relative_to(ROOT)}:{page.read_text()[: page.read_text().index(block)].count(chr(10)) + 1}",
    )
    for page in PAGES
    for language, block in BLOCK.findall(page.read_text())
]
EXTRA = re.compile(r"reverie\[([a-z0-9, -]+)\]")


def preset_with(block: str, folder: Path) -> Any:
    """The preset of DQN for CartPole with one more table."""
    agents = pytest.importorskip("reverie.agents")
    dqn = agents.find("dqn")
    (folder / "own.toml").write_text(f"{(dqn.presets / 'CartPole-v1.toml').read_text()}\n{block}")
    return dqn.load_preset("CartPole-v1", folder / "own.toml")


def tables(block: str, folder: Path) -> None:
    from reverie.cli import table_files

    (folder / "tables.toml").write_text(block)
    found = table_files.load(str(folder / "tables.toml"))
    assert [table.name for table in found] == re.findall(r'^name = "(.*)"', block, re.MULTILINE)
    reverie.Server(found, listen=False)


def environment(block: str, folder: Path) -> None:
    given, made = tomllib.loads(block)["environment"], preset_with(block, folder).environment
    assert {name: getattr(made, name) for name in given} == {**given, "wrappers": tuple(given["wrappers"])}


def log(block: str, folder: Path) -> None:
    given, made = tomllib.loads(block)["log"], preset_with(block, folder).log
    assert {name: list(one) if isinstance(one := getattr(made, name), tuple) else one for name in given} == given


def space(block: str, folder: Path) -> None:
    pytest.importorskip("torch")
    from reverie.cli import search_space

    (folder / "space.toml").write_text(block)
    assert set(search_space.read(folder / "space.toml", [], preset_with("", folder))) == set(tomllib.loads(block))


def entry_points(block: str, folder: Path) -> None:
    (groups,) = [table["entry-points"] for table in tomllib.loads(block).values()]
    assert list(groups) == ["reverie.agents"]


def scrapes(block: str, folder: Path) -> None:
    yaml = pytest.importorskip("yaml")
    (job,) = yaml.safe_load(block)["scrape_configs"]
    assert job["static_configs"][0]["targets"]
    if shutil.which("promtool"):
        (folder / "prometheus.yml").write_text(block)
        subprocess.run(["promtool", "check", "config", folder / "prometheus.yml"], check=True, capture_output=True)


#: Functions that read a block, by its language and its beginning.
READERS: dict[tuple[str, str], Callable[[str, Path], None]] = {
    ("toml", "[[tables]]"): tables,
    ("toml", "[environment]"): environment,
    ("toml", "[log]"): log,
    ("toml", "[project.entry-points"): entry_points,
    ("toml", "n_step = "): space,
    ("yaml", "scrape_configs:"): scrapes,
}


@pytest.mark.parametrize(("language", "block"), BLOCKS)
def test_a_block_of_settings_is_read_by_what_reads_such_files(language: str, block: str, tmp_path: Path) -> None:
    (read,) = [read for (of, head), read in READERS.items() if of == language and block.startswith(head)]
    read(block, tmp_path)


def test_every_extra_that_a_page_or_a_message_names_exists() -> None:
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    places = [*PAGES, *ROOT.glob("examples/**/*.py"), *ROOT.glob("python/**/*.py")]
    named = {
        name.strip() for place in places for found in EXTRA.findall(place.read_text()) for name in found.split(",")
    }
    assert {"demo", "torch"} <= named
    assert named - extras == set()
    assert extras - named == set(), "an extra that no page names"
