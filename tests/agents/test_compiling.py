"""Updates as one compiled graph: the same numbers, and the reasons. `test_compiled_updates` runs a compiler."""

import os

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie import agents  # noqa: E402
from reverie.agents import compiling, tracing  # noqa: E402
from reverie.agents.compiling import CompileError  # noqa: E402
from reverie.agents.core import CompilePlan  # noqa: E402
from reverie.agents.optimizers import adam, centred_rmsprop  # noqa: E402

UNROLLS = ("ppo", "impala", "r2d2")
"""Agents of unrolls and sequences: `test_compiled_unrolls` has their graphs."""
COMPILED = [name for name in agents.BUILT_IN if agents.find(name).compiles and name not in UNROLLS]
ALL = [
    *((name, {}) for name in COMPILED),
    ("apex-dqn", {"optimizer": "rmsprop"}),
    ("td3", {"policy_period": 1}),
    *((name, {"target_rate": 0.01}) for name in ("apex-dqn", "apex-dpg")),
    ("dqn", {"layer_norm": True}),
    *((name, {"munchausen": 0.9}) for name in ("dqn", "apex-dqn", "cql")),
    ("rainbow", {"munchausen": 0.9, "double": False, "head": "quantile"}),
    *((name, {"dropout": 0.1, "layer_norm": True, "num_critics": 3, "target_critics": 2}) for name in ("sac", "td3")),
    ("sac", {"policy_period": 2, "policy_critics": "mean"}),
    *((name, {"prioritized": True}) for name in ("sac", "td3", "ddpg")),
    ("cql-sac", {"conservative_threshold": 1.0, "imitation_updates": 4, "policy_period": 2}),
    ("cql-sac", {"dropout": 0.1, "layer_norm": True, "entropy_in_target": False}),
]
SOON = CompilePlan(begin=0, use_from=1, required=True)
WHEN_READY = CompilePlan(begin=0, use_from=None, required=False)


class Interpreted:
    """Replaces a compiled update by the traced graph, operation by operation."""

    def __init__(self, graph, library):
        self.graph = graph

    def __call__(self, learner, state, columns):
        noise = self.graph.random_numbers(learner._generator)
        result = self.outputs(state.tensors, state.factors(), noise, columns)
        for name in self.graph.steps:
            learner._optimizers[name].count_step()
        return result

    def outputs(self, tensors, factors, noise, columns):
        graph = self.graph
        with torch.no_grad():
            found = graph.module(
                *tensors, factors, *noise, *(columns[name] for name in graph.columns), *graph.constants
            )
        figures = dict(zip(graph.figures, found[-1].tolist() if graph.figures else (), strict=True))
        return (found[0] if graph.has_priorities else None), figures


class Job:
    """Replaces a process that compiles; it ends when the test lets it."""

    def __init__(self):
        self.process, self.closed, self.returncode = self, False, None

    def poll(self):
        return self.returncode

    def reason(self):
        return "the compiler has no license"

    def close(self):
        self.closed = True


@pytest.fixture
def jobs(monkeypatch, tmp_path):
    """The jobs that were started; they compile nothing, and graphs are interpreted."""
    started = []
    monkeypatch.setenv("REVERIE_CACHE", str(tmp_path))
    monkeypatch.setattr(compiling, "missing_compiler", lambda: "")
    monkeypatch.setattr(compiling, "CompiledUpdate", Interpreted)
    monkeypatch.setattr(compiling, "_start", lambda *args: started.append(Job()) or started[-1])
    return started


def end(jobs, code=0):
    for job in jobs:
        job.returncode = code


def same(one, other):
    """Whether two learners have the same parameters and moments, but for rounding in a few updates."""
    a, b = one.state_dict(), other.state_dict()
    for kind in ("networks", "optimizers"):
        for name, parts in a[kind].items():
            for part, value in parts.items():
                values, others = (
                    (value.items(), b[kind][name][part])
                    if isinstance(value, dict)
                    else ([(part, value)], b[kind][name])
                )
                for key, array in values:
                    scale = max(1.0, float(np.abs(array).max()))
                    if not np.allclose(array, others[key], rtol=1e-3, atol=1e-3 * scale):
                        return False
    return True


@pytest.mark.long
@pytest.mark.parametrize(("name", "changes"), ALL, ids=lambda one: str(one) or "default")
def test_the_graph_makes_the_update_of_the_learners_own_operations(name, changes, make_learner):
    """Each kind of update, from a state in the middle of training; neither learner nor batch change by tracing."""
    learner = make_learner(name, **changes)
    for _ in range(5):
        learner.learn()
    kept, inputs = {}, {}
    updated = learner._updated

    def keep(columns, single):
        inputs["columns"], inputs["single"] = columns, single
        return updated(columns, single)

    learner._updated = keep
    learner.learn()
    columns, single = inputs["columns"], inputs["single"]
    for kind, version in learner._kinds().items():
        learner.version = version
        before = {key: network.numpy() for key, network in learner._networks.items()}
        graph = tracing.trace(learner, columns, single)
        assert all((network.numpy() == before[key]).all() for key, network in learner._networks.items())
        state = tracing.GraphState(learner)
        copies = [one.clone() for one in state.tensors]
        generator = None if learner._generator is None else learner._generator.get_state()
        found = Interpreted(graph, None).outputs(
            copies,
            state.factors().clone(),
            graph.random_numbers(learner._generator),
            columns,
        )
        if generator is not None:
            learner._generator.set_state(generator)
        expected = single(columns)
        for one, other in zip(state.tensors, copies, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        for figure, value in expected[1].items():
            assert found[1][figure] == pytest.approx(float(value), rel=1e-4, abs=1e-5)
        if expected[0] is not None:
            torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-5)
        kept[kind] = graph.steps
    if name == "td3" and not changes:
        assert kept == {0: ("critics",), 1: ("policy", "critics")}


@pytest.mark.parametrize("make", [adam, centred_rmsprop])
def test_the_formula_of_an_optimiser_is_its_step(make):
    """Hundreds of steps with gradients from tiny to large compare corrections and moments."""

    class Vector:
        def __init__(self):
            self.flat = torch.nn.Parameter(torch.linspace(-1, 1, 64))

    networks = [Vector(), Vector()]
    one, other = (make(network, 1e-2, epsilon=1e-5) for network in networks)
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        gradient = torch.randn(64, generator=generator) * torch.logspace(-4, 2, 64)
        one.descend(networks[0].flat, gradient)
        factors = torch.tensor(other.factors()).unbind(0)
        with torch.no_grad():
            other.formula(networks[1].flat, gradient, other.moments(), factors)
        other.count_step()
    assert torch.allclose(networks[0].flat, networks[1].flat, rtol=1e-4, atol=1e-5)


def test_adams_state_and_steps_are_those_of_pytorch():
    class Vector:
        def __init__(self):
            self.flat = torch.nn.Parameter(torch.linspace(-1, 1, 64))

    ours, theirs = Vector(), Vector()
    one = adam(ours, 1e-2, 1e-5)
    other = torch.optim.Adam([theirs.flat], lr=1e-2, eps=1e-5, fused=True)
    for step in range(20):
        gradient = torch.sin(torch.arange(64) * (step + 1.0))
        one.descend(ours.flat, gradient)
        theirs.flat.grad = gradient
        other.step()
    assert torch.equal(ours.flat, theirs.flat)
    states = [optimizer.state_dict()["state"][0] for optimizer in (one, other)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.long
def test_updates_are_compiled_ones_from_the_planned_one_on_however_early_the_compiler_ends(jobs, make_learner):
    learner, other = (make_learner("dqn") for _ in range(2))
    learner.compile_updates(CompilePlan(begin=2, use_from=6, required=False))
    for version in range(10):
        assert len(jobs) == (version > 2)
        end(jobs)
        assert learner.ready()
        learner.learn()
        other.learn()
        assert learner.metrics()["updates_compiled"] == max(0, version - 5)
    assert same(learner, other)
    (note,) = learner.drain_compile_notes()
    assert (note.update, note.found, note.reason) == (3, False, "")
    assert learner.drain_compile_notes() == []


@pytest.mark.long
def test_an_update_that_is_to_be_compiled_waits_for_the_compiler(jobs, make_learner, monkeypatch):
    learner = make_learner("dqn")
    learner.compile_updates(CompilePlan(begin=0, use_from=3, required=False))
    for _ in range(3):
        assert learner.ready()
        learner.learn()
    assert not learner.ready()
    waited = []
    monkeypatch.setattr(compiling.time, "sleep", lambda seconds: waited.append(seconds) or end(jobs))
    learner.learn()
    assert len(waited) == 1
    assert learner.metrics()["updates_compiled"] == 1


@pytest.mark.long
def test_without_a_planned_update_they_are_compiled_as_soon_as_the_compiler_has_ended(jobs, make_learner):
    learner = make_learner("dqn")
    learner.compile_updates(WHEN_READY)
    for _ in range(5):
        assert learner.ready()
        learner.learn()
    assert learner.metrics()["updates_compiled"] == 0
    end(jobs)
    learner.learn()
    assert learner.metrics()["updates_compiled"] == 1
    assert all(job.closed for job in jobs)


@pytest.mark.long
def test_a_library_of_an_earlier_run_is_used_without_a_compiler_and_another_learning_rate_needs_no_other(
    jobs, make_learner, tmp_path
):
    graphs = []
    for rate in (1e-3, 5e-3):
        learner = make_learner("dqn", learning_rate=rate)
        learner.compile_updates(WHEN_READY)
        learner.learn()
        graphs.append({library for _, library in learner._compiler._graphs.values()})
        if rate == 1e-3:
            assert len(jobs) == 1
            next(iter(graphs[0])).write_bytes(b"")
            learner.stop_compiling()
    assert graphs[0] == graphs[1]
    assert len(jobs) == 1
    (note,) = learner.drain_compile_notes()
    assert note.found
    learner.learn()
    assert learner.metrics()["updates_compiled"] == 1
    third = make_learner("dqn", huber_delta=0.5)
    third.compile_updates(WHEN_READY)
    third.learn()
    assert len(jobs) == 2


@pytest.mark.long
def test_a_batch_of_another_size_is_learnt_from_by_single_operations(jobs, make_learner):
    learner = make_learner("dqn")
    learner.compile_updates(SOON)
    learner.learn()
    end(jobs)
    draw = learner._draw

    def smaller():
        batch = draw()
        batch.data = {name: column[:16] for name, column in batch.data.items()}
        return batch

    learner._draw = smaller
    learner.learn()
    assert learner.metrics()["updates_compiled"] == 0
    learner._draw = draw
    learner.learn()
    assert learner.metrics()["updates_compiled"] == 1


@pytest.mark.long
def test_learning_goes_on_by_single_operations_where_compiling_fails_and_the_reason_is_noted(jobs, make_learner):
    learner, other = (make_learner("sac") for _ in range(2))
    learner.compile_updates(CompilePlan(begin=0, use_from=2, required=False))
    learner.learn()
    end(jobs, code=1)
    for _ in range(4):
        learner.learn()
    for _ in range(5):
        other.learn()
    (note,) = learner.drain_compile_notes()
    assert note.reason == "the compiler has no license"
    assert all((a == b).all() for a, b in zip(vectors(learner), vectors(other), strict=True))


def vectors(learner):
    return [network.numpy() for network in learner._networks.values()]


@pytest.mark.long
def test_a_plan_that_requires_compiled_updates_raises_the_reason(jobs, make_learner):
    learner = make_learner("dqn")
    learner.compile_updates(SOON)
    learner.learn()
    end(jobs, code=1)
    with pytest.raises(CompileError, match="cannot be compiled: the compiler has no license; leave compile=on out"):
        learner.ready()


def test_without_a_compiler_the_reason_names_it(make_learner, monkeypatch, tmp_path):
    monkeypatch.setenv("REVERIE_CACHE", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    learner = make_learner("dqn")
    learner.compile_updates(WHEN_READY)
    learner.learn()
    learner.learn()
    (note,) = learner.drain_compile_notes()
    assert note.reason == "there is no C++ compiler 'no-such-compiler': install g++, or name one in CXX"
    required = make_learner("dqn")
    required.compile_updates(SOON)
    with pytest.raises(CompileError, match="no C\\+\\+ compiler 'no-such-compiler'"):
        required.learn()


@pytest.mark.long
def test_an_update_that_differs_from_the_learners_own_is_not_used(jobs, make_learner, monkeypatch):
    class Wrong(Interpreted):
        def outputs(self, tensors, factors, noise, columns):
            return super().outputs(tensors, factors * torch.tensor([1.1, 1.0]), noise, columns)

    monkeypatch.setattr(compiling, "CompiledUpdate", Wrong)
    learner, other = (make_learner("dqn") for _ in range(2))
    learner.compile_updates(WHEN_READY)
    learner.learn()
    end(jobs)
    for _ in range(2):
        learner.learn()
    for _ in range(3):
        other.learn()
    (_, note) = learner.drain_compile_notes()
    assert "differs from the same update by single operations" in note.reason
    assert all((a == b).all() for a, b in zip(vectors(learner), vectors(other), strict=True))


@pytest.mark.long
def test_a_loaded_state_is_what_the_next_compiled_update_changes(jobs, make_learner):
    learner, other = (make_learner("td3") for _ in range(2))
    learner.compile_updates(SOON)
    learner.learn()
    end(jobs)
    for _ in range(3):
        learner.learn()
    state = learner.state_dict()
    for each in (learner, other):
        each.load_state_dict(state)
    other._client = learner._client = make_learner("td3")._client
    learner.learn()
    other._client = make_learner("td3")._client
    other.learn()
    assert learner.metrics()["updates_compiled"] == 4
    assert same(learner, other)


def test_a_cache_folder_that_others_may_write_into_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("REVERIE_CACHE", str(tmp_path))
    assert compiling.cache_folder() == tmp_path / "compiled"
    assert (tmp_path / "compiled").stat().st_mode & 0o077 == 0
    os.chmod(tmp_path / "compiled", 0o777)
    with pytest.raises(CompileError, match="others may write into"):
        compiling.cache_folder()


def test_the_libraries_that_were_used_longest_ago_are_removed(monkeypatch, tmp_path):
    monkeypatch.setattr(compiling, "MOST_KEPT", 3)
    for age, name in enumerate("dcba"):
        file = tmp_path / f"{name}.so"
        file.touch()
        os.utime(file, (age, age))
    compiling._remove_oldest(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"a.so", "b.so"}
