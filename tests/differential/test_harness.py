"""The harness itself, with this package on both sides; dm-reverb is on the other in `make test-differential`."""

import copy
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import harness
import programs


@pytest.fixture(scope="module")
def worker():
    worker = harness.Worker("ours")
    yield worker
    worker.close()


@pytest.mark.parametrize("kind", sorted(programs.MAKERS))
def test_one_program_has_the_same_outcomes_twice(worker, kind):
    program = programs.program(kind, 3)
    assert program == programs.program(kind, 3)
    once, again = worker.run(program), worker.run(program)
    assert len(once) == 1 + len(program["operations"])
    assert harness.differences(program, once, again) == []


@pytest.mark.parametrize(
    "change",
    [{"sampler": "Lifo"}, {"remover": "Lifo"}, {"max_size": 3}, {"max_times_sampled": 2}, {"limiter": ["MinSize", 2]}],
)
def test_a_table_that_behaves_otherwise_is_found(worker, change):
    spec = {"name": "a", "sampler": "Fifo", "remover": "Fifo", "max_size": 2, "limiter": ["MinSize", 1]}
    fill = [["insert", [step], {"a": 1.0}] for step in range(3)]
    operations = [["sample", "a", 1, False], *fill, ["sample", "a", 1, False], *programs.ending([spec])]
    program = {"tables": [spec], "operations": [["insert", [9], {"a": 1.0}], ["sample", "a", 1, False], *operations]}
    other = copy.deepcopy(program)
    other["tables"][0].update(change)
    found = harness.differences(program, worker.run(program), worker.run(other))
    assert found
    assert found[0].startswith("operation ")


@pytest.mark.long
def test_an_operation_that_hangs_is_the_last_outcome_and_the_next_program_runs(worker, monkeypatch):
    spec = {"name": "a", "kind": "queue", "max_size": 1}
    stuck = {"tables": [spec], "operations": [["create_item", "nobody", "b", 1, 1.0], ["writer", "w", "nothing", {}]]}
    monkeypatch.setattr(worker, "_line", lambda: None)
    assert worker.run(stuck) == [{"error": "hangs"}]
    assert harness.differences(stuck, [{"error": "hangs"}], [{"error": "hangs"}]), "a program that hangs shows nothing"
    monkeypatch.undo()
    assert [outcome.get("error") for outcome in worker.run(stuck)] == [None, "KeyError", "AttributeError"]
