"""Docstrings as Markdown: their sections become lists, and what is no Markdown in them stays as it is."""

from __future__ import annotations

import re
from collections.abc import Collection
from inspect import cleandoc

SECTIONS = {
    "Args": "Arguments",
    "Attributes": "Attributes",
    "Raises": "Raises",
    "Returns": "Returns",
    "Yields": "Yields",
}
HEAD = re.compile(rf"^({'|'.join(SECTIONS)}):$", re.MULTILINE)
CODE = re.compile(r"(```.*?```|``.+?``|`[^`]+`)", re.DOTALL)
ITEM = re.compile(r"^(\*{0,2}\w[\w.]*(?:, \*{0,2}\w[\w.]*)*): ?")


#: The name of an exception.
RAISED = re.compile(r"\b([A-Z]\w*(?:Error|Warning))\b")


def markdown(docstring: str, errors: Collection[str] = ()) -> str:
    """The text of a docstring; of what it raises, the names in `errors` become links to the reference."""
    parts = HEAD.split(cleandoc(docstring))
    text = [escaped(parts[0].strip())]
    for section, body in zip(parts[1::2], parts[2::2], strict=True):
        inner, after = _inner(body)
        shown = _list(inner) if section in ITEMIZED else escaped(inner)
        if section == "Raises":
            shown = RAISED.sub(lambda name: _link(name[1]) if name[1] in errors else name[1], shown)
        text.append(f"**{SECTIONS[section]}**\n\n{shown}")
        text += [escaped(after)] if after else []
    return "\n\n".join(part for part in text if part)


ITEMIZED = ("Args", "Attributes", "Raises")


def _link(error: str) -> str:
    return f"{{py:obj}}`{error} <reverie.{error}>`"


def _inner(body: str) -> tuple[str, str]:
    """The indented text of a section, and what follows it."""
    lines = body.strip("\n").split("\n")
    end = next((number for number, line in enumerate(lines) if line and not line.startswith(" ")), len(lines))
    return cleandoc("\n".join(lines[:end])).strip(), "\n".join(lines[end:]).strip()


def _list(text: str) -> str:
    """Names with what is said of them, one for each line that is not indented further."""
    items = re.split(r"\n(?=\S)", text)
    return "\n".join(f"- {_item(item)}" for item in items)


def _item(item: str) -> str:
    names = ITEM.match(item)
    if names is None or RAISED.match(item):
        return escaped(re.sub(r"\n\s+", "\n  ", item))
    shown = ", ".join(f"`{name}`" for name in names[1].split(", "))
    return f"{shown}: {escaped(re.sub(chr(10) + ' +', chr(10) + '  ', item[names.end() :]))}"


def escaped(text: str) -> str:
    """The text with every sign outside of code that Markdown would take for its own."""
    pieces = CODE.split(text)
    return "".join(
        piece if number % 2 else re.sub(r"([*_<\[\]|{}])", r"\\\1", piece) for number, piece in enumerate(pieces)
    )
