"""The tests of this folder share the benchmark of learning, which is not installed, and results of runs."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def learn(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package `benchmarks.learn` with all of its modules."""
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[3])
    import benchmarks.learn.__main__  # imports the others

    return benchmarks.learn
