"""Every exception of the package, as another process gets it."""

from __future__ import annotations

import functools
import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import reverie
from reverie import errors

pytest.importorskip("torch")

MAKES: dict[str, Any] = {
    "Any": "anything",
    "Callable[[str], str]": str.upper,
    "EnvironmentCrash": ("reverie.agents.core", "EnvironmentCrash", ("CartPole-v1", 3, 17, "ValueError: no")),
    "Mapping[str, int]": {"replay": 100, "networks": 5},
    "Mapping[str, float]": {"learning_rate": 0.5},
    "Path": Path("runs/a"),
    "Path | None": Path("runs/b"),
    "Sequence[SettingChange]": [("reverie.runners.checkpoints.setting_changes", "SettingChange", ("a", 1, 2, "no"))],
    "Weights | None": None,
    "bool": True,
    "float": 2.5,
    "int": 5,
    "int | None": 6,
    "list[Any] | None": [1, 2],
    "list[str] | None": ["a", "b"],
    "object": 7,
    "str": "a text",
    "tuple[str, ...]": ("near", "nearer"),
}
"""An argument for each annotation of a constructor. A triple is a class, by module and name, and its arguments."""


def modules() -> Iterator[Any]:
    for found in pkgutil.walk_packages(reverie.__path__, "reverie."):
        if found.name.endswith("__main__"):
            continue
        try:
            yield importlib.import_module(found.name)
        except ImportError as error:
            if "pip install" not in str(error):  # what is missing is no optional dependency
                raise


@functools.cache
def exceptions() -> list[type[BaseException]]:
    defined = (value for module in modules() for value in vars(module).values() if inspect.isclass(value))
    ours = {one for one in defined if issubclass(one, BaseException) and one.__module__.startswith("reverie.")}
    return sorted(ours, key=lambda one: f"{one.__module__}.{one.__qualname__}")


def argument(value: Any) -> Any:
    if isinstance(value, list):
        return [argument(one) for one in value]
    if isinstance(value, tuple) and len(value) == 3 and str(value[0]).startswith("reverie."):
        module, name, args = value
        return getattr(importlib.import_module(module), name)(*args)
    return value


def made(kind: type[BaseException]) -> BaseException:
    if kind.__name__ == "NoRoomError":
        from reverie.agents.apex_dqn import agent
        from reverie.runners import plan

        topology = plan(agent, "CartPole-v1", runner="ray", check_memory=False)
        return kind(topology, topology.places[0], [], 0)
    if "__init__" not in {name for base in kind.__mro__ if base.__module__ != "builtins" for name in vars(base)}:
        return kind("a text")
    given, by_name = [], {}
    for one in inspect.signature(kind).parameters.values():
        value = argument(MAKES[str(one.annotation).strip("'")])
        if one.kind is one.KEYWORD_ONLY:
            by_name[one.name] = value
        else:
            given.append(value)
    return kind(*given, **by_name)


def test_every_exception_is_in_another_process_what_it_was():
    """It keeps text, arguments, attributes and notes; only an insert's unknown outcome can no longer be asked for."""
    found = exceptions()
    assert len(found) > 40
    for kind in found:
        error = made(kind)
        error.later = "added"  # type: ignore[attr-defined]
        error.__notes__ = ["a note"]
        again = pickle.loads(pickle.dumps(error))
        expected = vars(error) | ({"outcome": None} if kind is errors.UnknownOutcomeError else {})
        assert type(again) is kind
        assert (str(again), again.args, vars(again)) == (str(error), error.args, expected), kind


def fails() -> None:
    raise made(importlib.import_module("reverie.runners").CheckpointError)


def test_an_exception_of_a_run_in_a_pool_of_processes_reaches_the_caller():
    runners = importlib.import_module("reverie.runners")
    with (
        ProcessPoolExecutor(1, mp_context=get_context("forkserver")) as pool,
        pytest.raises(runners.CheckpointError, match="checkpoint runs/a a text"),
    ):
        pool.submit(fails).result(timeout=60)


def test_no_exception_brings_a_reduction_of_its_own():
    own = {kind.__name__ for kind in exceptions() if "__reduce__" in vars(kind)}
    assert own == {"UnknownOutcomeError"}, "its outcome is a handle of this process"
