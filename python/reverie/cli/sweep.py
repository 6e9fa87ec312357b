"""`reverie train --seeds`: the same run for several seeds, each in a process of its own, and their results."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from reverie import agents
from reverie.cli import short_flags, sweep_view
from reverie.cli.common import EXIT_INTERRUPTED, EXIT_NOT_REACHED, EXIT_REACHED, exit_code, outcome, refuse
from reverie.cli.run_processes import RunProcesses, signals_as_ctrl_c
from reverie.cli.train_request import TrainRequest


def parse_seeds(text: str) -> tuple[int, ...]:
    """Parses seeds such as `0-4`, `3,5` or `0-2,7`. Raises ValueError for other text, and for repeated seeds."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise ValueError(f"seeds are {text!r}: write a range as 0-4, a list as 0,2,5, or both")
        seeds.extend(range(int(first), int(last if dash else first) + 1))
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds are {text!r}: name each seed once, and the lower end of a range first")
    return tuple(seeds)


def seeds_of(text: str) -> tuple[int, ...]:
    """The seeds of `parse_seeds`; invalid text ends the command."""
    try:
        return parse_seeds(text)
    except ValueError as error:
        refuse(error)


def run(request: TrainRequest, wanted: Sequence[int], jobs: int, *, as_json: bool) -> int:
    """Train the request with these seeds, `jobs` at a time; returns the exit code, 0 if every seed was confirmed.

    Prints a line for each seed when its run ends, then the summary.
    """
    folder = _folder(request)
    requests = _requests(request, wanted)
    stream = sys.stderr if as_json else sys.stdout
    finished = {one.seed: find_finished(one) for one in requests} if request.resume else {}
    done: dict[int, tuple[int, dict[str, Any] | None]] = {}
    for seed, finished_result in finished.items():
        if finished_result is not None:
            done[seed] = EXIT_REACHED, finished_result
            print(_summary(finished_result), file=stream, flush=True)
    runs = RunProcesses()
    page = _page(request, requests)
    with ThreadPoolExecutor(jobs) as pool, signals_as_ctrl_c():
        started = {}
        for one in requests:
            if one.seed not in done:
                started[pool.submit(runs.train, replace(one, resume=bool(request.resume)))] = one
        try:
            folders = {one.name: one.out for one in started.values() if one.out is not None}
            with page, sweep_view.shown(folders, as_json=as_json, quiet=request.quiet):
                for ended in as_completed(started):
                    done[started[ended].seed] = _, result = ended.result()
                    if result is not None:
                        print(_summary(result), file=stream, flush=True)
        except KeyboardInterrupt:
            runs.stop()
            _print_interrupted(folder, wanted, done)
            return EXIT_INTERRUPTED
    results = [done[seed] for seed in wanted]
    found = [reached for _, reached in results if reached is not None]
    if len(found) < len(results):
        without = {seed: code for seed, (code, reached) in zip(wanted, results, strict=True) if reached is None}
        print(f"reverie: no result from seed {', '.join(map(str, without))}", file=sys.stderr)
        return max(without.values()) or EXIT_NOT_REACHED
    _print_results(found, folder, as_json=as_json)
    return max(exit_code(one["confirmed"], one["target_return"]) for one in found)


def continues(request: TrainRequest, wanted: Sequence[int]) -> bool:
    """Whether a sweep resumes a run that has begun. With `--resume=must` and no such run the command ends."""
    from reverie.runners.reports import logs

    begun = [one.seed for one in _requests(request, wanted) if one.out is not None and logs.has_begun(one.out)]
    if request.resume == "must" and not begun:
        refuse(f"--resume=must continues a sweep, and {_folder(request)} has no run of these seeds: write --resume")
    return bool(request.resume and begun)


def _folder(request: TrainRequest) -> Path:
    name = agents.find(request.agent).name
    return request.out or Path("runs") / f"{name}-{request.env.replace('/', '_')}"


def _requests(request: TrainRequest, wanted: Sequence[int]) -> list[TrainRequest]:
    """The request for each seed's run."""
    folder = _folder(request)
    same = replace(request, silent=True, to_stderr=True, page=None)
    return [replace(same, seed=seed, out=folder / f"seed-{seed}") for seed in wanted]


def _page(request: TrainRequest, requests: Sequence[TrainRequest]) -> AbstractContextManager[object]:
    """The page of a sweep, open from now on; an address that is in use, or not safe, ends the command."""
    if request.page is None:
        return nullcontext()
    from reverie.cli.sweep_page import SweepPage

    try:
        page = SweepPage(
            request.page,
            agents.find(request.agent).name,
            request.env,
            {one.seed: one.out for one in requests if one.out is not None},
        )
    except (ValueError, OSError) as error:
        refuse(error)
    print(f"the runs are shown at {page.url}", file=sys.stderr, flush=True)
    return page


def find_finished(request: TrainRequest) -> dict[str, Any] | None:
    """The result of a run that a resumed sweep or search finds finished; None if it is unfinished or not begun."""
    from reverie.agents import presets
    from reverie.runners import checkpoints
    from reverie.runners.reports import logs

    assert request.out is not None
    own = request.out / checkpoints.PRESET  # a resumed run has its settings, unless others are named
    try:
        log = logs.read(request.out)
        agent = agents.find(request.agent)
        before = presets.load(own, agent.config) if own.is_file() else None
        given = short_flags.changed_preset(request, agent, request.config or (own if before else None))
    except ValueError:  # no log yet, or invalid settings, which the run itself reports
        return None
    if before is not None and not checkpoints.same_training(before, given):
        return None  # the run itself refuses them
    run = given.run
    end = log.finished
    if end is None:
        return None
    # The return of the last weights; a full disk may have left the log without a curve.
    screened = run.reached_by(log.returns[-1]) if log.returns else end["confirmed"]
    confirmed = screened and run.reached_by(end["mean_return"])
    if not (end["env_steps"] >= run.max_env_steps or (confirmed and not request.until_max_steps)):
        return None
    numbers = {name: end[name] for name in ("env_steps", "seconds", "mean_return", "num_episodes")}
    names = {"agent": log.agent, "env_id": log.env_id, "seed": log.seed, "target_return": run.target_return}
    return {**names, **numbers, "confirmed": confirmed, "folder": str(request.out)}


def _summary(result: dict[str, Any]) -> str:
    """The line of a run that has ended; without its course where a full disk has left the log without one."""
    from reverie.cli import plot
    from reverie.runners.reports import logs

    try:
        log = logs.read(Path(result["folder"]))
        if log.finished is not None:  # a resumed sweep may have another target than the run had
            ended = {**log.finished, "confirmed": result["confirmed"]}
            log = dataclasses.replace(log, target_return=result["target_return"], finished=ended)
        return plot.summary(log)
    except (logs.LogError, OSError):
        word = outcome(result["confirmed"], result["target_return"])
        end = f"{word}: {result['mean_return']:.1f} after {result['env_steps']:,} steps"
        return f"{result['agent']} on {result['env_id']}, seed {result['seed']}: {end}"


def _print_interrupted(folder: Path, wanted: Sequence[int], printed: Collection[int]) -> None:
    """Print the state of an interrupted sweep: a line per run that has begun and has none yet, and how to resume."""
    from reverie.cli import plot
    from reverie.runners.reports import logs

    ended = 0
    for seed in wanted:
        try:
            log = logs.read(folder / f"seed-{seed}")
        except logs.LogError:
            continue
        ended += log.finished is not None
        if seed not in printed:
            print(plot.summary(log), file=sys.stderr)
    print(
        f"reverie: interrupted after {ended} of {len(wanted)} runs; the same command with --resume continues",
        file=sys.stderr,
    )


def _print_results(found: list[dict[str, Any]], folder: Path, *, as_json: bool) -> None:
    """Print the summary of all seeds, and draw the curves."""
    from reverie.cli import plot
    from reverie.runners.reports import logs
    from reverie.runners.reports.scores import bootstrap_interval, interquartile_mean

    scores = [one["mean_return"] for one in found]
    low, high = bootstrap_interval(scores)
    confirmed = sum(one["confirmed"] for one in found)
    stream = sys.stderr if as_json else sys.stdout
    aimless = all(one["target_return"] is None for one in found)
    end = f"{len(found)} seeds trained" if aimless else f"{confirmed} of {len(found)} seeds confirmed"
    print(
        f"interquartile mean {interquartile_mean(scores):.1f} (95 % bootstrap interval {low:.1f} to {high:.1f}); {end}",
        file=stream,
    )
    drawn = []
    for one in found:
        with suppress(logs.LogError, OSError):
            drawn.append(logs.read(Path(one["folder"])))
    drawn = [run_log for run_log in drawn if run_log.returns]
    if drawn:
        try:
            plot.draw(drawn, folder / "curves.png")
            print(f"learning curves: {folder / 'curves.png'}", file=stream)
        except OSError as error:
            print(f"learning curves: not drawn ({error.strerror or error})", file=stream)
    if as_json:
        together = {
            "interquartile_mean": interquartile_mean(scores),
            "interval": [low, high],
            "confirmed": confirmed,
            "runs": found,
        }
        print(json.dumps(together), flush=True)
