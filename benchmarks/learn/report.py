"""docs/results.md and its pictures, from the results that are there."""

from __future__ import annotations

import json
import os
import re
import statistics
from pathlib import Path
from typing import Any

from reverie.cli.plot import draw
from reverie.runners.reports.logs import RunLog
from reverie.runners.reports.scores import bootstrap_interval, interquartile_mean

from . import readmes, replays
from .rows import (
    ABLATIONS,
    APART,
    BASELINE,
    CONTINUOUS,
    CONTROL,
    CONTROL_SEEDS,
    DEFAULT_SEEDS,
    DEFAULTS,
    DISCRETE,
    PARTS,
    PARTS_SEEDS,
    PARTS_STEPS,
    REPLAY,
    ROWS,
    TARGETS,
    UPDATES,
    WITHOUT_PRESET,
    Row,
)

MUST_REACH = 4
"""Of five seeds, next to the interquartile mean."""

HEAD = """\
# Results

Written by `make bench-learn` from the files under [benchmarks/results/learn](../benchmarks/results/learn), one for each
row and seed; do not edit. How a run is judged: [training](guides/training.md).

Every run ends when a greedy evaluation reaches the target and a second one on other episodes agrees, or at its last
step. Its score is the mean return of the **last** weights on those other episodes (20; 100 on Pendulum), never the best
on the way. A row is reached where the interquartile mean over five seeds is at the target and at least four seeds are.
Brackets are 95 % bootstrap intervals of the interquartile mean (Agarwal et al. 2021); with so few seeds they are rough.
Processor time is of the whole process, evaluations included, with one thread, on a machine with other work.
"""
APART_HEAD = """\

## Roles apart

The presets as they are, but with replay shards, learners, evaluator and actors in processes of their own, or on Ray:
learners draw ahead, weights are older, and no two runs are the same. Judged as above.
"""
DEFAULTS_HEAD = """\

## Tasks without a preset

Each agent with the settings that it takes for an environment without a preset: its defaults for the kind of environment
where it has them, otherwise those of its nearest preset ([0137](decisions/0137-defaults-that-travel.md)). Only
evaluations are rarer. Up to {seeds} seeds. A cell has the interquartile mean of the last weights' returns, the seeds
that reach the task's threshold in the steps of the column's head, and the median of their steps. "Preset": the agent
has one for this task; see the first table.
"""
ABLATION_HEAD = """\

## Ablations of Ape-X DQN

CartPole-v1, its preset but for what the row names, {updates:,} updates each and no stop at the target. The learner does
the same work in every row; with twice the actors it sees twice the environment steps. `{baseline}` is the preset
itself, with the actors' own priorities, n = 3 and float32: what the rows below are compared with. "Mean of the curve"
is the greedy return averaged over all 20 evaluations: an agent that learns sooner, and keeps it, has more.
"""
PARTS_HEAD = """\

## Parts of Rainbow

MinAtar/Breakout-v0 with its preset, which has a categorical head, noisy layers, two streams, priorities, three steps
and double Q-learning, but for what the row names; {steps:,} environment steps and no stop at the target, up to {seeds}
seeds. "Mean of the curve" is the greedy return averaged over all 10 evaluations.
"""
CONTROL_HEAD = """\

## Walkers of MuJoCo

Curves of equal length, up to {seeds} seeds, without a stop at a target: presets for HalfCheetah-v5 (SAC, TD3) and
defaults for continuous actions (D4PG, PPO), next to Stable-Baselines3's SAC with its zoo's settings, which is evaluated
on the same seeds. "Mean of the curve" is the greedy return of ten episodes averaged over all evaluations, one every
10,000 steps (PPO: 20,000); "last weights" that of 20 other episodes. Of Stable-Baselines3 processor time is without the
start of its process.
"""


def read(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Results by row, in the rows' order, seeds in order."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in ROWS}
    for name in ROWS:
        for path in sorted((folder / name).glob("seed-*.json"), key=lambda path: int(path.stem[5:])):
            found[name].append(json.loads(path.read_text()))
    return found


def write(folder: Path, page: Path, agents: Path | None = None, replay_page: Path | None = None) -> None:
    """The pages, a picture for each environment and for the ablations in `folder`, and the READMEs under `agents`."""
    results = read(folder)
    for title, runs in pictures(results).items():
        draw(runs, folder / f"{title}.png")
    page.parent.mkdir(parents=True, exist_ok=True)
    for path, text in texts(results, folder, page, agents, replay_page).items():
        path.write_text(text)


def texts(
    results: dict[str, list[dict[str, Any]]],
    folder: Path,
    page: Path,
    agents: Path | None = None,
    replay_page: Path | None = None,
) -> dict[Path, str]:
    """What the pages and the READMEs are to say."""
    text = HEAD + "\n" + targets_table(results) + "\n"
    links = {TARGETS: "", ABLATIONS: "", PARTS: "", CONTROL: ""}
    for title in pictures(results):
        picture = folder / f"{title}.png"
        if title.startswith(REPLAY):
            continue  # on a page of its own
        group = next((one for one in (ABLATIONS, PARTS, CONTROL) if title.startswith(one)), TARGETS)
        links[group] += f"\n![greedy return over environment steps]({_relative(picture, page)})\n"
    text += links[TARGETS]
    if any(results[name] for name, row in ROWS.items() if row.group == APART):
        text += APART_HEAD + "\n" + apart_table(results) + "\n"
    if any(results[name] for name, row in ROWS.items() if row.group == DEFAULTS):
        text += DEFAULTS_HEAD.format(seeds=DEFAULT_SEEDS)
        text += "".join("\n" + defaults_table(results, tasks) + "\n" for tasks in (DISCRETE, CONTINUOUS))
    if any(results[name] for name, row in ROWS.items() if row.group == ABLATIONS):
        text += (
            ABLATION_HEAD.format(updates=UPDATES, baseline=BASELINE)
            + "\n"
            + ablations_table(results, ABLATIONS)
            + "\n"
            + links[ABLATIONS]
        )
    if any(results[name] for name, row in ROWS.items() if row.group == PARTS):
        text += PARTS_HEAD.format(steps=PARTS_STEPS, seeds=PARTS_SEEDS)
        text += "\n" + ablations_table(results, PARTS) + "\n" + links[PARTS]
    if any(results[name] for name, row in ROWS.items() if row.group == CONTROL):
        text += CONTROL_HEAD.format(seeds=CONTROL_SEEDS) + "\n" + control_table(results) + "\n" + links[CONTROL]
    found = {page: text, **({} if agents is None else readmes.texts(results, agents))}
    if replay_page is not None:
        found[replay_page] = replays.text(replay_page, results, folder, score)
    return found


def _relative(path: Path, page: Path) -> str:
    return os.path.relpath(path, page.parent)


COLUMNS = "target, by | score | seeds that reach it | steps to it, median (least to most)"


def targets_table(results: dict[str, list[dict[str, Any]]]) -> str:
    """One line a row; rows that were not run say so."""
    out = [
        f"| environment | agent | {COLUMNS} | processor time, median | reached |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in ROWS.items():
        if row.group == TARGETS:
            start, runs = f"| {row.where} | {row.agent} | {row.reach:g}, {row.by:,}", results[name]
            if runs:
                times = [run["cpu_seconds"] for run in runs if run["cpu_seconds"] is not None]
                time = f"{statistics.median(times):,.0f} s" if times else "-"
                out.append(f"{start} | {_reached(runs)} | {time} | {verdict(row, runs)} |")
            else:
                out.append(f"{start} | not run yet | | | | |")
    return "\n".join(out)


def apart_table(results: dict[str, list[dict[str, Any]]]) -> str:
    """One line a row that was run."""
    out = [f"| environment | agent | runner | {COLUMNS} | reached |", "|---|---|---|---|---|---|---|---|"]
    for name, row in ROWS.items():
        runs = results[name]
        if row.group == APART and runs:
            agent = ", ".join([row.agent, *(f"`{setting}`" for setting in row.settings)])
            runner = row.runner if row.num_shards == 1 else f"{row.runner}, {row.num_shards} shards"
            start = f"| {row.task} | {agent} | {runner} | {row.reach:g}, {row.by:,}"
            out.append(f"{start} | {_reached(runs)} | {verdict(row, runs)} |")
    return "\n".join(out)


def defaults_table(results: dict[str, list[dict[str, Any]]], tasks: dict[str, tuple[float, int]]) -> str:
    """One line an agent, one column a task."""
    heads = [f"{env_id}: {reach:g}, {by:,}" for env_id, (reach, by) in tasks.items()]
    out = [f"| agent | {' | '.join(heads)} |", "|---" * (1 + len(tasks)) + "|"]
    names = {(row.agent, row.env_id): name for name, row in ROWS.items() if row.group == DEFAULTS}
    for agent, known in WITHOUT_PRESET.items():
        if not tasks.keys() <= known.keys():
            continue
        cells = [
            _default_cell(results[names[agent, env_id]]) if (agent, env_id) in names else "preset" for env_id in tasks
        ]
        out.append(f"| {agent} | {' | '.join(cells)} |")
    return "\n".join(out)


def _default_cell(runs: list[dict[str, Any]]) -> str:
    if not runs:
        return "not run yet"
    steps = [run["env_steps"] for run in runs if run["confirmed"]]
    where = f", {readmes.thousands(round(statistics.median(steps)))}" if steps else ""
    mean = interquartile_mean([run["mean_return"] for run in runs])
    return f"{mean:.0f}; {len(steps)} of {len(runs)}{where}"


def _reached(runs: list[dict[str, Any]]) -> str:
    """Score, seeds and steps: three cells."""
    reached = [run for run in runs if run["confirmed"]]
    steps = sorted(run["env_steps"] for run in reached)
    where = f"{statistics.median(steps):,.0f} ({steps[0]:,} to {steps[-1]:,})" if steps else "-"
    return f"{score([run['mean_return'] for run in runs])} | {len(reached)} of {len(runs)} | {where}"


def verdict(row: Row, runs: list[dict[str, Any]]) -> str:
    """`yes`, `no`, or how many seeds are missing for a verdict."""
    if len(runs) < 5:
        return f"{len(runs)} of 5 seeds run"
    scores = [run["mean_return"] for run in runs]
    enough = sum(run["confirmed"] for run in runs) >= MUST_REACH * len(runs) / 5
    return "yes" if enough and interquartile_mean(scores) >= row.reach else "**no**"


def score(scores: list[float]) -> str:
    """Interquartile mean and interval; of fewer than three runs their mean alone."""
    if len(scores) < 3:
        return f"{interquartile_mean(scores):.1f}"
    low, high = bootstrap_interval(scores)
    return f"{interquartile_mean(scores):.1f} [{low:.1f}, {high:.1f}]"


def ablations_table(results: dict[str, list[dict[str, Any]]], group: str) -> str:
    """One line for each row of a group that was run."""
    out = ["| row | seeds | environment steps | mean of the curve | last weights |", "|---|---|---|---|---|"]
    for name, row in ROWS.items():
        runs = results[name]
        if row.group == group and runs:
            curves = [statistics.mean(point[1] for point in run["curve"]) for run in runs]
            last = [run["mean_return"] for run in runs]
            out.append(f"| {name} | {len(runs)} | {row.by:,} | {score(curves)} | {score(last)} |")
    return "\n".join(out)


def control_table(results: dict[str, list[dict[str, Any]]]) -> str:
    """One line for each walker and agent; agents that were not run say so."""
    out = [
        "| environment | agent | seeds | steps | mean of the curve | last weights | processor time, median |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in ROWS.items():
        if row.group == CONTROL:
            runs = results[name]
            start = f"| {row.env_id} | {_learner(row)}"
            if not runs:
                out.append(f"{start} | not run yet | {readmes.thousands(row.by)} | | | |")
                continue
            curves = [statistics.mean(point[1] for point in run["curve"]) for run in runs]
            last = [run["mean_return"] for run in runs]
            times = [run["cpu_seconds"] for run in runs if run["cpu_seconds"] is not None]
            time = f"{statistics.median(times):,.0f} s" if times else "-"
            cells = [len(runs), readmes.thousands(row.by), score(curves), score(last), time]
            out.append(" | ".join([start, *map(str, cells)]) + " |")
    return "\n".join(out)


def _learner(row: Row) -> str:
    """Whose agent it is, and its settings where they are not the preset's."""
    agent = row.agent if row.library == "reverie" else f"{row.library}: {row.agent}"
    return ", ".join([agent, *(f"`{setting}`" for setting in row.settings)])


def pictures(results: dict[str, list[dict[str, Any]]]) -> dict[str, list[RunLog]]:
    """Curves by the picture that they are drawn in."""
    found: dict[str, list[RunLog]] = {}
    for name, runs in results.items():
        row = ROWS[name]
        if row.group in (APART, DEFAULTS):
            continue
        title, label = _place(row)
        found.setdefault(title, []).extend(_curve(run, label) for run in runs)
    for title, runs in found.items():
        if runs and title.startswith(ABLATIONS) and not title.endswith(BASELINE.partition("-")[0]):
            runs.extend(_curve(run, f"{BASELINE}: the preset") for run in results[BASELINE])
    return {title: runs for title, runs in found.items() if runs}


def _place(row: Row) -> tuple[str, str]:
    """The picture of a row's curves, and their name in it."""
    if row.group == REPLAY:
        game, _, way = row.name.removeprefix(f"{REPLAY}-").partition("-")
        return replays.picture(game), way
    if row.group == PARTS:
        return f"{PARTS}-of-rainbow", row.name.removeprefix(f"{PARTS}-")
    if row.group == CONTROL:
        return f"{CONTROL}-{row.env_id}", _learner(row).replace("`", "")
    if row.group == TARGETS:
        return re.sub("[/: ]", "_", row.task), row.name if row.settings else row.agent
    return f"{ABLATIONS}-{row.name.partition('-')[0]}", row.name


def _curve(run: dict[str, Any], label: str) -> RunLog:
    return RunLog(
        path=Path(),
        agent=label,
        env_id=run["env_id"],
        seed=run["seed"],
        target_return=run["target_return"],
        env_steps=tuple(point[0] for point in run["curve"]),
        returns=tuple(point[1] for point in run["curve"]),
        finished=None,
    )
