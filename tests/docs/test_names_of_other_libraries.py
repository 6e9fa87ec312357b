"""The names of other libraries in docs/guides/training.md are those that `reverie.train` recognises."""

from __future__ import annotations

import re
from pathlib import Path

from reverie.agents.synonyms import HINTS, SYNONYMS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "training.md"


def rows() -> list[tuple[str, tuple[str, ...], str]]:
    """Each name of another library, the settings here, and how they differ."""
    section = PAGE.read_text().partition("\n## Names of other libraries\n")[2]
    cells = re.findall(r"^\| (`[^|]+) \| (`[^|]+) \| ?(.*?) ?\|$", section, re.MULTILINE)
    words = [(re.findall(r"`(\w+)`", there), tuple(re.findall(r"`(\w+)`", here)), text) for there, here, text in cells]
    return [(name, here, text) for names, here, text in words for name in names]


def test_the_table_has_each_name_with_its_setting_and_the_difference() -> None:
    known = [(name, settings, "") for name, settings in SYNONYMS.items()]
    known += [(name, (hint.setting,), hint.words) for hint in HINTS for name in hint.names]
    assert sorted(rows()) == sorted(known)
