"""Classes, functions and values of the package as Markdown, from source and stubs; nothing is imported."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import griffe

from website import docstrings

PYTHON = Path(__file__).resolve().parents[2] / "python"
#: Methods with two underscores that a program calls by an operator or a call.
OPERATORS = ("__call__", "__getitem__", "__len__", "__iter__")
SELF = ("self", "cls")


@cache
def _package() -> griffe.Module:
    return griffe.load("reverie", search_paths=[PYTHON], allow_inspection=False, resolve_aliases=True)


def find(name: str) -> Any:
    """The class, function or value of a dotted name.

    Raises:
        LookupError: the package has no such name.
    """
    found: Any = _package()
    for part in name.removeprefix("reverie.").split("."):
        if part not in found.members:
            raise LookupError(f"the reference names {name}, and {found.path} has no {part}")
        found = found.members[part]
    while found.is_alias:
        found = found.final_target
    # A function of the name of its module: the package has the function.
    return found.members[found.name] if found.is_module else found


def described(name: str) -> str:
    """The Markdown of one public name, with a class's public members."""
    found, name = find(name), name.removeprefix("reverie.")
    if found.is_class:
        return _class(name, found)
    return _function(name, found, "function") if found.is_function else _value(name, found, "data")


def _class(name: str, found: Any) -> str:
    kind = "exception" if any("Error" in str(base) or "Warning" in str(base) for base in found.bases) else "class"
    members = found.all_members
    maker = next((members[make] for make in ("__init__", "__new__") if make in members), None)
    signature = "" if maker is None or _native(maker) else _parameters(maker)
    text = [f"::::{{py:{kind}}} {name}{signature}", "", _markdown(_text(found)), ""]
    for member, target in _members(found):
        if target.is_function:
            text.append(_function(member, target, "method", overloads=_overloads(found, member)))
        elif target.is_attribute:
            text.append(_value(member, target, "property" if "property" in target.labels else "attribute"))
    return "\n".join([*text, "::::", ""])


def _native(maker: Any) -> bool:
    """Whether a class is made by a method of the client, which has the arguments: the class itself takes handles."""
    while maker.is_alias:
        maker = maker.final_target
    return str(maker.path).startswith("reverie._native.")


def _members(found: Any) -> Iterator[tuple[str, Any]]:
    """Public members, the inherited ones too; those that are only overloaded as well."""
    members = found.all_members
    overloaded = {name for base in (found, *found.mro()) for name in base.overloads}
    for name in (*members, *sorted(overloaded - members.keys())):
        if name.startswith("_") and name not in OPERATORS:
            continue
        member = members.get(name) or _overloads(found, name)[0]
        while member.is_alias:
            member = member.final_target
        # A member with neither a type nor a text is an attribute that the text of its class describes.
        bare = member.docstring is None and (name in OPERATORS or (member.is_attribute and member.annotation is None))
        if not bare:
            yield name, member


def _overloads(found: Any, name: str) -> list[Any]:
    for base in (found, *found.mro()):
        if base.overloads.get(name):
            return list(base.overloads[name])
        if name in base.members:
            return []
    return []


def _function(name: str, found: Any, kind: str, overloads: list[Any] | None = None) -> str:
    forms = overloads or [found]
    text = next((_text(form) for form in (*forms, found) if _text(form)), "")
    first, *others = (f"{name}{_parameters(form)}{_arrow(form)}" for form in forms)
    options = [":classmethod:"] if "classmethod" in found.labels else []
    options += [":staticmethod:"] if "staticmethod" in found.labels else []
    if others:  # Several signatures of one directive stand below each other.
        first = "\n".join([first, *others])
    return "\n".join([f":::{{py:{kind}}} {first}", *options, "", _markdown(text), ":::", ""])


def _value(name: str, found: Any, kind: str) -> str:
    options = [f":type: {_one_line(found.annotation)}"] if found.annotation is not None else []
    if kind == "data" and found.value is not None and len(_one_line(found.value)) < 200:
        options.append(f":value: {_one_line(found.value)}")
    return "\n".join([f":::{{py:{kind}}} {name}", *options, "", _markdown(_text(found)), ":::", ""])


def _markdown(text: str) -> str:
    return docstrings.markdown(text, [name for name in _package().members if name.endswith(("Error", "Warning"))])


def _text(found: Any) -> str:
    """The docstring of an object, or else the comment above it that starts with `#:`."""
    if found.docstring is not None:
        return str(found.docstring.value)
    if not found.is_attribute or found.lineno is None:
        return ""
    lines: list[str] = []
    for line in reversed(found.lines_collection[found.filepath][: found.lineno - 1]):
        if not line.strip().startswith("#:"):
            break
        lines.insert(0, line.strip()[2:].strip())
    return "\n".join(lines)


def _arrow(found: Any) -> str:
    return "" if found.returns is None else f" -> {_one_line(found.returns)}"


def _one_line(expression: Any) -> str:
    return re.sub(r"\s+", " ", str(expression)).replace("npt.", "").replace("_native.", "")


def _parameters(found: Any) -> str:
    """The signature as Python writes it, without `self`."""
    shown, starred, positional = [], False, False
    for parameter in found.parameters:
        kind = parameter.kind.value if parameter.kind else ""
        if parameter.name in SELF and not shown:
            continue
        if positional and kind != "positional-only":
            shown, positional = [*shown, "/"], False
        positional = kind == "positional-only"
        if kind == "keyword-only" and not starred:
            shown, starred = [*shown, "*"], True
        starred |= kind == "variadic positional"
        shown.append(_parameter(parameter, kind))
    return f"({', '.join([*shown, '/'] if positional else shown)})"


def _parameter(parameter: Any, kind: str) -> str:
    star = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
    text = f"{star}{parameter.name}"
    if parameter.annotation is not None:
        text += f": {_one_line(parameter.annotation)}"
    if parameter.default is not None and not star:
        text += f" = {_one_line(parameter.default)}"
    return text
