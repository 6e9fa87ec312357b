"""One type name, one meaning within a crate: a reader who meets it knows what it holds without the module."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

CRATES = Path(__file__).resolve().parents[2] / "crates"

DEFINED = re.compile(r"^(?:pub(?:\([^)]*\))? )?(?:unsafe )?(?:struct|enum|trait|type|union) (\w+)", re.MULTILINE)

# A module of another system under the same path: its types have the same names on purpose.
STAND_INS = {"local/absent.rs"}


def defined_in(source: str) -> list[str]:
    """The types of a file's own level; those within its modules, as of its tests, are indented."""
    return DEFINED.findall(source)


def repeated_names(folder: Path) -> dict[str, int]:
    files = [file for file in sorted(folder.rglob("*.rs")) if str(file.relative_to(folder)) not in STAND_INS]
    counts = Counter(name for file in files for name in defined_in(file.read_text()))
    return {name: count for name, count in sorted(counts.items()) if count > 1}


@pytest.mark.parametrize("crate", sorted(path.name for path in CRATES.iterdir()))
def test_a_type_name_occurs_once_in_a_crate(crate: str) -> None:
    assert repeated_names(CRATES / crate / "src") == {}


def test_the_types_of_a_file_are_found_and_those_of_its_tests_are_not() -> None:
    source = """
pub(in crate::table) struct Slot<T> {
    state: T,
}

enum State {}
type Work<T> = Box<T>;
impl Iterator for Slot {
    type Item = u8;
}
// struct Comment
mod tests {
    struct State;
}
"""
    assert defined_in(source) == ["Slot", "State", "Work"]


def test_a_name_of_two_files_is_counted_and_that_of_a_stand_in_is_not(tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    for name, source in {"a.rs": "struct A;", "b.rs": "enum A {}\nstruct B;", "local/absent.rs": "struct B;"}.items():
        (tmp_path / name).write_text(source)
    assert repeated_names(tmp_path) == {"A": 2}
