"""The page that shows what replay does: a table and a picture of each game, between texts that are written by hand."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from pathlib import Path

from .readmes import BEGIN, END, SECTION, NoSectionError, Results, thousands
from .rows import GAMES, ONLINE, REPLAY, REPLAYS, ROWS

WAYS = {
    "none": "drawn uniformly from the newest 32 steps",
    "uniform": "drawn uniformly from 100,000 steps",
    "three-steps": "the same, rewards of three steps",
    "priorities": "the same as the second row, by priority",
    "apex-dqn": "priorities, three steps, double, dueling",
    "rainbow": "these, a distribution of returns, and noisy layers",
    "sequences": "sequences of ten steps by priority, with a recurrent state",
}
"""What the rows of `REPLAYS` do with experience."""


def picture(game: str) -> str:
    """The name of a game's picture, without its suffix."""
    return f"{REPLAY}-{game}"


def name_of(game: str) -> str:
    """A game as people write it."""
    return game.replace("_", " ").title()


def text(page: Path, results: Results, folder: Path, score: Callable[[list[float]], str]) -> str:
    """The page with its section written again. Raises `NoSectionError`."""
    written = f"{BEGIN}\n{section(results, folder, page, score)}\n{END}"
    found, count = SECTION.subn(lambda match: written, page.read_text())
    if count != 1:
        raise NoSectionError(f"{page} has {count} sections between {BEGIN!r} and {END!r}, and needs one")
    return found


def section(results: Results, folder: Path, page: Path, score: Callable[[list[float]], str]) -> str:
    """The games that were run, one after another."""
    parts = []
    for game in GAMES:
        if any(results[f"{REPLAY}-{game}-{way}"] for way in REPLAYS):
            link = os.path.relpath(folder / f"{picture(game)}.png", page.parent)
            parts.append(f"## {name_of(game)}\n\n{table(game, results, score)}\n\n![greedy return over steps]({link})")
    return "\n\n".join(parts)


def table(game: str, results: Results, score: Callable[[list[float]], str]) -> str:
    """One line for each way to use experience again; ways that were not run say so."""
    out = ["| experience | agent | seeds | steps | mean of the curve | last weights |", "|---|---|---|---|---|---|"]
    for way, (agent, settings) in REPLAYS.items():
        runs = results[f"{REPLAY}-{game}-{way}"]
        start = f"| {WAYS[way]} | {', '.join([agent, *(f'`{setting}`' for setting in settings)])}"
        if not runs:
            out.append(f"{start} | not run yet | | | |")
            continue
        curves = [statistics.mean(point[1] for point in run["curve"]) for run in runs]
        last = [run["mean_return"] for run in runs]
        steps = thousands(ROWS[f"{REPLAY}-{game}-{way}"].by)
        out.append(f"{start} | {len(runs)} | {steps} | {score(curves)} | {score(last)} |")
    theirs = f"{GAMES[game]:g}; without replay {ONLINE[game]:g}"
    out.append(f"| DQN of Young & Tian 2019, read off their figure | - | 30 | 5000 k | - | {theirs} |")
    return "\n".join(out)
