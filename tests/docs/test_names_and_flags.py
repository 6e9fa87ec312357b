"""The table of names in Python and in the shell has names and flags that exist."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import re
from pathlib import Path
from typing import Any

import pytest

import reverie

typer = pytest.importorskip("typer")
pytest.importorskip("torch")

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"


def rows() -> list[list[str]]:
    section = (GUIDES / "run-a-server.md").read_text().partition("### Names in Python and in the shell")[2]
    table = section.partition("\n## ")[0]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| `")][
        1:
    ]


def options(command: str) -> set[str]:
    import typer.main

    from reverie.cli.app import app

    group: Any = typer.main.get_command(app)
    return {name for parameter in group.commands[command].params for name in parameter.opts}


def test_the_names_are_arguments_and_the_flags_are_options() -> None:
    from reverie.agents.run_settings import RunSettings

    arguments = {kind: set(inspect.signature(kind).parameters) for kind in (reverie.Server, reverie.Journal)}
    settings = {field.name for field in dataclasses.fields(RunSettings)}
    found = rows()
    assert len(found) > 10
    for name, serve, train in found:
        outer, inner = re.fullmatch(r"`(?:(Journal)\()?(\w+)=.*`", name).groups()  # type: ignore[union-attr]
        assert inner in arguments[reverie.Journal if outer else reverie.Server]
        assert set(re.findall(r"`(--[a-z-]+)`", serve)) <= options("serve")
        assert set(re.findall(r"`(--[a-z-]+)`", train)) <= options("train")
        assert set(re.findall(r"`(\w+)`", train)) <= settings


def test_the_limit_of_shards_is_that_of_the_code() -> None:
    from reverie.sharding import MAX_SHARDS

    page = (GUIDES / "shards.md").read_text()
    assert f"at most {MAX_SHARDS};" in page
    assert f"from 0 to {MAX_SHARDS - 1}." in page


def test_each_tutorial_names_the_next_one() -> None:
    folder = GUIDES.parent / "tutorials"
    order = re.findall(r"^\d\. \[.*?\]\((\S+?)\)", (folder / "README.md").read_text(), re.MULTILINE)
    assert len(order) == 8
    paths = [(folder / page).resolve() for page in order]
    for page, following in itertools.pairwise(paths):
        last = page.read_text().partition("\nNext: ")[2]
        assert following in {(page.parent / link).resolve() for link in re.findall(r"\]\(([^)#]+)", last)}, page.name
