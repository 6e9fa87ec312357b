"""`python -m benchmarks.learn`: learning targets, also with separate roles, and ablations of Ape-X, five seeds a row.

Every (row, seed) that has a file under `benchmarks/results/learn` is left as it is, unless `--again` is given; one that
was interrupted goes on from its checkpoint under `runs/learn`. At the end, and after every run, docs/results.md and the
agents' READMEs are written again, with the curves so far of long runs that were interrupted.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
import tempfile
import time
from itertools import zip_longest
from pathlib import Path

from ..peers import ROOT
from . import report, scores, unfinished
from .rows import DEFAULT, ROWS
from .runs import RunError, run

RESULTS, PAGE, RUNS = ROOT / "benchmarks" / "results" / "learn", ROOT / "docs" / "results.md", ROOT / "runs" / "learn"
REPLAY_PAGE = ROOT / "docs" / "replay-matters.md"
AGENTS = ROOT / "python" / "reverie" / "agents"
SMOKE = ("cartpole-dqn", "priorities-max")


def main() -> int:
    """Returns the process's exit code: 1 where a run failed or the time was up."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learn", description=__doc__)
    parser.add_argument("--rows", default=",".join(DEFAULT), help="comma-separated (%(default)s)")
    parser.add_argument("--seeds", help="comma-separated; else each row's own, 100 to 104 for most of them")
    parser.add_argument(
        "--again", action="store_true", help="remove the files and folders of these runs, and train them"
    )
    parser.add_argument("--minutes", type=float, help="stop after so long; the same command goes on from there")
    parser.add_argument("--device", help="where rows are learnt, such as cuda; else each preset's own")
    parser.add_argument("--report", action="store_true", help="write docs/results.md and READMEs from what is there")
    parser.add_argument("--smoke", action="store_true", help="one seed of two rows, 1,500 steps, kept nowhere")
    options = parser.parse_args()
    if options.smoke:
        return smoke()
    names = options.rows.split(",")
    if unknown := set(names) - set(ROWS):
        parser.error(f"unknown rows {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    if options.report:
        unfinished.collect(RESULTS, RUNS)
        report.write(RESULTS, PAGE, AGENTS, REPLAY_PAGE)
        return 0
    seeds = None if options.seeds is None else [int(seed) for seed in options.seeds.split(",")]
    deadline = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    settings = () if options.device is None else (f"device={options.device}",)
    return work(names, seeds, deadline, settings, again=options.again)


def work(
    names: list[str],
    seeds: list[int] | None,
    deadline: float | None,
    settings: tuple[str, ...] = (),
    *,
    again: bool = False,
) -> int:
    """Seeds outside, rows inside: an early end leaves every row with as many seeds as the others.

    Without `seeds` each row has its own. With `again` earlier results of a run are removed just before it starts.
    """
    failed = 0
    for turn in zip_longest(*(ROWS[name].seeds if seeds is None else seeds for name in names)):
        for name, seed in zip(names, turn, strict=True):
            if seed is None:
                continue
            path, folder = RESULTS / name / f"seed-{seed}.json", RUNS / name / f"seed-{seed}"
            if path.exists() and not again:
                print(f"==> {name}, seed {seed}: has a file, which stays (--again)", file=sys.stderr, flush=True)
                continue
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return 1
            if again:
                path.unlink(missing_ok=True)
                path.with_name(unfinished.name_of(seed)).unlink(missing_ok=True)
                if folder.exists():
                    shutil.rmtree(folder)
            try:
                row = dataclasses.replace(ROWS[name], settings=(*ROWS[name].settings, *settings))
                result = run(row, seed, folder, left)
            except RunError as error:
                failed += 1
                print(f"==> {error}", file=sys.stderr, flush=True)
                continue
            if result is None:
                unfinished.collect(RESULTS, RUNS)
                report.write(RESULTS, PAGE, AGENTS, REPLAY_PAGE)
                print(f"==> {name}, seed {seed}: time is up; the same command goes on", file=sys.stderr)
                return 1
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(result) + "\n")
            unfinished.collect(RESULTS, RUNS)
            report.write(RESULTS, PAGE, AGENTS, REPLAY_PAGE)
            word, score = "confirmed" if result["confirmed"] else "not reached", scores.last_weights(result)[0]
            print(
                f"==> {name}, seed {seed}: {word}, {score:.1f} after {result['env_steps']:,} steps",
                file=sys.stderr,
                flush=True,
            )
    return 1 if failed else 0


def smoke() -> int:
    """Shows that it runs; measures nothing."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for row in (ROWS[row] for row in SMOKE):
            short = dataclasses.replace(row, by=1_500)
            result = run(short, 0, folder / "runs" / row.name, None)
            (folder / row.name).mkdir()
            (folder / row.name / "seed-0.json").write_text(json.dumps(result))
        report.write(folder, folder / "results.md")
        print((folder / "results.md").read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
