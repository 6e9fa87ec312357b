"""One type name, one meaning within a crate: a reader who meets it knows what it holds without the module."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

CRATES = Path(__file__).resolve().parents[2] / "crates"

DEFINED = re.compile(r"^(?:pub(?:\([^)]*\))? )?(?:unsafe )?(?:struct|enum|trait|type|union) (\w+)", re.MULTILINE)

# The names that occur more than once in a crate, and how often. The numbers may only become smaller: give a new type a
# name of its own.
ALLOWED: dict[str, dict[str, int]] = {
    "reverie-core": {
        "Block": 2,
        "Bytes": 2,
        "Cells": 2,
        "Change": 2,
        "Column": 3,
        "Condition": 2,
        "Copy": 2,
        "Counts": 2,
        "Field": 2,
        "Form": 2,
        "Group": 2,
        "Head": 2,
        "Key": 2,
        "Kind": 3,
        "Layout": 3,
        "Leased": 2,
        "Memory": 2,
        "Node": 3,
        "NotCancellable": 2,
        "Numbers": 2,
        "Of": 2,
        "OnDisk": 2,
        "Output": 2,
        "Part": 2,
        "Parts": 2,
        "Place": 3,
        "Plain": 2,
        "Plan": 2,
        "Queue": 2,
        "Record": 2,
        "Rest": 2,
        "Row": 2,
        "Rows": 2,
        "Run": 2,
        "SavedPart": 2,
        "Segments": 2,
        "Sent": 2,
        "Shared": 4,
        "Source": 2,
        "Span": 2,
        "Stage": 2,
        "Summary": 2,
        "Waiting": 2,
    },
    "reverie-net": {
        "Answer": 3,
        "Arrived": 2,
        "Asked": 4,
        "Block": 2,
        "Bounded": 2,
        "Counted": 2,
        "Counts": 2,
        "End": 2,
        "Ending": 3,
        "Failure": 2,
        "Group": 2,
        "Head": 2,
        "Inline": 2,
        "Inserts": 2,
        "Kind": 2,
        "Limits": 2,
        "Open": 2,
        "Options": 4,
        "Outcome": 2,
        "Outlet": 2,
        "Place": 3,
        "Pool": 2,
        "Queue": 2,
        "Queued": 2,
        "Reader": 2,
        "Reading": 2,
        "Room": 3,
        "Run": 3,
        "Sending": 2,
        "Server": 2,
        "Shard": 2,
        "Shared": 2,
        "Slots": 2,
        "Tls": 2,
        "Transport": 2,
        "Turns": 2,
        "Way": 2,
    },
    "reverie-py": {
        "Columns": 2,
        "Field": 2,
        "Forms": 2,
        "Given": 2,
        "Steps": 2,
    },
}

# A module of another system under the same path: its types have the same names on purpose.
STAND_INS = {"local/absent.rs"}


def defined_in(source: str) -> list[str]:
    """The types of a file's own level; those within its modules, as of its tests, are indented."""
    return DEFINED.findall(source)


def repeated_names(folder: Path) -> dict[str, int]:
    files = [file for file in sorted(folder.rglob("*.rs")) if str(file.relative_to(folder)) not in STAND_INS]
    counts = Counter(name for file in files for name in defined_in(file.read_text()))
    return {name: count for name, count in sorted(counts.items()) if count > 1}


@pytest.mark.parametrize("crate", ALLOWED)
def test_a_type_name_occurs_once_in_a_crate_or_as_often_as_it_did(crate: str) -> None:
    assert repeated_names(CRATES / crate / "src") == ALLOWED[crate]


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
