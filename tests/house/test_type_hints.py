"""The hints of every public name can be evaluated, as Sphinx, pydantic and typer do."""

from __future__ import annotations

import functools
import importlib
import inspect
import subprocess
import sys
import typing
from pathlib import Path
from types import FunctionType

import pytest

pytest.importorskip("torch")
pytest.importorskip("gymnasium")
pytest.importorskip("hypothesis")

import reverie

TOOLS = Path(__file__).parents[2] / "tools"
OPTIONAL = {"reverie.integrations.rllib": "ray.rllib", "reverie.integrations.tianshou": "tianshou"}
"""Modules that need a package which is not everywhere."""


def documented() -> list[str]:
    sys.path.insert(0, str(TOOLS))
    try:
        reference = importlib.import_module("website.reference")
    finally:
        sys.path.remove(str(TOOLS))
    return list(dict.fromkeys([*(name for page in reference.PAGES for name in reference.names(page)), *reference.SAME]))


def found(name: str) -> object:
    """The object of a public name; its module is the longest beginning that can be imported."""
    module, _, attribute = name.rpartition(".")
    if module in OPTIONAL:
        pytest.importorskip(OPTIONAL[module])
    try:
        return getattr(importlib.import_module(module), attribute)
    except ImportError:
        return getattr(found(module), attribute)


def functions_of(kind: type) -> dict[str, FunctionType]:
    """The constructor and the public methods and properties of a class, of the package's own base classes too."""
    methods: dict[str, FunctionType] = {}
    for base in kind.__mro__:
        if not base.__module__.startswith("reverie"):
            continue
        for name, value in vars(base).items():
            function = value
            if isinstance(value, staticmethod | classmethod):
                function = value.__func__
            elif isinstance(value, property):
                function = value.fget
            elif isinstance(value, functools.cached_property):
                function = value.func
            if isinstance(function, FunctionType) and (name in ("__init__", "__call__") or not name.startswith("_")):
                methods.setdefault(name, function)
    return methods


@pytest.mark.parametrize("name", documented())
def test_the_hints_of_a_public_name_can_be_evaluated(name: str) -> None:
    one = found(name)
    if isinstance(one, type):
        typing.get_type_hints(one)
        for method, function in functions_of(one).items():
            assert typing.get_type_hints(function) is not None, method
    elif inspect.isfunction(one):
        typing.get_type_hints(one)


def test_hints_are_the_types_themselves_though_the_package_imports_them_late() -> None:
    from reverie.agents.agent import Agent
    from reverie.agents.policies import TrainedPolicy

    hints = typing.get_type_hints(reverie.load_policy)
    assert hints == {"path": Path | str, "agent": Agent | str | None, "seed": int, "return": TrainedPolicy}
    assert typing.get_type_hints(reverie.Table.info.fget)["return"] is reverie.TableInfo


def test_the_types_of_a_package_that_is_missing_are_any() -> None:
    code = (
        "import sys, typing\n"
        "sys.modules['gymnasium'] = None\n"
        "import reverie\n"
        "assert typing.get_type_hints(reverie.load_policy)['return'] is typing.Any\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_hints_of_the_client_are_found_in_its_base_classes() -> None:
    assert "info" in functions_of(reverie.Client)
    assert typing.get_type_hints(functions_of(reverie.Client)["info"])
