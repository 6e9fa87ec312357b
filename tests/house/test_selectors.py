"""The places that know every selector: what the recipe of CONTRIBUTING.md for a new one names."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import reverie
from reverie import selectors

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "crates" / "reverie-core"
OPTIONS = CORE / "src" / "table" / "types" / "selector.rs"


def snake(name: str) -> str:
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()


def engine() -> dict[str, int]:
    """The numbers of the engine's selectors, by their names there."""
    return {name: int(number) for name, number in re.findall(r"Self::(\w+)[^\n]*=> \((\d+),", OPTIONS.read_text())}


def every() -> list[selectors.Selector]:
    """A selector for each number, in their order."""
    return [selectors.from_engine((number, 0.5), 7) for number in range(len(engine()))]


def test_every_variant_of_the_engine_has_a_number_and_comes_back_from_it() -> None:
    text = OPTIONS.read_text()
    body = re.search(r"pub enum SelectorOptions \{(.*?)\n\}", text, re.DOTALL)
    assert body is not None
    variants = re.findall(r"^    (\w+)", body[1], re.MULTILINE)
    assert list(engine()) == variants
    assert list(engine().values()) == list(range(len(variants)))
    assert {name: int(n) for n, name in re.findall(r"^\s+(\d+) => Self::(\w+)", text, re.MULTILINE)} == engine()
    assert f"COUNT: u8 = {len(variants)};" in text


def test_the_wire_names_every_number() -> None:
    proto = (ROOT / "proto" / "reverie" / "v1" / "replay.proto").read_text()
    named = {name: int(number) for name, number in re.findall(r"^  SELECTOR_(\w+) = (\d+);", proto, re.MULTILINE)}
    assert named == {snake(name).upper(): number for name, number in engine().items()}


def test_every_class_of_python_has_its_numbers_and_is_public() -> None:
    numbers = [number for kind in selectors.SELECTORS for number in kind._numbers]
    assert sorted(numbers) == sorted(engine().values())
    public = {name for name in selectors.__all__ if name != "Selector"}
    assert {kind.__name__ for kind in selectors.SELECTORS} == public
    defined = {
        name
        for name, of in vars(selectors).items()
        if isinstance(of, type) and issubclass(of, selectors.Selector) and of is not selectors.Selector
    }
    assert defined == public


@pytest.mark.parametrize("selector", every(), ids=repr)
def test_every_selector_is_the_same_after_the_binding_a_checkpoint_and_the_wire(
    selector: selectors.Selector, tmp_path: Path
) -> None:
    assert selectors.from_engine(selector._for_engine(), selector.seed) == selector
    assert selector.WhichOneof() == selector._kind
    assert selector.HasField(selector._kind)
    table = reverie.Table("t", max_size=2, sampler=selector, remover=selectors.Fifo())
    checkpointer = reverie.checkpointers.DefaultCheckpointer(tmp_path)
    with reverie.Server([table], checkpointer=checkpointer) as server:
        client = reverie.Client(server.address, transport="grpc", timeout=200.0)
        client.insert_batch("t", {"x": np.arange(3.0)})
        assert len(client.sample_batch("t", 2).info.key) == 2
        reported = client.server_info()["t"].sampler_options
        client.checkpoint()
    assert reported._for_engine() == selector._for_engine()
    from reverie import _native

    path = _native.latest_checkpoint(str(tmp_path))
    assert path is not None
    [described] = _native.describe_checkpoint(path)["tables"]
    assert selectors.from_engine(described["sampler"], selector.seed) == selector


def test_every_selector_has_a_row_in_the_docs_and_a_docstring() -> None:
    page = (ROOT / "docs" / "concepts" / "table.md").read_text()
    rows = " ".join(re.findall(r"^\| (`.*?) \|", page, re.MULTILINE))
    for kind in selectors.SELECTORS:
        assert f"`{kind.__name__}(" in rows, f"docs/concepts/table.md has no row for {kind.__name__}"
        assert kind.__doc__


def test_every_selector_is_known_to_the_models_that_the_engine_is_compared_with() -> None:
    searched = (CORE / "tests" / "table" / "selectors.rs").read_text()
    compared = re.search(r"^const ALL: [^=]* = \[\n(.*?)^\];", searched, re.MULTILINE | re.DOTALL)
    assert compared is not None
    naive = (CORE / "tests" / "table" / "naive.rs").read_text()
    for model, text in (("tests/table/selectors.rs: ALL", compared[1]), ("tests/table/naive.rs", naive)):
        missing = [name for name in engine() if f"SelectorOptions::{name}" not in text]
        assert missing == [], f"{model} lacks {missing}"


def test_the_recipe_names_at_most_six_edits_and_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    recipe = re.search(r"### A new selector\n(.*?)\n##", text, re.DOTALL)
    assert recipe is not None
    steps = re.findall(r"^\d\. (.*?)(?=^\d\.|\n\n|\Z)", recipe[1], re.MULTILINE | re.DOTALL)
    assert 0 < len(steps) <= 6
    for step in steps:
        for path in re.findall(r"`((?:crates|docs|proto|python)/[\w./-]+)`", step):
            assert list(ROOT.glob(path.rstrip("/"))), f"the recipe names {path}, which does not exist"
