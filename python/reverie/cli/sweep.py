"""`reverie train --seeds`: the same run for several seeds, each in a process of its own, and what they reached."""

from __future__ import annotations

import enum
import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import typer

from reverie.cli.common import EXIT_INTERRUPTED, EXIT_NOT_REACHED, EXIT_REACHED, refuse

COMMAND = (sys.executable, "-c", "from reverie.cli import main; main()")
OWN = ("seed", "seeds", "jobs", "out", "as_json")
"""Options that a run of a sweep gets from the sweep, and not from the person."""


def parse_seeds(text: str) -> tuple[int, ...]:
    """`0-4`, `3,5` or `0-2,7`. Anything else, and a seed twice, is a ValueError."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise ValueError(f"seeds are {text!r}: write a range as 0-4, a list as 0,2,5, or both")
        seeds.extend(range(int(first), int(last if dash else first) + 1))
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds are {text!r}: each seed must be there once, and the lower end of a range first")
    return tuple(seeds)


def run(context: typer.Context, seeds: str, jobs: int, out: Path | None, *, as_json: bool) -> int:
    """Train all of them, `jobs` at a time; the exit code: 0 where every seed was confirmed."""
    from reverie.runners import logs

    try:
        wanted = parse_seeds(seeds)
    except ValueError as error:
        refuse(error)
    agent, env = context.params["agent"], context.params["env"]
    folder = out or Path("runs") / f"{agent}-{env.replace('/', '_')}"
    processes: list[subprocess.Popen[str]] = []
    with ThreadPoolExecutor(jobs) as pool:
        started = [pool.submit(_train, arguments_of(context, seed, folder), seed, processes) for seed in wanted]
        try:
            results = [one.result() for one in started]
        except KeyboardInterrupt:  # the terminal has told the runs too, which save and end
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.wait()
            print("reverie: interrupted; the same command with --resume goes on", file=sys.stderr)
            return EXIT_INTERRUPTED
    failed = [seed for seed, (code, _) in zip(wanted, results, strict=True) if code not in (0, 1)]
    if failed:
        print(f"reverie: no result from seed {', '.join(map(str, failed))}", file=sys.stderr)
        return next(code for code, _ in results if code not in (0, 1))
    found = [printed for _, printed in results if printed is not None]
    _tell(found, folder, [logs.read(Path(one["folder"])) for one in found], as_json=as_json)
    return EXIT_REACHED if all(one["confirmed"] for one in found) else EXIT_NOT_REACHED


def arguments_of(context: typer.Context, seed: int, folder: Path) -> list[str]:
    """The command line of one run: every option that was given for the sweep, but for those in `OWN`."""
    words = ["train"]
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if parameter.name in OWN or value is None or value == parameter.default:
            continue
        if parameter.param_type_name == "argument":
            words.append(str(value))
        elif isinstance(value, bool):
            words.append(parameter.opts[0] if value else parameter.secondary_opts[0])
        else:
            for one in value if isinstance(value, list | tuple) else [value]:
                words.extend((parameter.opts[0], str(one.value if isinstance(one, enum.Enum) else one)))
    return [*words, "--seed", str(seed), "--out", str(folder / f"seed-{seed}"), "--json"]


def _train(
    arguments: Sequence[str], seed: int, processes: list[subprocess.Popen[str]]
) -> tuple[int, dict[str, Any] | None]:
    """Exit code, and what the run printed; its lines for people go on to stderr with the seed before them."""
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    processes.append(process)
    assert process.stdout is not None
    assert process.stderr is not None
    stderr = process.stderr

    def forward() -> None:
        for line in stderr:
            sys.stderr.write(f"[seed {seed}] {line}")

    reader = threading.Thread(target=forward)
    reader.start()
    printed = process.stdout.read().splitlines()
    reader.join()
    code = process.wait()
    return code, json.loads(printed[-1]) if code in (0, 1) and printed else None


def _tell(found: list[dict[str, Any]], folder: Path, runs: list[Any], *, as_json: bool) -> None:
    """One line a seed, and what they are together; the curves as a picture."""
    from reverie.cli import plot
    from reverie.runners.scores import bootstrap_interval, interquartile_mean

    scores = [one["mean_return"] for one in found]
    low, high = bootstrap_interval(scores)
    confirmed = sum(one["confirmed"] for one in found)
    stream = sys.stderr if as_json else sys.stdout
    for run_log in runs:
        print(plot.summary(run_log), file=stream)
    print(
        f"interquartile mean {interquartile_mean(scores):.1f} (95 % bootstrap interval {low:.1f} to {high:.1f});"
        f" {confirmed} of {len(found)} seeds confirmed",
        file=stream,
    )
    drawn = [run_log for run_log in runs if run_log.returns]
    if drawn:
        plot.draw(drawn, folder / "curves.png")
        print(f"learning curves: {folder / 'curves.png'}", file=stream)
    if as_json:
        together = {
            "interquartile_mean": interquartile_mean(scores),
            "interval": [low, high],
            "confirmed": confirmed,
            "runs": found,
        }
        print(json.dumps(together), flush=True)
