"""Every `reverie train` command of a page passes a dry run, which makes all checks of a run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("typer")

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("python/**/*.md")])
BLOCK = re.compile(r"^```sh[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
ELSEWHERE = {
    "ALE/": "needs the package of Atari games",
    "MinAtar/": "needs the package minatar",
    "envpool:": "needs the package envpool",
    "my_module:": "an environment of the reader's own",
    "huber:": "an agent of the reader's own",
    "mine:": "an agent of the reader's own",
    "double-dqn": "an agent of a package of the reader's own",
    "dataset=": "reads a data set that the page's earlier commands write",
    "--init-from": "begins with a policy that the page's earlier commands train",
    "best.toml": "reads the preset that the page's search writes",
    "--address": "needs a cluster of Ray",
    "--log": "needs the trackers' packages",
    "--token-file": "reads a token and certificates of the reader's own",
    "srun": "needs a cluster of Slurm",
}
"""Parts of commands that need what is not everywhere, and the reasons why they are not run here."""


def commands_of(page: str) -> Iterator[list[str]]:
    """The words of each command that trains, after `reverie`."""
    for block in BLOCK.findall(page):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if "reverie" in words and words[words.index("reverie") :][1:2] == ["train"]:
                yield words


def is_elsewhere(command: list[str]) -> bool:
    return any(part in word for word in command for part in ELSEWHERE)


COMMANDS = sorted({tuple(words) for page in PAGES for words in commands_of(page.read_text())})


def test_the_parts_that_are_not_everywhere_are_those_of_commands() -> None:
    words = {word for command in COMMANDS for word in command}
    assert {part for part in ELSEWHERE if not any(part in word for word in words)} == set()


@pytest.mark.parametrize("command", [one for one in COMMANDS if not is_elsewhere([*one])], ids=" ".join)
def test_a_command_that_trains_passes_a_dry_run(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from reverie.cli.app import app

    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, [*command[1:], "--dry-run"])
    assert found.exit_code == 0, found.stderr


def test_a_command_is_read_over_its_lines_and_without_its_comment() -> None:
    page = "```sh\nreverie train dqn --env \\\n    CartPole-v1  # short\nreverie demo\n```\n"
    assert list(commands_of(page)) == [["reverie", "train", "dqn", "--env", "CartPole-v1"]]
