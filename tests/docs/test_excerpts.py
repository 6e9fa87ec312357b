"""Blocks that no page runs: commands name options that exist, and parts of programs work with stand-ins."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reverie

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ROOT / "docs" / "guides"
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md"), *ROOT.glob("python/**/*.md")]
)
#: The pages with blocks of `py`, parts of programs. tests/integrations has those of RLlib and tianshou.
PARTS = {"secure-a-server.md", "robots.md", "use-with-rllib.md", "use-with-tianshou.md"}


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```$", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def commands(page: Path) -> Iterator[list[str]]:
    """The words behind `reverie` of each command in the page's shell blocks."""
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            for end, part in itertools.groupby(words, lambda word: word in {"|", "&&", "&", ";"}):
                named = list(itertools.dropwhile(lambda word: word == "sudo" or "=" in word, part))
                if not end and named[:1] == ["reverie"]:
                    yield named[1:]


def test_the_pages_with_parts_of_programs_are_those_that_tests_run() -> None:
    assert {page.name for page in PAGES if blocks(page, "py")} == PARTS


def test_every_command_and_option_in_a_shell_block_exists() -> None:
    pytest.importorskip("typer")
    import typer.main

    from reverie.cli.app import app

    root: Any = typer.main.get_command(app)
    found = [(page.name, words) for page in PAGES for words in commands(page)]
    assert len(found) > 70
    assert [(page, words) for page, words in found if not exists(root, words)] == []
    assert not exists(root, ["serve", "--prot", "8000"])
    assert not exists(root, ["checkpoint", "shwo", "folder"])


def exists(command: Any, words: list[str]) -> bool:
    """Whether a command has what its words name."""
    inner: dict[str, Any] = getattr(command, "commands", {})
    if words and words[0] in inner:
        return exists(inner[words[0]], words[1:])
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help"}
    named = {word.partition("=")[0] for word in words if word.startswith("--")}
    return named <= known and not (inner and words and not words[0].startswith("--"))


@pytest.fixture
def certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that the commands of the guide write, in the working folder."""
    monkeypatch.chdir(tmp_path)
    (script,) = [block for block in blocks(GUIDES / "secure-a-server.md", "sh") if "openssl req" in block]
    subprocess.run(["bash", "-euc", script], check=True, capture_output=True)
    (tmp_path / "token").write_text("a token of at least thirty-two characters")


def here(part: str) -> str:
    """A part of a program for this machine alone."""
    changes = {'host="0.0.0.0", port=8000': "port=0", 'host="0.0.0.0",\n    port=8000': "port=0"}
    changes |= {'"replay.example:8000"': 'server.address, transport="grpc"', 'device="cuda"': 'device="cpu"'}
    for old, new in changes.items():
        part = part.replace(old, new)
    assert not re.search(r"8000|example|cuda", part)
    return part


@pytest.mark.usefixtures("certificates")
def test_the_guide_of_securing_a_server_makes_certificates_that_its_server_and_client_use() -> None:
    (part,) = blocks(GUIDES / "secure-a-server.md", "py")
    tables = [reverie.Table.queue("q", 5)]
    names: dict[str, Any] = {"reverie": reverie, "tables": tables, "token": reverie.Token.from_file("token")}
    exec(here(part), names)
    with names["server"], names["client"] as client:
        client.insert({"x": 1}, {"q": 1.0})
        assert client.info().tables["q"].current_size == 1


class EnoughError(Exception):
    """Ends the loop of a learner."""


@pytest.mark.usefixtures("certificates")
def test_the_learner_of_the_robots_guide_draws_from_both_tables_and_publishes() -> None:
    torch = pytest.importorskip("torch")
    learner, longer_outage = blocks(GUIDES / "robots.md", "py")
    start, loop = here(learner).split("publisher =")
    loop = loop.replace("...  # an update of your algorithm", "update(batch)")
    drawn: list[tuple[int, ...]] = []

    def update(batch: reverie.Batch) -> None:
        if len(drawn) == 2:
            raise EnoughError
        drawn.append(tuple(batch.data["x"].shape))

    names: dict[str, Any] = {"reverie": reverie, "update": update, "actor": torch.nn.Linear(2, 1)}
    names |= {"token": reverie.Token.from_file("token"), "tls": reverie.ClientTLS(ca="ca.pem")}
    exec(start, names)
    exec(here(longer_outage).replace("client =", "robot ="), names)
    with names["server"], names["client"], names["robot"] as robot:
        for table in ("replay", "interventions"):
            robot.insert_batch(table, {"x": np.ones((3, 2), np.float32)})
        with pytest.raises(EnoughError):
            exec(f"publisher ={loop}", names)
        assert drawn == [(256, 2)] * 2
        assert set(reverie.parameters.TableChannel(robot).subscriber().get(timeout=60.0).arrays) == {"weight", "bias"}
