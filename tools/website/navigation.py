"""The navigation of the site, which docs/navigation.toml has."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass

from website import reference, tree

FILE = tree.ROOT / "docs" / "navigation.toml"


@dataclass(frozen=True)
class Section:
    """Pages under one caption; `below` has those that stand below one of them."""

    title: str
    pages: tuple[str, ...]
    below: dict[str, tuple[str, ...]]


def read() -> list[Section]:
    """The sections, in order."""
    return [
        Section(section["title"], tuple(section["pages"]), {page: _below(page) for page in section.get("lists", [])})
        for section in tomllib.loads(FILE.read_text())["section"]
    ]


def _below(page: str) -> tuple[str, ...]:
    """The pages of its folder that a page lists, in its order."""
    if page == reference.INDEX:
        return tuple(reference.PAGES)
    linked = tree.targets((tree.ROOT / page).read_text(), page).values()
    folder = page.rpartition("/")[0]
    return tuple(dict.fromkeys(path for path in linked if path.startswith(f"{folder}/") and path.endswith(".md")))


def paths(sections: list[Section]) -> list[str]:
    """The path of every page that the navigation names, the home page first."""
    return ["README.md", *(path for section in sections for path in _paths(section))]


def _paths(section: Section) -> Iterator[str]:
    for page in section.pages:
        yield page
        yield from section.below.get(page, ())


def contents(sections: list[Section]) -> dict[str, str]:
    """The tables of contents that the pages which others stand below end with, by their place on the site."""
    home = "\n".join(_toctree(section.pages, section.title, "index.md") for section in sections)
    inner = [item for section in sections for item in section.below.items()]
    return {"index.md": home, **{_place(page): _toctree(pages, "", _place(page)) for page, pages in inner}}


def _toctree(pages: tuple[str, ...], caption: str, place: str) -> str:
    title = [f":caption: {caption}"] if caption else []
    return "\n".join(["```{toctree}", ":hidden:", *title, "", *(f"/{_place(page)}" for page in pages), "```", ""])


def _place(page: str) -> str:
    return page if page.startswith("reference/") else tree.place(page)
