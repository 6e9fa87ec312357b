"""One type name, one meaning within a crate and within the package: its reader needs no module to see what it holds."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

CRATES = Path(__file__).resolve().parents[2] / "crates"

DEFINED = re.compile(r"^(?:pub(?:\([^)]*\))? )?(?:unsafe )?(?:struct|enum|trait|type|union) (\w+)", re.MULTILINE)

PACKAGE = CRATES.parent / "python" / "reverie"

CLASS = re.compile(r"^class (\w+)", re.MULTILINE)

# The agents have files of the same names, and in them classes of the same names; adapters have the names of others.
REPEATED_ON_PURPOSE = ("agents/*/*.py", "integrations/*/buffers.py")

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


def repeated_classes(package: Path) -> set[str]:
    several = {file for pattern in REPEATED_ON_PURPOSE for file in package.glob(pattern)}
    own = [file for file in sorted(package.rglob("*.py")) if file not in several]
    counts = Counter(name for file in own for name in CLASS.findall(file.read_text()))
    return {name for name, count in counts.items() if count > 1}


def test_a_class_name_occurs_once_in_the_package() -> None:
    assert repeated_classes(PACKAGE) == set()


def test_a_class_of_two_files_is_found_and_that_of_two_agents_is_not(tmp_path: Path) -> None:
    files = {"a.py": "class A:\n", "b/c.py": "class A:\nclass B:\n", "agents/x/y.py": "class B:\n"}
    for name, source in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    assert repeated_classes(tmp_path) == {"A"}
