"""Functions and classes of a user's own code that settings name as `module:name`, with arguments if they have any."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from reverie._picklable import Picklable
from reverie.agents.error_places import place_of, warn


class PartError(Picklable, ValueError):
    """A part that a setting names is malformed or cannot be imported. `.reference`, `.reason`"""

    def __init__(self, reference: object, reason: str) -> None:
        self.reference, self.reason = reference, reason
        super().__init__(f"{reference!r} {reason}")


def reference_of(part: object) -> str:
    """The text `module:name` of a part, which may be that text already, with arguments: `module:name(size=3)`.

    Raises `PartError` for a malformed text and for a function or class that other processes cannot import by its name:
    one that has no name, such as a lambda, or a name under which its module has something else.
    """
    if isinstance(part, str):
        _parsed(part)
        return part
    module, name = getattr(part, "__module__", None), getattr(part, "__qualname__", None)
    if not callable(part) or module is None or name is None:
        raise PartError(part, "is neither a text module:name nor a function or class")
    if "<" in name:
        raise PartError(
            part,
            "is a lambda or defined within a function, and other processes import it by name: define it at the top of a"
            " module",
        )
    if _found(module, name) != part:
        raise PartError(
            part,
            f"is not what {module}:{name} is, the name by which other processes import it: define it under its own name"
            " at the top of a module",
        )
    if module == "__main__":
        warn(
            f"{name} is defined in the program itself, and checkpoints and policies that name it load in this program"
            " only: define it in a module"
        )
    return f"{module}:{name}"


def _found(module: str, name: str) -> object:
    """The object that a module of this process has under the name, which may have dots; None if it has none."""
    found: object = sys.modules.get(module)
    for one in name.split("."):
        found = getattr(found, one, None)
    return found


class ResolvedPart(NamedTuple):
    """A part and the arguments of its reference."""

    part: Callable[..., Any]
    arguments: list[Any]
    options: dict[str, Any]


def resolve(reference: str) -> ResolvedPart:
    """The function or class that a reference names. Raises `PartError` if it cannot be imported."""
    module, names, arguments, options = _parsed(reference)
    try:
        found: Any = importlib.import_module(module)
        for name in names:
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        own = module == "__main__"
        where = "; it was defined in the program that named it: define it in a module of its own" if own else ""
        raise PartError(reference, f"cannot be imported: {error}{where}") from error
    except Exception as error:  # of the module's own code
        raise PartError(reference, f"cannot be imported: {place_of(error)}") from error
    if not callable(found):
        raise PartError(reference, f"is a {type(found).__name__}, and must be a function or class")
    return ResolvedPart(found, arguments, options)


def load_part(reference: str) -> Callable[..., Any]:
    """The part, which fills in the arguments of its reference. Raises `PartError` if it cannot be imported."""
    part, arguments, options = resolve(reference)
    return lambda *first, **more: (
        part(*first, *arguments, **{**options, **more}) if arguments or options else part(*first, **more)
    )


def task_and_options(text: str) -> tuple[str, dict[str, Any]]:
    """The name and the literal options of `name(option=3)`, where the name may be any text without brackets.

    Raises `PartError` for options that are not literals with names.
    """
    name, bracket, _ = text.partition("(")
    if not bracket:
        return text, {}
    _, _, arguments, options = _parsed(f"task:named{text[len(name) :]}")
    if arguments:
        raise PartError(text, "has an argument without a name: write name=value")
    return name, options


def _parsed(reference: str) -> tuple[str, list[str], list[Any], dict[str, Any]]:
    """Module, the names within it, and the literal arguments."""
    module, _, call = reference.partition(":")
    try:
        tree = ast.parse(call, mode="eval").body
        arguments: list[Any] = []
        options: dict[str, Any] = {}
        if isinstance(tree, ast.Call):
            arguments = [ast.literal_eval(one) for one in tree.args]
            options = {str(one.arg): ast.literal_eval(one.value) for one in tree.keywords if one.arg is not None}
            if len(options) < len(tree.keywords):
                raise ValueError
            tree = tree.func
        names = ast.unparse(tree).split(".")
    except (SyntaxError, ValueError):
        names = []
    if not names or not all(one.isidentifier() for one in [*module.split("."), *names]):
        raise PartError(reference, "is malformed: write module:name, or module:name(size=3) with literal arguments")
    return module, names, arguments, options
