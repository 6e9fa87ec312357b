"""docs/glossary.md explains the words that other pages use without explaining them."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
#: The six words, and those that a reader looked for.
WORDS = [
    *("append", "chunk", "item", "table", "sample", "batch", "preset", "role", "shard", "parameter shard", "bundle"),
    *("unroll", "screening episodes", "confirmation episodes", "confirmed", "lease", "ladder", "journal"),
]


def words() -> list[str]:
    rows = re.findall(r"^\| (?!word|---)([^|]+) \| [^|]+ \|$", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    return [word for row in rows for word in row.split(", ")]


def test_the_glossary_has_the_words_and_each_once() -> None:
    assert [word for word in WORDS if word not in words()] == []
    assert len(words()) == len(set(words()))


def test_each_word_of_the_glossary_is_used_on_another_page() -> None:
    pages = [page.read_text().lower() for page in DOCS.rglob("*.md") if page.name != "glossary.md"]
    assert [word for word in words() if not any(word in page for page in pages)] == []
