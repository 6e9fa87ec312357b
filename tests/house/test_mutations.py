"""The runner of prepared mutations, on a small tree; and that every prepared one still applies to this one."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUN = ROOT / "tools" / "mutations" / "run.py"

TREE = {
    "sums.py": """
def total(numbers):
    return sum(numbers)

def until(n):
    while n > 0:
        n -= 1
    return n
""",
    "test_sums.py": """
import sums

def test_total():
    assert sums.total([1, 2]) == 3

def test_nothing():
    assert sums.total([]) == 0

def test_until():
    assert sums.until(3) == 0
""",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with a module and its tests."""
    folder = tmp_path / "tree"
    folder.mkdir()
    for name, text in TREE.items():
        (folder / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return folder


def mutation(find: str, replace: str, tests: str) -> str:
    lines = {"file": "sums.py", "find": find, "replace": replace, "tests": tests, "why": "sums are wrong"}
    return "[[mutation]]\n" + "".join(f"{name} = {value!r}\n" for name, value in lines.items())


def run(tree: Path, *mutations: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    listed = tree.parent / "list.toml"
    listed.write_text("\n".join(mutations))
    command = [sys.executable, str(RUN), str(listed), "--tree", str(tree), *options]
    # The small tree needs nothing that is installed for ours.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


NOTICED = mutation("return sum(numbers)", "return 0", "test_sums.py::test_total")
SURVIVOR = mutation("return sum(numbers)", "return 0", "test_sums.py::test_nothing")
ABSENT = mutation("return max(numbers)", "return 0", "test_sums.py::test_total")
TWICE = mutation("return ", "yield ", "test_sums.py::test_total")


@pytest.mark.long
def test_a_mutation_that_no_test_notices_is_reported_with_what_it_breaks(tree: Path) -> None:
    done = run(tree, NOTICED, SURVIVOR)
    assert done.returncode == 1, done.stderr
    assert "survived: sums.py: 'return sum(numbers)' -> 'return 0': sums are wrong" in done.stdout
    assert "==> 1 of 2 mutations noticed (1 noticed, 1 survived)" in done.stdout


@pytest.mark.long
def test_if_all_mutations_are_noticed_the_score_is_100_and_the_tree_is_unchanged(tree: Path) -> None:
    done = run(tree, NOTICED)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "==> 1 of 1 mutations noticed (1 noticed)" in done.stdout
    for folder in (tree, tree / "target" / "mutants" / "tree"):
        assert (folder / "sums.py").read_text() == TREE["sums.py"]


@pytest.mark.long
def test_a_second_run_over_the_same_tree_is_refused(tree: Path) -> None:
    lock = tree / "target" / "mutants" / "lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = run(tree, NOTICED)
    assert done.returncode == 2
    assert f"another run has {lock}" in done.stderr
    assert not (lock.parent / "tree").exists()


@pytest.mark.long
def test_several_mutations_may_each_name_tests_by_their_words(tree: Path) -> None:
    words = [
        mutation("sum(numbers)", "7", "test_sums.py -k total"),
        mutation("n -= 1", "n -= 2", "test_sums.py -k until"),
    ]
    done = run(tree, *words)
    assert "no test ran" not in done.stdout + done.stderr
    assert "of 2" in done.stdout, done.stdout


@pytest.mark.long
def test_text_that_is_not_there_or_there_twice_does_not_apply(tree: Path) -> None:
    for options in ((), ("--check",)):
        done = run(tree, NOTICED, ABSENT, TWICE, options=options)
        assert done.returncode == 1, done.stderr
        assert done.stdout.count("\ndoes not apply: sums.py") + done.stdout.startswith("does not apply") == 2
        assert "1 of 3 mutations" in done.stdout


@pytest.mark.long
def test_tests_that_are_not_there_or_fail_without_any_mutation_tell_nothing(tree: Path) -> None:
    done = run(tree, mutation("return sum(numbers)", "return 0", "test_sums.py::test_elsewhere"))
    assert done.returncode == 1
    assert "without any mutation the tests test_sums.py::test_elsewhere do not pass: no test ran" in done.stderr
    (tree / "test_sums.py").write_text("def test_total():\n    assert False\n")
    done = run(tree, NOTICED)
    assert done.returncode == 1
    assert "do not pass: noticed" in done.stderr


@pytest.mark.long
def test_a_mutation_that_never_ends_is_ended_and_counts_as_noticed(tree: Path) -> None:
    endless = mutation("n -= 1", "pass", "test_sums.py::test_until")
    done = run(tree, endless, options=("--seconds", "1"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "==> 1 of 1 mutations noticed (1 timed out)" in done.stdout


@pytest.mark.parametrize(
    "text", ["", "[[mutation]]\nfile = 'a.py'\n", "mutation = 3", NOTICED.replace("return 0", "return sum(numbers)")]
)
def test_an_invalid_list_of_mutations_is_refused_with_its_name(tree: Path, text: str) -> None:
    done = run(tree, text)
    assert done.returncode == 2
    assert "list.toml" in done.stderr


def test_every_prepared_mutation_applies_to_the_tree() -> None:
    """One that does not is of code that has changed: its text is to follow, or it is to go."""
    done = subprocess.run([sys.executable, str(RUN), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def names_of_tests(mutation: dict[str, Any], arguments: list[str]) -> str:
    """The names among which the words of a mutation choose: functions in its crate, or tests and strings in its files.

    Strings, since they are the names of parameters.
    """
    if mutation["file"].endswith(".rs"):
        files = (ROOT / "crates" / mutation["file"].split("/")[1]).rglob("*.rs")
        return "\n".join(f"{file}\n" + "\n".join(re.findall(r"fn (\w+)", file.read_text())) for file in files)
    named = [ROOT / one for one in arguments if one.startswith("tests/")]
    files = [file for one in named for file in ([one] if one.is_file() else one.rglob("test_*.py"))]
    files += {folder / "conftest.py" for file in files for folder in file.parents if (folder / "conftest.py").is_file()}
    return "\n".join(name for file in files for name in re.findall(r"(?:def |class |\")([\w-]+)", file.read_text()))


@pytest.mark.parametrize("path", sorted(RUN.parent.glob("*.toml")), ids=lambda path: path.stem)
def test_the_words_of_every_prepared_mutation_are_in_the_name_of_a_test(path: Path) -> None:
    """A test that is renamed would otherwise leave a mutation without one, which only a run of all would report."""
    lost = []
    for mutation in tomllib.loads(path.read_text())["mutation"]:
        tests = mutation["tests"]
        arguments = shlex.split(tests) if isinstance(tests, str) else tests
        before = "--" if mutation["file"].endswith(".rs") else "-k"
        given = arguments[arguments.index(before) + 1 :] if before in arguments else []
        words = [one for one in re.findall(r"[\w:-]+", " ".join(given)) if one not in ("and", "or", "not", "exact")]
        names = names_of_tests(mutation, arguments)
        lost += [(mutation["why"], word) for word in words if word.rpartition(":")[2] not in names]
    assert lost == []
