"""The results in the agents' own READMEs, from the same files as docs/results.md."""

from __future__ import annotations

import re
from pathlib import Path

from reverie.agents import BUILT_IN

from .row import OFFLINE, TARGETS, Row
from .rows import ROWS
from .scores import Results, Run, last_weights, seeds
from .scores import reached as reaches

BEGIN, END = "<!-- written by make bench-learn, do not edit -->", "<!-- until here -->"
JUDGED = "How runs are judged, and more rows: [results](../../../../docs/results.md)."
SECTION = re.compile(f"{BEGIN}.*?{END}", re.DOTALL)


class NoSectionError(ValueError):
    """An agent's README has no place for its results."""


def texts(results: Results, agents: Path) -> dict[Path, str]:
    """The text of each README under `agents`, by path. Raises `NoSectionError`."""
    overview = agents / "README.md"
    found = {overview: with_cells(overview.read_text(), results)}
    for name in BUILT_IN:
        page = agents / name.replace("-", "_") / "README.md"
        table = agent_table(name, results)
        text, count = SECTION.subn(lambda match, table=table: f"{BEGIN}\n{table}\n\n{JUDGED}\n{END}", page.read_text())
        if count != 1:
            raise NoSectionError(f"{page} has {count} sections between {BEGIN!r} and {END!r}, and needs one")
        found[page] = text
    return found


def agent_table(agent: str, results: Results) -> str:
    """One line for each environment of an agent."""
    out = [
        "| environment | target, within steps | seeds | confirmed"
        " | confirmed after (steps of each seed; -: not confirmed)"
        " | mean return of the last weights (* on the episodes that confirm a target) |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in ROWS.items():
        if row.group in (TARGETS, OFFLINE) and row.agent == agent:
            where = row.where + (" (defaults)" if row.takes_defaults else "")
            out.append(f"| {where} | {row.reach:g}, {row.by:,} | {_cells(results[name])} |")
    return "\n".join(out)


def _cells(runs: list[Run]) -> str:
    if not runs:
        return "not run yet | | | "
    steps = ", ".join(thousands(run["env_steps"]) if run["confirmed"] else "-" for run in runs)
    steps = "no stop" if ROWS[runs[0]["row"]].until_max_steps else steps
    means = ", ".join(f"{last_weights(run)[0]:.3g}" + ("" if "score" in run else "*") for run in runs)
    reached = sum(map(reaches, runs))
    episodes = ", ".join(map(str, sorted({last_weights(run)[1] for run in runs})))
    return f"{seeds(runs)} | {reached} of {len(runs)} | {steps} | {means} (of {episodes})"


def with_cells(overview: str, results: Results) -> str:
    """The list of agents, each line's last cell written again where its environment was run."""
    # A row with settings of its own is not a result of the preset.
    rows = {(row.agent, row.task): name for name, row in ROWS.items() if row.group == TARGETS and not row.settings}
    lines, agent = overview.split("\n"), ""
    for index, line in enumerate(lines):
        cells = line.split("|")
        if len(cells) != 7:
            continue
        if named := re.match(r" \[`(\w+)`\]", cells[1]):
            agent = named[1].replace("_", "-")
        name = rows.get((agent, cells[4].strip()))
        if name is not None and results[name]:
            cells[5] = f" {summary(ROWS[name], results[name])} "
            lines[index] = "|".join(cells)
    return "\n".join(lines)


def summary(row: Row, runs: list[Run]) -> str:
    """A row in a few words."""
    steps = sorted(run["env_steps"] for run in runs if reaches(run))
    confirmed = f"{len(steps)} of {len(runs)} seeds"
    if not steps:
        return f"{row.reach:g}: {confirmed}"
    if row.until_max_steps:
        return (
            f"{row.reach:g} on {last_weights(runs[0])[1]} other episodes after {thousands(row.by)} steps: {confirmed}"
        )
    where = f"{thousands(steps[0])} to {thousands(steps[-1])} steps"
    return f"{row.reach:g} on {runs[0]['num_episodes']} other episodes: {where}, {confirmed}"


def thousands(steps: int) -> str:
    """Steps as a reader remembers them."""
    return f"{round(steps / 1000)} k"
