"""Writes the Markdown of every page of the site into a folder, from which Sphinx makes HTML.

usage: PYTHONPATH=tools python -m website.stage FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from website import command_line, navigation, reference, settings, tree


def pages() -> dict[str, str | Path]:
    """Each page's Markdown, and the file that is to be copied, by its place on the site."""
    made: dict[str, str] = {
        **reference.pages(),
        command_line.PAGE: command_line.page(),
        settings.PAGE: settings.page(),
    }
    sections = navigation.read()
    listed = [path for path in navigation.paths(sections) if path not in made]
    found: dict[str, str | Path] = dict(made)
    for path in tree.reachable(listed):
        copied = Path(path).suffix in tree.COPIED
        place = tree.place(path)
        found[place] = tree.ROOT / path if copied else tree.text_of(path, listed=path in listed)
    for place, contents in navigation.contents(sections).items():
        found[place] = f"{found[place]}\n{contents}"
    return found


def write(folder: Path) -> None:
    """Brings a folder to these pages. Unchanged files keep their times, so that Sphinx skips them."""
    wanted = pages()
    for file in [file for file in folder.rglob("*") if file.is_file()]:
        if file.relative_to(folder).as_posix() not in wanted:
            file.unlink()
    for place, content in wanted.items():
        file, data = folder / place, content.encode() if isinstance(content, str) else content.read_bytes()
        if not file.is_file() or file.read_bytes() != data:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
