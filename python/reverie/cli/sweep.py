"""`reverie train --seeds`: the same run for several seeds, each in a process of its own, and what they reached."""

from __future__ import annotations

import enum
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from reverie.cli import shorts
from reverie.cli.common import EXIT_INTERRUPTED, EXIT_NOT_REACHED, EXIT_REACHED, refuse
from reverie.cli.ending import wishes_to_end

COMMAND = (sys.executable, "-c", "from reverie.cli import main; main()")
OWN = ("seed", "seeds", "jobs", "out", "as_json", "resume")
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


def seeds_of(text: str) -> tuple[int, ...]:
    """As `parse_seeds`; what is none ends the command."""
    try:
        return parse_seeds(text)
    except ValueError as error:
        refuse(error)


def run(context: typer.Context, wanted: Sequence[int], jobs: int, out: Path | None, *, as_json: bool) -> int:
    """Train these seeds, `jobs` at a time; the exit code: 0 where every seed was confirmed."""
    from reverie.runners.reports import logs

    agent, env = context.params["agent"], context.params["env"]
    folder = out or Path("runs") / f"{agent}-{env.replace('/', '_')}"
    wished, resumes = list(wanted), bool(context.params["resume"])
    had = {seed: _had(context, folder / f"seed-{seed}") for seed in wanted} if resumes else {}
    runs = _Runs()
    with ThreadPoolExecutor(jobs) as pool, _ends_as_ctrl_c():
        started = {}
        for seed in wished:
            if had.get(seed) is None:
                begun = resumes and logs.has_begun(folder / f"seed-{seed}")
                arguments = arguments_of(context, seed, folder, resume=begun)
                started[seed] = pool.submit(runs.train, arguments, seed)
        try:
            done = {seed: one.result() for seed, one in started.items()}
        except KeyboardInterrupt:
            runs.stop()
            _tell_what_is_there(folder, wanted)
            return EXIT_INTERRUPTED
    results = [done[seed] if seed in done else (EXIT_REACHED, had[seed]) for seed in wanted]
    failed = [seed for seed, (code, _) in zip(wanted, results, strict=True) if code not in (0, 1)]
    if failed:
        print(f"reverie: no result from seed {', '.join(map(str, failed))}", file=sys.stderr)
        return next(code for code, _ in results if code not in (0, 1))
    found = [printed for _, printed in results if printed is not None]
    _tell(found, folder, [logs.read(Path(one["folder"])) for one in found], as_json=as_json)
    return EXIT_REACHED if all(one["confirmed"] for one in found) else EXIT_NOT_REACHED


def arguments_of(context: typer.Context, seed: int, folder: Path, *, resume: bool) -> list[str]:
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
    words.extend(["--resume"] if resume else [])
    return [*words, "--seed", str(seed), "--out", str(folder / f"seed-{seed}"), "--json"]


class _Runs:
    """The runs of a sweep, each a process in a group of its own.

    Ctrl-C in a terminal so reaches the sweep alone, which tells each run once: told twice, a run ends without saving.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped = False
        self._living: list[subprocess.Popen[str]] = []

    def train(self, arguments: Sequence[str], seed: int) -> tuple[int, dict[str, Any] | None]:
        """Exit code, and what the run printed; its lines for people go on to stderr with the seed before them."""
        with self._lock:  # no run begins once the sweep is stopped
            if self._stopped:
                return EXIT_INTERRUPTED, None
            command, pipe = [*COMMAND, *arguments], subprocess.PIPE
            process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, process_group=0)
            self._living.append(process)
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

    def stop(self) -> None:
        """Let every run save and end, and wait for it; a second Ctrl-C interrupts them, a third kills them."""
        with self._lock:
            self._stopped = True
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGKILL):
            for process in self._living:
                if process.poll() is None:
                    process.send_signal(number)
            try:
                for process in self._living:
                    process.wait()
                return
            except KeyboardInterrupt:
                continue


@contextmanager
def _ends_as_ctrl_c() -> Iterator[None]:
    """A sweep that is told to end, or whose terminal is closed, lets its runs save: they are in other groups. Told once
    more it goes on doing so; only Ctrl-C is taken for impatience."""
    told = False

    def interrupt(number: int, frame: object) -> None:
        nonlocal told
        if not told:
            told = True
            raise KeyboardInterrupt

    numbers = [number for number in wishes_to_end() if number != signal.SIGINT]
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _had(context: typer.Context, folder: Path) -> dict[str, Any] | None:
    """What a run of a sweep that goes on has reached; None where there is something left to do, or all."""
    from reverie import agents
    from reverie.agents import presets
    from reverie.runners.reports import logs

    try:
        log = logs.read(folder)
        agent = agents.find(context.params["agent"])
        preset = agent.load_preset(context.params["env"], context.params["config"])
        run = presets.override(preset, shorts.changes(context.params, agent, preset)).run
    except ValueError:  # no log yet; and what is wrong with the settings, the run itself says
        return None
    end = log.finished
    if end is None or not (
        end["env_steps"] >= run.max_env_steps or (end["confirmed"] and not context.params["to_the_end"])
    ):
        return None
    numbers = {name: end[name] for name in ("env_steps", "seconds", "confirmed", "mean_return", "num_episodes")}
    names = {"agent": log.agent, "env_id": log.env_id, "seed": log.seed, "target_return": log.target_return}
    return {**names, **numbers, "folder": str(folder)}


def _tell_what_is_there(folder: Path, wanted: Sequence[int]) -> None:
    """What an interrupted sweep leaves: a line for each run that has begun, and how to go on."""
    from reverie.cli import plot
    from reverie.runners.reports import logs

    ended = 0
    for seed in wanted:
        try:
            log = logs.read(folder / f"seed-{seed}")
        except logs.LogError:
            continue
        ended += log.finished is not None
        print(plot.summary(log), file=sys.stderr)
    print(
        f"reverie: interrupted after {ended} of {len(wanted)} runs; the same command with --resume goes on",
        file=sys.stderr,
    )


def _tell(found: list[dict[str, Any]], folder: Path, runs: list[Any], *, as_json: bool) -> None:
    """One line a seed, and what they are together; the curves as a picture."""
    from reverie.cli import plot
    from reverie.runners.reports.scores import bootstrap_interval, interquartile_mean

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
