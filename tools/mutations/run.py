"""Makes prepared one-line mutations, one at a time, in a copy of the tree, and counts those that the tests notice.

usage: python tools/mutations/run.py [list.toml ...] [--only TEXT] [--check] [--seconds N] [--tree FOLDER]

A list holds tables `[[mutation]]` with `file`, `find` (text that is in the file exactly once), `replace`, `tests` (a
string or a list: for a Python file the arguments of pytest, for a Rust file those of `cargo nextest run` after the
crate, as `--test table -- words`) and `why` (the effect of the bug on users). Without a list: all lists next to this
script.

First the named tests run without any mutation: they must pass. Exits with 0 if every mutation is noticed or timed out,
with 1 if one survives, does not apply, does not build, or is run by no test, and with 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Watchdog for a build, and for all named tests without any mutation.
BUILD_SECONDS = 3600
# A mutation may make a test hang. The tests of one take seconds.
TEST_SECONDS = 240
# Outcomes of mutations that no test noticed, or that were not tried.
BAD = ("survived", "does not apply", "does not build", "no test ran")


class ListError(Exception):
    """A list of mutations that cannot be read."""


@dataclass(frozen=True)
class Mutation:
    """One bug, and the tests that must notice it."""

    file: str
    find: str
    replace: str
    tests: tuple[str, ...]
    why: str

    @property
    def is_rust(self) -> bool:
        """True if cargo runs the tests."""
        return self.file.endswith(".rs")

    @property
    def crate(self) -> str:
        """The Rust crate that the file belongs to."""
        return self.file.split("/")[1]

    def applies(self, tree: Path) -> bool:
        """True if the text is in the file exactly once."""
        path = tree / self.file
        return path.is_file() and path.read_text().count(self.find) == 1


def read(path: Path) -> list[Mutation]:
    """The mutations of a list."""
    try:
        tables = tomllib.loads(path.read_text())["mutation"]
    except (OSError, tomllib.TOMLDecodeError, KeyError) as error:
        raise ListError(f"{path}: {error}") from error
    if not isinstance(tables, list):
        raise ListError(f"{path}: it has no tables [[mutation]]")
    mutations = []
    for number, table in enumerate(tables, start=1):
        wrong = {"file", "find", "replace", "tests", "why"} ^ set(table)
        if wrong:
            raise ListError(f"{path}: mutation {number}: missing or unknown: {', '.join(sorted(wrong))}")
        tests = table["tests"]
        given = tuple(shlex.split(tests) if isinstance(tests, str) else tests)
        if table["find"] == table["replace"] or not given:
            raise ListError(f"{path}: mutation {number}: it changes nothing, or names no tests")
        mutations.append(Mutation(table["file"], table["find"], table["replace"], given, table["why"]))
    return mutations


class Tree:
    """A copy of the tree that may be changed, and the tests that run in it."""

    def __init__(self, source: Path, scratch: Path) -> None:
        self.source = source
        # Its own build folder: cargo names the crates of a copy as those of the tree, and would take theirs for fresh.
        self.path, self.build = scratch / "tree", scratch / "build"
        self._copy()

    def _copy(self) -> None:
        """Writes only files that differ, so that cargo rebuilds only those."""
        listed = subprocess.run(
            ["git", "ls-files", "-coz", "--exclude-standard"], cwd=self.source, capture_output=True, check=True
        )
        wanted = {Path(os.fsdecode(name)) for name in listed.stdout.split(b"\0") if name}
        wanted |= {path.relative_to(self.source) for path in self.source.glob("python/reverie/_native*.so")}
        wanted = {name for name in wanted if (self.source / name).is_file() and name.parts[0] != "target"}
        for old in [path for path in self.path.rglob("*") if path.is_file()]:
            if old.relative_to(self.path) not in wanted:
                old.unlink()
        for name in wanted:
            new, content = self.path / name, (self.source / name).read_bytes()
            if not new.is_file() or new.read_bytes() != content:
                new.parent.mkdir(parents=True, exist_ok=True)
                new.write_bytes(content)
                shutil.copymode(self.source / name, new)

    def test(self, mutation: Mutation, seconds: float) -> str:
        """Runs a mutation's tests; returns the outcome."""
        if mutation.is_rust:
            return self._cargo(mutation.crate, mutation.tests, seconds)
        return self._pytest(mutation.tests, seconds)

    def _pytest(self, tests: Sequence[str], seconds: float) -> str:
        environment = {"PYTHONPATH": str(self.path / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", *tests]
        return self._outcome(self._run(command, seconds, environment))

    def _cargo(self, crate: str, tests: Sequence[str], seconds: float) -> str:
        targets = list(tests[: tests.index("--")] if "--" in tests else tests)
        words = list(tests[tests.index("--") :] if "--" in tests else ())
        nextest = shutil.which("cargo-nextest") is not None
        base = ["cargo", *(["nextest", "run"] if nextest else ["test"]), "--locked", "-p", crate, *targets]
        environment = {"CARGO_TARGET_DIR": str(self.build), "CARGO_INCREMENTAL": "1"}
        code, _ = self._run([*base, "--no-run"], BUILD_SECONDS, environment)
        if code != 0:
            return "does not build"
        return self._outcome(self._run([*base, *words], seconds, environment))

    def _run(self, command: Sequence[str], seconds: float, environment: dict[str, str]) -> tuple[int | None, str]:
        """The exit code, `None` after the timeout, and the output."""
        # `CI`: the same random inputs each time, so that results are reproducible.
        whole = {**os.environ, "CI": "true", **environment}
        process = subprocess.Popen(
            command,
            cwd=self.path,
            env=whole,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            # nextest gives each test a process group of its own, and ends them all when it is terminated.
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None, ""
        except BaseException:  # Ctrl-C reaches this process alone
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
        return process.returncode, printed

    def _outcome(self, ended: tuple[int | None, str]) -> str:
        code, printed = ended
        if code is None:
            return "timed out"
        if code == 0:
            return "survived" if re.search(r"\b[1-9]\d* passed", printed) else "no test ran"
        # pytest 4 and 5, nextest 4: a wrong name, or no test with it.
        return "no test ran" if code in (4, 5) else "noticed"

    def outcome(self, mutation: Mutation, seconds: float) -> str:
        """Makes the mutation, runs its tests, and reverts it; returns the outcome."""
        if not mutation.applies(self.source):
            return "does not apply"
        path = self.path / mutation.file
        whole = path.read_text()
        path.write_text(whole.replace(mutation.find, mutation.replace))
        try:
            return self.test(mutation, seconds)
        finally:
            path.write_text(whole)


def without_words(tests: Sequence[str]) -> list[str]:
    """The files of a mutation's tests, without `-k`: of several, pytest would apply the last one to all."""
    return [test for before, test in zip(("", *tests), tests, strict=False) if "-k" not in (before, test)]


def baselines(mutations: Iterable[Mutation]) -> list[Mutation]:
    """Mutations that together name every test once."""
    python = sorted({file for one in mutations if not one.is_rust for file in without_words(one.tests)})
    whole = [Mutation("all.py", "", "", tuple(python), "")] if python else []
    rust = {(one.crate, one.tests): one for one in mutations if one.is_rust}
    return whole + list(rust.values())


def report(outcomes: Sequence[tuple[Mutation, str]]) -> int:
    """Prints the score; returns the exit code."""
    for mutation, outcome in outcomes:
        if outcome in BAD:
            print(f"{outcome}: {mutation.file}: {mutation.find!r} -> {mutation.replace!r}: {mutation.why}")
    counts = Counter(outcome for _, outcome in outcomes)
    caught = counts["noticed"] + counts["timed out"]
    print(f"==> {caught} of {len(outcomes)} mutations noticed ({', '.join(f'{n} {o}' for o, n in counts.items())})")
    return 0 if caught == len(outcomes) else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the lists; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("lists", nargs="*", type=Path)
    parser.add_argument("--only", default="", help="mutations whose file, text or reason has this")
    parser.add_argument("--check", action="store_true", help="only look whether each applies")
    parser.add_argument("--seconds", type=float, default=TEST_SECONDS, help="for the tests of a mutation")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the tree that is copied; a git repository")
    given = parser.parse_args(arguments)
    try:
        lists = given.lists or sorted(Path(__file__).parent.glob("*.toml"))
        mutations = [one for path in lists for one in read(path)]
    except ListError as error:
        print(error, file=sys.stderr)
        return 2
    mutations = [one for one in mutations if given.only in f"{one.file} {one.find} {one.why}"]
    if not mutations:
        print(f"no mutation has {given.only!r}", file=sys.stderr)
        return 2
    if given.check:
        lost = [one for one in mutations if not one.applies(given.tree)]
        for one in lost:
            print(f"does not apply: {one.file}: {one.find!r}: {one.why}")
        print(f"==> {len(mutations) - len(lost)} of {len(mutations)} mutations apply")
        return 1 if lost else 0
    scratch = given.tree / "target" / "mutants"
    scratch.mkdir(parents=True, exist_ok=True)
    lock = scratch / "lock"
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another run has {lock}: its mutations would be in this one's tests", file=sys.stderr)
            return 2
        return tried(Tree(given.tree, scratch), mutations, given)


def tried(tree: Tree, mutations: Sequence[Mutation], given: argparse.Namespace) -> int:
    """Runs the tests of each mutation; returns the exit code."""
    for one in baselines(one for one in mutations if one.applies(given.tree)):
        outcome = tree.test(one, BUILD_SECONDS)
        if outcome != "survived":
            print(f"without any mutation the tests {shlex.join(one.tests)} do not pass: {outcome}", file=sys.stderr)
            return 1
    outcomes = []
    for number, mutation in enumerate(mutations, start=1):
        outcomes.append((mutation, tree.outcome(mutation, given.seconds)))
        print(f"{number}/{len(mutations)} {outcomes[-1][1]}: {mutation.file}: {mutation.why}", flush=True)
    return report(outcomes)


if __name__ == "__main__":
    sys.exit(main())
