"""The page of settings has every setting of runs, environments, logs and agents, each with what it means."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("gymnasium")

from reverie import agents
from reverie.agents.env_settings import EnvSettings
from reverie.agents.log_settings import LogSettings
from reverie.agents.run_settings import RunSettings

ROOT = Path(__file__).resolve().parents[2]
CLASSES = [
    *(pytest.param(kind, id=kind.__name__) for kind in (RunSettings, EnvSettings, LogSettings)),
    *(pytest.param(agents.find(name).config, id=name) for name in agents.BUILT_IN),
]


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("website.settings")


@pytest.mark.parametrize("kind", CLASSES)
def test_every_setting_has_a_text_that_explains_it(settings: Any, kind: type[Any]) -> None:
    texts = settings.meanings(kind)
    assert [field.name for field in dataclasses.fields(kind) if len(texts[field.name].split()) < 3] == []


def test_the_page_has_a_row_for_each_setting_of_each_agent(settings: Any) -> None:
    sections = settings.page().split("\n## ")[1:]
    assert len(sections) == 3 + len(agents.BUILT_IN)
    for name, section in zip(agents.BUILT_IN, sections[3:], strict=True):
        assert section.startswith(f"{name}: ")
        for field in dataclasses.fields(agents.find(name).config):
            assert f"\n| `{field.name}` | " in section
    assert "| `her_k` | int | `4` | Items with another goal for each step, if `her` is set. |" in sections[3 + 2]
    assert "| `target_return` | float or None | none | " in sections[0]
    assert "| `capacity` | int |  | " in sections[3]


def test_a_setting_without_a_text_is_reported_by_name(settings: Any) -> None:
    @dataclasses.dataclass
    class Bare:
        known: int
        """A number."""
        unknown: int = 3

    with pytest.raises(LookupError, match="Bare has no text below unknown"):
        settings.meanings(Bare)


def test_a_field_that_is_declared_again_keeps_the_text_of_its_base(settings: Any) -> None:
    rainbow = agents.find("rainbow").config
    assert settings.meanings(rainbow)["priority_exponent"] == "alpha: applied only by the table's selector."
    assert settings.meanings(rainbow)["prioritized"].startswith("Whether items are drawn by their losses")
