"""docs/guides/errors.md names every public error, and attributes that it has."""

from __future__ import annotations

import importlib
import pkgutil
import re
from contextlib import suppress
from pathlib import Path

import pytest

import reverie

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "errors.md"
#: Words in code font in a row that are not attributes of its error.
OTHERS = {"patience", "max_connections", "max_size", "timeout", "columns"}
TRAINING = "## Errors of training runs"


def errors_of(module: object) -> dict[str, type[BaseException]]:
    """The public exceptions of a module, by name."""
    names: list[str] = module.__all__  # type: ignore[attr-defined]
    found = {name: getattr(module, name) for name in names}
    return {name: one for name, one in found.items() if isinstance(one, type) and issubclass(one, Exception)}


def test_the_page_names_every_public_error_of_the_package() -> None:
    from reverie import errors

    page = PAGE.read_text()
    assert {"RaggedError", "ServerRestartedWarning"} <= errors_of(errors).keys()
    assert [name for name in [*errors_of(errors), *errors_of(reverie)] if f"`{name}`" not in page] == []


def test_the_page_names_every_public_error_of_agents_and_runners() -> None:
    pytest.importorskip("torch")
    from reverie import agents, runners

    page = PAGE.read_text()
    named = {**errors_of(agents), **errors_of(runners)}
    assert {"RoleError", "UnknownAgentError"} <= named.keys()
    assert [name for name in named if f"`{name}`" not in page] == []


#: Exceptions that no caller gets from the package, with the place that handles them, and base classes.
NOT_RAISED = {
    "ReplayError": "the base class of the first table",
    "StopRequested": "runners save, and raise StoppedError",
    "_Terminated": "SIGTERM within a run, which ends the process",
    "ParameterError": "is raised again as CheckpointError, PolicyError or PresetError",
    "UnsupportedSpaceError": "is raised again as UnsupportedEnvironmentError",
    "SearchEndedError": "ends `reverie search`",
    "SpaceError": "ends `reverie search`",
    "VideoError": "ends `reverie eval --video`",
}


def test_every_exception_of_the_package_has_a_row_with_its_symptom_and_a_remedy() -> None:
    pytest.importorskip("torch")
    found = set()
    for module in pkgutil.walk_packages(reverie.__path__, "reverie."):
        with suppress(ImportError):  # of an optional dependency
            if not module.name.endswith("__main__"):
                values = vars(importlib.import_module(module.name)).values()
                ours = [one for one in values if isinstance(one, type) and one.__module__.startswith("reverie.")]
                found |= {one.__name__ for one in ours if issubclass(one, BaseException)}
    assert len(found) > 40
    page, with_remedy = PAGE.read_text(), set()
    for first, *others in [line.strip("|").split(" | ") for line in page.splitlines() if line.startswith("| `")]:
        if len(others) >= 2 and all(one.strip() for one in others):
            with_remedy |= set(re.findall(r"`(\w+(?:Error|Warning))`", first))
    assert found - with_remedy == NOT_RAISED.keys() & found
    assert with_remedy & NOT_RAISED.keys() == set()


def test_the_attributes_to_look_at_are_those_of_the_error() -> None:
    page = PAGE.read_text().partition(TRAINING)[0]
    rows = re.findall(r"^\| `(\w+Error)` \| (.*?) \| (.*?) \| .* \|$", page, re.MULTILINE)
    assert len(rows) > 10
    wrong = []
    for name, _, look in rows:
        error = errors_of(reverie)[name]("text")
        wrong += [(name, one) for one in re.findall(r"`(\w+)`", look) if one not in OTHERS and not hasattr(error, one)]
    assert wrong == []


def test_errors_of_training_runs_are_in_the_modules_that_the_page_names() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("gymnasium")
    page = PAGE.read_text().partition(TRAINING)[2]
    assert "Errors without a module here are imported from `reverie.runners`." in page
    cells = re.findall(r"^\| (`\w+Error`[^|]*?) \|", page, re.MULTILINE)
    found = {}
    for cell in cells:
        (module,) = re.findall(r"\(`(reverie\.[\w.]+)`\)", cell) or ["reverie.runners"]
        found |= {name: getattr(importlib.import_module(module), name) for name in re.findall(r"`(\w+Error)`", cell)}
    assert {"RunInUseError", "PresetError", "PolicyError"} <= found.keys()
    assert all(issubclass(error, Exception) for error in found.values())
