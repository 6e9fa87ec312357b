"""Files of the tree that the site shows: where the site has each of them, and their links as they are there."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<=\]\()([^)#\s]+)(?=(?:#[^)]*)?\))")
#: Pages whose place on the site is not that in the tree.
PLACES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "LICENSE": "project/license.md",
}
AGENTS = "python/reverie/agents/"
#: Endings of files that a page of their own shows, with the language of their text.
SHOWN = {
    ".py": "python",
    ".rs": "rust",
    ".rb": "ruby",
    ".proto": "protobuf",
    "": "text",
    ".yml": "yaml",
    ".service": "ini",
}
#: Endings of files that the site has as they are.
COPIED = {".png", ".svg", ".json"}
#: The folder with a folder for each row of the results, and in it a file for each seed.
RUNS = ROOT / "benchmarks" / "results" / "learn"
#: A page that the search leaves out and that no navigation names.
UNLISTED = "---\norphan: true\nnosearch: true\n---\n\n"


class LinkError(Exception):
    """A page links to a file that the site does not show."""


def place(path: str) -> str:
    """The place on the site of a file or folder of the tree.

    Raises:
        LinkError: the site shows no files of this kind.
    """
    if path in PLACES:
        return PLACES[path]
    file = ROOT / path
    inner = path.removeprefix("docs/")
    if path.startswith(AGENTS) and file.name == "README.md":
        name = file.parent.name
        return "agents/index.md" if name == "agents" else f"agents/{name}.md"
    if file.is_dir():
        return f"{inner}/index.md"
    if file.suffix == ".md":
        return re.sub(r"README\.md$", "index.md", inner)
    if file.suffix in COPIED:
        return inner
    if file.suffix in SHOWN:
        return f"{inner if path.startswith('examples/') else f'source/{inner}'}.md"
    raise LinkError(f"a page links to {path}: add {file.suffix} to SHOWN or COPIED in tools/website/tree.py")


def targets(text: str, path: str) -> dict[str, str]:
    """Each link of the page at `path` to a file or folder of the tree, with that file's path."""
    found = {}
    for link in LINK.findall(text):
        target = os.path.normpath(os.path.join(os.path.dirname(path), link))
        if "://" not in link and not target.startswith("..") and (ROOT / target).exists():
            readme = f"{target}/README.md"
            found[link] = readme if (ROOT / readme).is_file() else target
    return found


def moved(text: str, path: str) -> str:
    """The text of the page at `path` with links that work at its place on the site."""
    found, folder = targets(text, path), os.path.dirname(place(path)) or "."
    return LINK.sub(lambda link: os.path.relpath(place(found[link[0]]), folder) if link[0] in found else link[0], text)


def reachable(start: list[str]) -> list[str]:
    """Paths of the files and folders that these pages link to, and their links in turn, with these pages."""
    seen, pending = dict.fromkeys(start), list(start)
    while pending:
        path = pending.pop()
        for target in _links(path):
            if target not in seen:
                seen[target] = None
                pending.append(target)
    return list(seen)


def _links(path: str) -> Iterator[str]:
    file = ROOT / path
    if file.is_dir():
        yield from (f"{path}/{name}" for name in _listed(file))
    elif file.suffix == ".md":
        yield from targets(file.read_text(), path).values()


def text_of(path: str, *, listed: bool) -> str:
    """The Markdown that shows a page, a file or a folder; `listed`: the navigation names it."""
    file = ROOT / path
    head = "" if listed else UNLISTED
    if file.is_dir():
        return head + _folder(path)
    if file.suffix == ".md":
        return head + moved(file.read_text(), path)
    if path.startswith("examples/"):
        head = head.replace("nosearch: true\n", "")
    name = "License" if path == "LICENSE" else path
    return f"{head}# {name}\n\n{_summary(file)}\n\n````{SHOWN[file.suffix]}\n{file.read_text()}````\n"


def _listed(folder: Path) -> list[str]:
    """The files that the page of a folder lists."""
    endings = {".md"} if folder.is_relative_to(ROOT / "benchmarks") else {".md", ".py", ".rb"}
    if folder.is_relative_to(RUNS) and folder != RUNS:
        endings = {".json"}
    found = (file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.suffix in endings)
    return sorted(name for name in found if not name.rpartition("/")[2].startswith("_"))


def _folder(path: str) -> str:
    rows = []
    for name in _listed(ROOT / path):
        file = ROOT / path / name
        link = os.path.relpath(place(f"{path}/{name}"), os.path.dirname(place(path)))
        title = file.read_text().partition("\n")[0].removeprefix("# ") if file.suffix == ".md" else name
        summary = f": {text}" if (text := _summary(file)) else ""
        rows.append(f"- [{title}]({link}){summary}")
    heading = path.removeprefix("docs/").rpartition("/")[2].capitalize()
    return f"# {heading}\n\n" + "\n".join(rows) + "\n"


def _summary(file: Path) -> str:
    """The first paragraph of a script's docstring, or of the comment at its head."""
    text = file.read_text()
    if file.suffix == ".py":
        text = ast.get_docstring(ast.parse(text)) or ""
    elif file.suffix == ".rb":
        text = re.sub(r"(?m)^# ?", "", re.match(r"(?:#.*\n)*", text)[0])
    else:
        return ""
    return " ".join(text.partition("\n\n")[0].split())
