"""Updates that are recorded once and replayed, with a recorder of the CPU's in place of a GPU's."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie.agents import recording  # noqa: E402
from reverie.agents.core import CompilePlan  # noqa: E402
from reverie.agents.recording import RecordingError, UpdateRecorder  # noqa: E402

FROM = CompilePlan(begin=3, use_from=3, required=False)


def changed_by(learner):
    tensors = [network.flat.detach() for network in learner._networks.values()]
    return tensors + [one for o in learner._optimizers.values() for s in o.state.values() for one in s.values()]


def recorder_of(learner):
    """A `Record` that does what a GPU's does: the first call changes nothing, a replay repeats its operations."""

    def record(run, device):
        kept = [(one, one.clone()) for one in changed_by(learner)]
        rates = [(one, one._recorded_rate) for one in learner._optimizers.values()]
        priorities, figures = run()
        for tensor, copied in kept:
            tensor.copy_(copied)

        def replay():
            for optimizer, rate in rates:
                optimizer._recorded_rate = rate
            again, values = run()
            for optimizer, _ in rates:
                optimizer._recorded_rate = None
            for one, new in ((priorities, again), *((figures[name], values[name]) for name in figures)):
                if one is not None:
                    one.copy_(new)

        return (priorities, figures), replay

    return record


def recording_learner(make_learner, name="apex-dqn", plan=FROM, record=None, **changes):
    learner = make_learner(name, **changes)
    learner._compiler = UpdateRecorder(learner, plan, recorder_of(learner) if record is None else record)
    return learner


CASES = [
    ("apex-dqn", {}),
    ("apex-dqn", {"optimizer": "rmsprop"}),
    ("apex-dqn", {"anneal_updates": 10, "anneal_to": 0.1}),
    ("apex-dqn", {"target_rate": 0.01}),
    ("apex-dqn", {"target_period": 2}),
    ("dqn", {}),
    ("cql", {"target_period": 2}),
]


@pytest.mark.parametrize(("name", "changes"), CASES, ids=lambda one: str(one) or "default")
def test_replayed_updates_are_those_of_single_operations(name, changes, make_learner, networks_of):
    plain, recorded = make_learner(name, **changes), recording_learner(make_learner, name, **changes)
    for _ in range(12):
        plain.learn()
        recorded.learn()
    assert recorded.metrics()["updates_compiled"] == 9
    for key, vector in networks_of(plain).items():
        np.testing.assert_allclose(networks_of(recorded)[key], vector, rtol=1e-4, atol=1e-6)
    assert {key: recorded.metrics()[key] for key in plain.metrics()} == pytest.approx(plain.metrics(), rel=1e-4)
    (note,) = recorded.drain_compile_notes()
    assert (note.update, note.reason) == (3, "")
    assert recorded.drain_compile_notes() == []


def test_a_learner_that_loads_a_state_records_again(make_learner, networks_of):
    first, other = recording_learner(make_learner), recording_learner(make_learner)
    for _ in range(6):
        first.learn()
        other.learn()
    state = first.state_dict()
    other.load_state_dict(state)
    for _ in range(4):
        first.learn()
        other.learn()
    # The first updates after a load choose their kernels, as the first of all.
    assert [note.update for note in other.drain_compile_notes()] == [3, 9]
    assert other._optimizers["online"]._own_state()["step"] == 10


def test_a_batch_of_another_shape_is_learnt_from_by_single_operations(make_learner):
    learner = recording_learner(make_learner)
    for _ in range(5):
        learner.learn()
    draw = learner._draw

    def smaller():
        batch = draw()
        batch.info = SimpleNamespace(key=batch.info.key[:4])
        batch.data = {name: one[:4] for name, one in batch.data.items()}
        batch.weights = lambda *args, **options: np.ones(4, np.float32)
        return batch

    learner._draw = smaller
    learner.learn()
    learner._draw = draw
    learner.learn()
    assert (learner.version, learner.metrics()["updates_compiled"]) == (7, 3)


def test_a_replay_that_differs_is_undone_reported_and_not_used(make_learner, networks_of):
    plain = make_learner("apex-dqn")

    def wrong_of(learner):
        record = recorder_of(learner)

        def wrong(run, device):
            result, replay = record(run, device)

            def replayed():
                replay()
                learner._online.flat.data.add_(1.0)

            return result, replayed

        return wrong

    learner = make_learner("apex-dqn")
    learner._compiler = UpdateRecorder(learner, FROM, wrong_of(learner))
    for _ in range(6):
        plain.learn()
        learner.learn()
    (note,) = learner.drain_compile_notes()
    assert "differs from the same update" in note.reason
    assert learner.metrics()["updates_compiled"] == 0
    for key, vector in networks_of(plain).items():
        np.testing.assert_array_equal(networks_of(learner)[key], vector)
    assert learner._optimizers["online"]._own_state()["step"] == 6


def test_operations_that_cannot_be_recorded_are_reported_or_refused(make_learner):
    def refuse(run, device):
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    learner = recording_learner(make_learner, record=refuse)
    for _ in range(5):
        learner.learn()
    (note,) = learner.drain_compile_notes()
    assert note.reason == "RuntimeError: operation not permitted when stream is capturing"
    assert learner.version == 5
    required = dataclasses.replace(FROM, required=True)
    learner = recording_learner(make_learner, plan=required, record=refuse)
    for _ in range(3):
        learner.learn()
    with pytest.raises(RecordingError, match="cannot be recorded on the GPU: RuntimeError: operation not permitted"):
        learner.learn()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("changes", [{}, {"precision": "bfloat16"}, {"anneal_updates": 10, "anneal_to": 0.1}])
def test_a_gpu_replays_the_same_updates(changes, make_learner, networks_of):
    from reverie.runners.planning.devices import networks_on

    with networks_on("cuda"):
        plain, recorded = make_learner("apex-dqn", **changes), make_learner("apex-dqn", **changes)
    recorded._compiler = UpdateRecorder(recorded, FROM, recording.record_on_gpu)
    for _ in range(12):
        plain.learn()
        recorded.learn()
    assert recorded.metrics()["updates_compiled"] == 9
    for key, vector in networks_of(plain).items():
        np.testing.assert_allclose(networks_of(recorded)[key], vector, rtol=1e-2, atol=1e-4)
