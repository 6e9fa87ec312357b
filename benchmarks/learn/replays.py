"""The page that shows what replay does: a table and a picture of each game, between texts that are written by hand."""

from __future__ import annotations

import os
from pathlib import Path

from . import unfinished
from .links import Link, to_results, unlinked
from .readmes import BEGIN, END, SECTION, NoSectionError, thousands
from .row import LONG, REPLAY
from .rows import GAMES, LONG_GAME, LONG_STEPS, LONG_WAYS, ONLINE, REPLAYS, ROWS
from .scores import Results, Run, last_weights, mark, mean, mean_of_curve, of_last_weights, score, seeds, where

WAYS = {
    "none": "drawn uniformly from the newest 32 steps",
    "uniform": "drawn uniformly from 100,000 steps",
    "three-steps": "the same, rewards of three steps",
    "priorities": "the same as the second row, by priority",
    "apex-dqn": "priorities, three steps, double, dueling",
    "rainbow": "these, a distribution of returns, and noisy layers",
    "sequences": "sequences of ten steps by priority, with a recurrent state",
}
"""How the rows of `REPLAYS` use experience."""
LONG_PICTURE = f"{LONG}-{LONG_GAME}"
"""The name of the picture of the longest runs, without its suffix."""
MILLION = 1_000_000


def picture(game: str) -> str:
    """The name of a game's picture, without its suffix."""
    return f"{REPLAY}-{game}"


def name_of(game: str) -> str:
    """A game as people write it."""
    return game.replace("_", " ").title()


def text(page: Path, results: Results, so_far: Results, folder: Path) -> str:
    """The page with its section written again. Raises `NoSectionError`."""
    written = f"{BEGIN}\n{section(results, so_far, folder, page)}\n{END}"
    found, count = SECTION.subn(lambda match: written, page.read_text())
    if count != 1:
        raise NoSectionError(f"{page} has {count} sections between {BEGIN!r} and {END!r}, and needs one")
    return found


def section(results: Results, so_far: Results, folder: Path, page: Path) -> str:
    """The games that were run, one after another."""
    parts = []
    for game in GAMES:
        names = [f"{REPLAY}-{game}-{way}" for way in REPLAYS]
        if any(results[name] or so_far[name] for name in names):
            drawn = os.path.relpath(folder / f"{picture(game)}.png", page.parent)
            shown = table(game, results, so_far, to_results(folder, page))
            parts.append(f"## {name_of(game)}\n\n{shown}\n\n![greedy return over steps]({drawn})")
    names = [f"{LONG}-{LONG_GAME}-{way}" for way in LONG_WAYS]
    if any(results[name] or so_far[name] for name in names):
        drawn = os.path.relpath(folder / f"{LONG_PICTURE}.png", page.parent)
        shown = long_table(results, so_far, to_results(folder, page))
        parts.append(f"{long_head()}\n\n{shown}\n\n{theirs(LONG_GAME)}\n\n![greedy return over steps]({drawn})")
    return "\n\n".join(parts)


def table(game: str, results: Results, so_far: Results, link: Link = unlinked) -> str:
    """One line for each way to use experience again, and for each interrupted run; ways not run are marked."""
    out = [
        "| experience | agent | seeds | steps | mean of the curve | last weights | processor; date |",
        "|---|---|---|---|---|---|---|",
    ]
    for way in REPLAYS:
        row = ROWS[f"{REPLAY}-{game}-{way}"]
        runs = results[row.name]
        learner = link(row.learner, row.name) if runs or so_far[row.name] else row.learner
        start = f"| {WAYS[way]} | {learner}"
        if runs:
            curves = [mean_of_curve(row, run) for run in runs]
            means = [score(curves), score(of_last_weights(runs)) + mark(runs)]
            out.append(" | ".join([start, seeds(runs), thousands(row.by), *means, where(runs)]) + " |")
        out.extend(" | ".join([start, *unfinished.cells(row, run), where([run])]) + " |" for run in so_far[row.name])
        if not runs and not so_far[row.name]:
            out.append(f"{start} | not run yet | | | | |")
    return "\n".join([*out, "", " ".join(filter(None, [best(game, results), theirs(game)]))])


def long_head() -> str:
    """The heading and the text above the table of the longest runs."""
    return (
        f"## {name_of(LONG_GAME)}, {LONG_STEPS // MILLION} million steps\n\n"
        "The second row and Rainbow, trained five times as long, one seed each: an illustration. A cell is the mean of"
        " the curve within one million steps, from 20 points."
    )


def long_table(results: Results, so_far: Results, link: Link = unlinked) -> str:
    """One line for each run, with the mean of its curve for every million steps; "-" where a run is unfinished."""
    millions = range(1, LONG_STEPS // MILLION + 1)
    heads = ["agent", "seed", *(f"{number - 1} to {number} M" for number in millions)]
    out = [f"| {' | '.join([*heads, 'last weights', 'processor; date'])} |", "|---" * (len(heads) + 2) + "|"]
    for way in LONG_WAYS:
        name = f"{LONG}-{LONG_GAME}-{way}"
        for run in [*results[name], *so_far[name]]:
            finished = run in results[name]
            last = f"{last_weights(run)[0]:.1f}{mark([run])}" if finished else unfinished.cells(ROWS[name], run)[-1]
            seed = str(run["seed"]) if finished else ", ".join(unfinished.cells(ROWS[name], run)[:2])
            cells = [link(ROWS[name].learner, name), seed, *(_of_million(run, number) for number in millions), last]
            out.append(f"| {' | '.join([*cells, where([run])])} |")
        if not results[name] and not so_far[name]:
            out.append(f"| {ROWS[name].learner} | not run yet |{' |' * (len(heads))}")
    return "\n".join(out)


def _of_million(run: Run, number: int) -> str:
    """The mean of a curve's part that ends after `number` million steps; "-" where it ends earlier."""
    row, end = ROWS[run["row"]], number * MILLION
    if run["curve"][-1][0] < end:
        return "-"
    points = [point for point in row.points if end - MILLION < point <= end]
    return f"{mean_of_curve(row, run, points):.1f}"


FEWEST_SEEDS = 3
"""Seeds with which a row must have been run before a sentence compares it."""
LABELS = {
    "none": "DQN on the newest 32 steps",
    "three-steps": "DQN with rewards of three steps",
    "priorities": "DQN with priorities",
    "apex-dqn": "Ape-X DQN",
    "rainbow": "Rainbow",
    "sequences": "R2D2",
}
"""The rows of `REPLAYS` in a sentence, except for the one that the others are compared with."""


def best(game: str, results: Results) -> str:
    """The way with the best last weights next to DQN's, in words; empty until both were run with enough seeds."""
    rows = {way: ROWS[f"{REPLAY}-{game}-{way}"] for way in REPLAYS}
    means = {
        way: (mean(of_last_weights(runs)), mean([mean_of_curve(row, run) for run in runs]))
        for way, row in rows.items()
        if len(runs := results[row.name]) >= FEWEST_SEEDS
    }
    uniform = means.pop("uniform", None)
    if uniform is None or not means:
        return ""
    way = max(means, key=lambda way: means[way])
    last, curve = (mine / theirs for mine, theirs in zip(means[way], uniform, strict=True))
    seeds_each = f"at least {FEWEST_SEEDS} seeds"
    if len(means) == 1:
        start = (
            f"Only the second row and {LABELS[way]} have {seeds_each}. {LABELS[way]}'s return of the last weights is"
        )
    else:
        start = (
            f"Among the rows with {seeds_each}, apart from the second, {LABELS[way]} has the highest return of the last"
            " weights:"
        )
    return f"{start} {last:.2f} times that of the second row, and its mean of the curve {curve:.2f} times."


def theirs(game: str) -> str:
    """The results of the authors of the games, in a sentence, since they measure something else."""
    return (
        f"Young & Tian 2019 have {GAMES[game]:g} with DQN and {ONLINE[game]:g} without replay after 5 million steps"
        " (read off their figure, +-1; 30 seeds)."
    )
