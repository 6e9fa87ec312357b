"""The JSON output of commands matches the guide to running a server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reverie

pytest.importorskip("typer")
from typer.testing import CliRunner

from reverie.cli.app import app

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "run-a-server.md"
ROW = re.compile(r"^\| (`[^|]*) \| ([^|]*) \|", re.MULTILINE)
TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "object": dict, "null": type(None)}


def documented(of: str) -> dict[str, str]:
    """The names and types of a table of the page, by the head of its first column."""
    [rows] = re.findall(rf"^\| {of} \|.*?\n\n", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return {name: kind for names, kind in ROW.findall(rows) for name in re.findall(r"`(\w+)`", names)}


def misfits(reported: dict[str, Any], of: str) -> list[str]:
    """Names that only one side has, and values of another type than on the page."""
    wanted = documented(of)
    wrong = [name for name, kind in wanted.items() if name in reported and not is_one(reported[name], kind)]
    return sorted({*(reported.keys() ^ wanted.keys()), *wrong})


def is_one(value: object, kind: str) -> bool:
    kinds = kind.split(" or ")
    return any(isinstance(value, TYPES[k]) and (k == "boolean") >= isinstance(value, bool) for k in kinds)


@pytest.mark.parametrize("command", [["info", "--rate-seconds", "0.05"], ["top", "--count", "1", "--interval", "0.1"]])
@pytest.mark.parametrize("page", [False, True])
def test_the_objects_that_json_prints_have_the_names_and_types_of_the_guide(command: list[str], page: bool) -> None:
    table = reverie.Table("t", reverie.selectors.Uniform(), reverie.selectors.Fifo(), 10)
    with reverie.Server([table, reverie.Table.queue("q", 1)], http=0) as server:
        client = server.client()
        client.insert_batch("t", {"x": np.zeros((3, 2))})
        client.insert(1, {"q": 1.0})
        address = f"http://{server.http_address}/" if page else server.address
        done = CliRunner().invoke(app, [command[0], address, "--json", *command[1:]])
    assert done.exit_code == 0, done.output
    [line] = done.stdout.splitlines()
    reported = json.loads(line)
    assert misfits(reported, "of the server") == []
    assert [misfits(figures, "of a table") for figures in reported["tables"].values()] == [[], []]
    assert misfits({**reported["tables"]["t"], "size": None, "new": 1}, "of a table") == ["new", "size"]
