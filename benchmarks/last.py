"""The last whole run of each suite, as benchmarks/README.md has it: every row that has a target, and the plots.

The benchmarks write it when they end; `python -m benchmarks.last` does without running any.
"""

from __future__ import annotations

import re
from pathlib import Path

BEGIN, END = "<!-- written by the benchmarks, do not edit -->", "<!-- until here -->"
SECTION = re.compile(f"{BEGIN}.*?{END}", re.DOTALL)
WHOLE = {"network": " writer processes of ", "in-process": "| import, against"}
"""Text that only the table of a run of all rows has, by suite."""
TRAINING = {
    "train-pong": "training on Pong",
    "train": "training on CartPole-v1",
    "train-classic": "training from end to end",
}
HEADER = "| row | peer | ours | theirs | ratio | rounds | target | reached |\n|---|---|---|---|---|---|---|---|"


def write(readme: Path, results: Path) -> None:
    """Write the section of the page again. Raises ValueError where it has none."""
    page, count = SECTION.subn(lambda match: f"{BEGIN}\n\n{section(results)}\n{END}", readme.read_text())
    if count != 1:
        raise ValueError(f"{readme} has {count} sections between {BEGIN!r} and {END!r}, and needs one")
    readme.write_text(page)


def section(results: Path) -> str:
    """The newest tables of `results`, in Markdown; links are from the folder above it."""
    parts = []
    for suite, sign in WHOLE.items():
        table = newest(results, suite, sign)
        if table is not None:
            parts += [_heading(table, suite), HEADER + "\n" + "\n".join(with_targets(table.read_text()))]
            parts += [f"![{suite}]({results.name}/{plot.name})" for plot in sorted(results.glob(f"{table.stem}*.png"))]
    for kind, words in TRAINING.items():
        table = newest(results, kind)
        if table is not None:
            parts += [_heading(table, words), "\n\n".join(_tables(table.read_text()))]
    return "\n\n".join(parts) + "\n"


def newest(results: Path, kind: str, sign: str = "") -> Path | None:
    """The table of the newest run of a kind that has the sign; None where there is none."""
    found = sorted(results.glob(f"20*-{kind}.md"), reverse=True)
    return next((path for path in found if sign in path.read_text()), None)


def with_targets(table: str) -> list[str]:
    """The lines of a table that ask for something."""
    lines = [line for line in table.splitlines() if line.startswith("| ") and line.count("|") == 9]
    return [line for line in lines if line.split("|")[7].strip() not in ("-", "target")]


def _tables(text: str) -> list[str]:
    return [block for block in text.strip().split("\n\n") if block.startswith("|")]


def _heading(table: Path, words: str) -> str:
    date = re.sub(r"(\d{4}-\d\d-\d\d)-(\d\d)(\d\d)-.*", r"\1 \2:\3", table.stem)
    return f"**{words[:1].upper()}{words[1:]}**, {date}: [all rows]({table.parent.name}/{table.name})"


if __name__ == "__main__":
    here = Path(__file__).parent
    write(here / "README.md", here / "results")
