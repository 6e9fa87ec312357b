"""docs/results.md and its pictures, from the results that are there."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Sequence
from pathlib import Path

from reverie.cli.plot import draw

from . import curves, prose, readmes, replays, scores, unfinished
from .links import Link, to_results, unlinked
from .row import ABLATIONS, APART, CONTROL, DEFAULTS, OFFLINE, OFFLINE_STEPS, PARTS, REPLAY, TARGETS, Row
from .rows import (
    BASELINE,
    CONTINUOUS,
    CONTROL_SEEDS,
    DEFAULT_SEEDS,
    DISCRETE,
    FIRST_STEPS,
    PARTS_SEEDS,
    PARTS_STEPS,
    ROWS,
    UPDATES,
    WITHOUT_PRESET,
)
from .scores import Results, Run

MUST_REACH = 0.8
"""Share of the seeds that must reach the target, next to the score: four of five, three of three."""


def write(folder: Path, page: Path, agents: Path | None = None, replay_page: Path | None = None) -> None:
    """The pages, a picture for each environment and for the ablations in `folder`, and the READMEs under `agents`."""
    results = scores.read(folder)
    for title, runs in curves.pictures(results, unfinished.read(folder)).items():
        draw(runs, folder / f"{title}.png")
    page.parent.mkdir(parents=True, exist_ok=True)
    for path, text in texts(results, folder, page, agents, replay_page).items():
        path.write_text(text)


def texts(
    results: Results,
    folder: Path,
    page: Path,
    agents: Path | None = None,
    replay_page: Path | None = None,
) -> dict[Path, str]:
    """The texts of the pages and of the READMEs, by path."""
    so_far, link = unfinished.read(folder), to_results(folder, page)
    text = prose.HEAD.format(failed=failed_confirmations(results)) + "\n" + targets_table(results, link) + "\n"
    links = {TARGETS: "", ABLATIONS: "", PARTS: "", CONTROL: ""}
    for title in curves.pictures(results, so_far):
        picture = folder / f"{title}.png"
        if title.startswith((REPLAY, replays.LONG_PICTURE)):
            continue  # on a page of its own
        group = next((one for one in (ABLATIONS, PARTS, CONTROL) if title.startswith(one)), TARGETS)
        links[group] += f"\n![greedy return over environment steps]({_relative(picture, page)})\n"
    text += links[TARGETS]
    if any(results[name] for name, row in ROWS.items() if row.group == APART):
        text += prose.APART_HEAD + "\n" + apart_table(results, link) + "\n"
    if any(results[name] for name, row in ROWS.items() if row.group == DEFAULTS):
        text += prose.DEFAULTS_HEAD.format(seeds=DEFAULT_SEEDS)
        text += "".join("\n" + defaults_table(results, tasks, link) + "\n" for tasks in (DISCRETE, CONTINUOUS))
    if any(results[name] for name, row in ROWS.items() if row.group == ABLATIONS):
        text += (
            prose.ABLATION_HEAD.format(updates=UPDATES, baseline=BASELINE)
            + "\n"
            + ablations_table(results, ABLATIONS, link=link)
            + "\n"
            + links[ABLATIONS]
        )
    if any(results[name] or so_far[name] for name, row in ROWS.items() if row.group == PARTS):
        text += prose.PARTS_HEAD.format(steps=PARTS_STEPS, seeds=PARTS_SEEDS)
        text += "\n" + ablations_table(results, PARTS, so_far, link=link) + "\n" + links[PARTS]
    if any(results[name] or so_far[name] for name, row in ROWS.items() if row.group == CONTROL):
        text += prose.CONTROL_HEAD.format(seeds=CONTROL_SEEDS, first=readmes.thousands(FIRST_STEPS[-1]))
        text += "\n" + control_table(results, so_far, link) + "\n" + links[CONTROL]
    if any(results[name] for name, row in ROWS.items() if row.group == OFFLINE):
        text += prose.OFFLINE_HEAD + "\n" + offline_table(results, link) + "\n"
    text += prose.ORIGINS
    found = {page: text, **({} if agents is None else readmes.texts(results, agents))}
    if replay_page is not None:
        found[replay_page] = replays.text(replay_page, results, so_far, folder)
    return found


def _relative(path: Path, page: Path) -> str:
    return os.path.relpath(path, page.parent)


COLUMNS = "target, by | score | seeds confirmed | steps, median (least to most)"
SOURCES = "seeds; processor; date"


def targets_table(results: Results, link: Link = unlinked) -> str:
    """One line a row; rows that were not run are marked."""
    out = [
        f"| environment | agent | {COLUMNS} | processor time, median | reached | {SOURCES} |",
        "|---" * 9 + "|",
    ]
    for name, row in ROWS.items():
        if row.group == TARGETS:
            runs = results[name]
            agent = (link(row.agent, name) if runs else row.agent) + (" (defaults)" if row.takes_defaults else "")
            start = f"| {row.where} | {agent} | {row.reach:g}, {row.by:,}"
            if runs:
                times = [run["cpu_seconds"] for run in runs if run["cpu_seconds"] is not None]
                time = f"{statistics.median(times):,.0f} s" if times else "-"
                out.append(f"{start} | {_reached(row, runs)} | {time} | {verdict(row, runs)} | {_sources(runs)} |")
            else:
                out.append(f"{start} | not run yet | | | | | |")
    return "\n".join(out)


def apart_table(results: Results, link: Link = unlinked) -> str:
    """One line a row that was run."""
    out = [f"| environment | agent | runner | {COLUMNS} | reached | {SOURCES} |", "|---" * 9 + "|"]
    for name, row in ROWS.items():
        runs = results[name]
        if row.group == APART and runs:
            runner = row.runner if row.num_shards == 1 else f"{row.runner}, {row.num_shards} shards"
            start = f"| {row.task} | {link(row.learner, name)} | {runner} | {row.reach:g}, {row.by:,}"
            out.append(f"{start} | {_reached(row, runs)} | {verdict(row, runs)} | {_sources(runs)} |")
    return "\n".join(out)


def defaults_table(results: Results, tasks: dict[str, tuple[float, int]], link: Link = unlinked) -> str:
    """One line an agent, one column a task."""
    heads = [f"{env_id}: {reach:g}, {by:,}" for env_id, (reach, by) in tasks.items()]
    out = [f"| agent | {' | '.join(heads)} |", "|---" * (1 + len(tasks)) + "|"]
    names = {(row.agent, row.env_id): name for name, row in ROWS.items() if row.group == DEFAULTS}
    for agent, known in WITHOUT_PRESET.items():
        if not tasks.keys() <= known.keys():
            continue
        cells = [
            _default_cell(ROWS[names[agent, env_id]], results[names[agent, env_id]], link)
            if (agent, env_id) in names
            else "preset"
            for env_id in tasks
        ]
        out.append(f"| {agent} | {' | '.join(cells)} |")
    return "\n".join(out)


def _default_cell(row: Row, runs: list[Run], link: Link) -> str:
    if not runs:
        return "not run yet"
    reached, median = sum(map(scores.reached, runs)), scores.median_steps(runs)
    steps = f", {readmes.thousands(round(median))}" if math.isfinite(median) else f", > {readmes.thousands(row.by)}"
    mean = link(f"{statistics.mean(scores.of_last_weights(runs)):.0f}", row.name)
    return f"{mean}{scores.mark(runs)}; {reached} of {len(runs)}{steps}"


def _reached(row: Row, runs: list[Run]) -> str:
    """Score, seeds and steps: three cells."""
    steps, median = scores.steps_to_target(runs), scores.median_steps(runs)

    def shown(number: float) -> str:
        return f"{number:,.0f}" if math.isfinite(number) else f"> {row.by:,}"

    spread = f"{shown(median)} ({shown(steps[0])} to {shown(steps[-1])})" if math.isfinite(steps[0]) else "-"
    spread = "no stop" if row.until_max_steps else spread
    reached = sum(map(scores.reached, runs))
    return f"{scores.score(scores.of_last_weights(runs))}{scores.mark(runs)} | {reached} of {len(runs)} | {spread}"


def _sources(runs: list[Run]) -> str:
    return f"{scores.seeds(runs)}; {scores.where(runs)}"


def verdict(row: Row, runs: list[Run]) -> str:
    """`yes`, `no`, or how many seeds are missing for a verdict."""
    if len(runs) < row.num_seeds:
        return f"{len(runs)} of {row.num_seeds} seeds run"
    enough = sum(map(scores.reached, runs)) >= MUST_REACH * len(runs)
    return "yes" if enough and scores.mean(scores.of_last_weights(runs)) >= row.reach else "**no**"


def failed_confirmations(results: Results) -> str:
    """A sentence on how often the second evaluation missed the target, among the runs that stop there."""
    runs = [run for name, own in results.items() if not ROWS[name].until_max_steps for run in own]
    times = [sum(point[1] >= run["target_return"] for point in run["curve"]) - run["confirmed"] for run in runs]
    return (
        f"In {sum(count > 0 for count in times)} of the {len(runs)} runs that stop at a target, the second evaluation"
        f" missed it at least once ({sum(times)} times in all), and training continued."
    )


def ablations_table(results: Results, group: str, so_far: Results | None = None, *, link: Link = unlinked) -> str:
    """One line for each row of a group that was run, and for each run that was interrupted."""
    out = ["| row | seeds | environment steps | mean of the curve | last weights |", "|---|---|---|---|---|"]
    for name, row in ROWS.items():
        runs = results[name]
        if row.group == group and runs:
            out.append(f"| {link(name, name)} | {scores.seeds(runs)} | {row.by:,} | {_of_curves(row, runs)} |")
        if row.group == group and so_far is not None:
            out.extend(f"| {link(name, name)} | {' | '.join(unfinished.cells(row, run))} |" for run in so_far[name])
    return "\n".join(out)


def _of_curves(row: Row, runs: list[Run]) -> str:
    """Two cells: the mean of the curve, and the score of the last weights."""
    means = [scores.mean_of_curve(row, run) for run in runs]
    return f"{scores.score(means)} | {scores.score(scores.of_last_weights(runs))}{scores.mark(runs)}"


def control_table(results: Results, so_far: Results, link: Link = unlinked) -> str:
    """One line for each walker and agent, and for each run that was interrupted; agents not run are marked."""
    first = f"mean to {readmes.thousands(FIRST_STEPS[-1])}"
    out = [
        f"| environment | agent | seeds | steps | {first} | mean of the curve | last weights |"
        " processor time, median |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in ROWS.items():
        if row.group == CONTROL:
            runs = results[name]
            learner = link(row.learner, name) if runs or so_far[name] else row.learner
            start = f"| {row.env_id} | {learner}"
            if runs:
                times = [run["cpu_seconds"] for run in runs if run["cpu_seconds"] is not None]
                time = f"{statistics.median(times):,.0f} s" if times else "-"
                cells = [scores.seeds(runs), readmes.thousands(row.by), _to_first_steps(row, runs)]
                out.append(" | ".join([start, *cells, _of_curves(row, runs), time]) + " |")
            for run in so_far[name]:
                seeds, steps, *others = unfinished.cells(row, run)
                out.append(" | ".join([start, seeds, steps, _to_first_steps(row, [run]), *others]) + " | |")
            if not runs and not so_far[name]:
                out.append(f"{start} | not run yet | {readmes.thousands(row.by)} | | | | |")
    return "\n".join(out)


def offline_table(results: Results, link: Link = unlinked) -> str:
    """One line for each row that was run from a data set."""
    out = [
        "| environment | agent | data | its mean return | updates | target | score | seeds at the target |"
        f" {SOURCES} |",
        "|---" * 9 + "|",
    ]
    for name, row in ROWS.items():
        runs = results[name]
        if row.group == OFFLINE and runs:
            data, reached = runs[0]["data"], sum(map(scores.reached, runs))
            start = f"| {row.env_id} | {link(row.learner, name)} | {data['name']} | {data['mean_return']:.1f}"
            score = f"{scores.score(scores.of_last_weights(runs))} | {reached} of {len(runs)}"
            out.append(f"{start} | {row.by - OFFLINE_STEPS:,} | {row.reach:g} | {score} | {_sources(runs)} |")
    return "\n".join(out)


def _to_first_steps(row: Row, runs: Sequence[Run]) -> str:
    """The mean of the curves at `FIRST_STEPS`; "-" for a run that was interrupted before the last of these points."""
    if any(run["curve"][-1][0] < FIRST_STEPS[-1] for run in runs):
        return "-"
    return scores.score([scores.mean_of_curve(row, run, FIRST_STEPS) for run in runs])
