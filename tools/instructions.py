"""Counts the instructions of the engine's hot paths, and compares them with the counts of the last commit.

Usage: python tools/instructions.py [--write] [WORK...]

The counts are in `benchmarks/instructions.json`, for each item of a batch, as callgrind counts them: the same on a
busy machine. A count that grew by more than 3 % fails the comparison. If that is wanted, `--write` puts the new counts
in the file, and the message of the commit that changes the file has the reason. Needs valgrind; without it nothing is
compared, and neither if the file's counts are of another compiler or another kind of processor.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COUNTS = ROOT / "benchmarks" / "instructions.json"
PACKAGE = "reverie-instructions"
WORKS = (
    "append",
    "queue",
    "leased",
    "single",
    "fill",
    "journaled",
    "commits",
    "draw",
    "held",
    "gather",
    "prioritised",
    "info",
)
MOST_GROWTH = 0.03


def environment() -> dict[str, str]:
    """The compiler and the machine, on which the counts depend in addition to the code."""
    rustc = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True, cwd=ROOT)
    return {"rustc": rustc.stdout.strip(), "machine": platform.machine()}


def build() -> Path:
    """Builds the program in release mode; returns its path.

    The extension is named as well, and not built: so the packages have the features that they have in its build, and
    the engine is compiled once for both.
    """
    packages = ["--package", PACKAGE, "--package", "reverie-py", "--bin", PACKAGE]
    subprocess.run(["cargo", "build", "--locked", "--release", *packages], check=True, cwd=ROOT)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / PACKAGE


def count(program: Path, work: str) -> float:
    """Instructions for each item."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            "valgrind",
            "--tool=callgrind",
            "--toggle-collect=*counted_*",
            f"--callgrind-out-file={folder}/out",
            str(program),
            work,
            f"{folder}/journal",
        ]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    collected = re.search(r"Collected : (\d+)", run.stderr)
    if run.returncode != 0 or collected is None:
        raise SystemExit(f"{work}: valgrind failed:\n{run.stderr}")
    return int(collected[1]) / int(run.stdout)


def compare(before: dict[str, float], now: dict[str, float]) -> tuple[str, list[str]]:
    """A table of both, and the works that need more instructions than before."""
    grown = [work for work, number in now.items() if work in before and number > before[work] * (1 + MOST_GROWTH)]
    lines = ["instructions for each item        before       now"]
    for work, number in now.items():
        known = before.get(work)
        change = "new" if known is None else f"{number / known - 1:+.1%}"
        lines.append(f"{work:<28}{known or 0:>12.1f}{number:>10.1f}  {change}{'  grown' if work in grown else ''}")
    return "\n".join(lines), grown


def main(arguments: Iterable[str] | None = None) -> int:
    """Runs the program; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the new counts in the file")
    parser.add_argument("works", nargs="*", metavar="WORK", choices=[*WORKS, []], help=f"some of {', '.join(WORKS)}")
    options = parser.parse_args(None if arguments is None else list(arguments))
    if shutil.which("valgrind") is None:
        print("instructions are not compared: valgrind is missing (your system's package of that name)")
        return 0
    here = environment()
    known = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    of = {name: known.get(name) for name in here}
    if not options.write and of != here:
        print(f"instructions are not compared: the counts are of {of}, this is {here}")
        return 0
    program = build()
    works = options.works or WORKS
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        now = dict(zip(works, pool.map(lambda work: count(program, work), works), strict=True))
    before = known.get("per_item", {})
    table, grown = compare(before, now)
    print(table)
    if options.write:
        per_item = {work: round(number, 1) for work, number in {**before, **now}.items()}
        COUNTS.write_text(json.dumps({**here, "per_item": per_item}, indent=2) + "\n")
        return 0
    if grown:
        print(
            f"{', '.join(grown)}: more than {MOST_GROWTH:.0%} above benchmarks/instructions.json. If that is wanted: "
            "`make instructions ARGS=--write`, and say why in the commit"
        )
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
