"""Updates whose priorities are written while the device makes the next one, as on a GPU that draws ahead."""

from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie.agents.outcomes import NO_WEIGHTS, DivergedError, UpdateOutcome  # noqa: E402
from reverie.errors import UnavailableError  # noqa: E402

BATCH = 32


@pytest.fixture
def later(make_learner):
    """A function: a learner that settles each update later, and the keys of each write of priorities."""

    def make(name="apex-dqn"):
        learner, written = make_learner(name), []
        update = getattr(learner._client, "update_priorities", None)

        def note(table, keys, priorities):
            written.append((keys.copy(), priorities.copy()))
            return update(table, keys, priorities)

        learner._client.update_priorities = note
        learner._settles_later = True
        return learner, written

    return make


def test_priorities_of_an_update_are_written_after_the_next_was_launched(later):
    learner, written = later()
    drawn, draw = [], learner._draw

    def noted():
        drawn.append(draw())
        return drawn[-1]

    learner._draw = noted
    for count in range(1, 5):
        learner.learn()
        assert (learner.version, len(written)) == (count, count - 1)
    for batch, (keys, priorities) in zip(drawn, written, strict=False):
        assert keys.tolist() == batch.info.key.tolist()
        assert priorities.shape == (BATCH,)
        assert (priorities > 0).all()


def test_the_last_update_is_settled_before_its_learner_stops_waits_or_is_saved(later):
    learner, written = later()
    learner._drawing.fetch = lambda client, device: False
    ends = [learner.stop_drawing, learner.fetch, learner.state_dict]
    for count, end in enumerate(ends, start=1):
        learner.learn()
        assert len(written) == count - 1
        end()
        end()
        assert len(written) == count
    assert learner.metrics()["priorities_applied"] + learner.metrics()["priorities_stale"] == 3 * BATCH
    assert learner.metrics()["age_in_updates"] == 2.0


@pytest.mark.parametrize(
    ("versions", "age"), [([3, 1], 3.0), ([NO_WEIGHTS, 3, 1, NO_WEIGHTS], 3.0), ([NO_WEIGHTS], None)]
)
def test_items_that_no_weights_made_do_not_count_for_the_age(versions, age):
    batch = SimpleNamespace(info=SimpleNamespace(key=[0]), data={"weights_version": torch.tensor(versions)})
    assert UpdateOutcome(5, batch, None, {}, 1.0).age() == age


@pytest.mark.parametrize("name", ["dqn", "apex-dqn"])
def test_a_batch_that_no_weights_made_has_no_age_also_after_one_that_has(make_learner, name):
    learner = make_learner(name)
    learner.learn()
    assert learner.metrics()["age_in_updates"] == 0
    learner._client.columns["weights_version"][:] = NO_WEIGHTS
    learner.learn()
    assert "age_in_updates" not in learner.metrics()
    learner._client.columns["weights_version"][:] = 1
    learner.learn()
    assert learner.metrics()["age_in_updates"] == 1


@pytest.mark.parametrize("name", ["dqn", "apex-dqn", "gorila"])
def test_items_without_a_version_of_weights_are_learnt_from_and_have_no_age(make_learner, name):
    learner, other = make_learner(name), make_learner(name)
    del learner._client.columns["weights_version"]
    learner.learn()
    other.learn()
    assert "age_in_updates" not in learner.metrics()
    assert learner.metrics() == {key: one for key, one in other.metrics().items() if key != "age_in_updates"}


def test_figures_are_those_of_the_plain_path(later, make_learner):
    (one, _), plain = later("dqn"), make_learner("dqn")
    for _ in range(3):
        one.learn()
        plain.learn()
    one.stop_drawing()
    assert one.metrics() == plain.metrics()


def test_an_update_that_diverged_is_named_and_writes_nothing(later):
    learner, written = later()
    learner.learn()
    learner._online.flat.data.fill_(float("nan"))
    learner.learn()
    assert len(written) == 1
    with pytest.raises(DivergedError) as raised:
        learner.learn()
    assert raised.value.version == 1
    assert len(written) == 1


def test_a_learner_is_saved_without_the_last_priorities_if_the_table_is_gone(later):
    learner, _ = later()
    learner.learn()

    def gone(*args):
        raise UnavailableError("the shard is gone")

    learner._client.update_priorities = gone
    assert learner.state_dict()["version"] == 1
    learner.learn()
    with pytest.raises(UnavailableError):
        learner.learn()
    assert learner.version == 3
    assert np.isfinite(learner._online.numpy()).all()


@pytest.mark.parametrize("settles_later", [False, True])
def test_an_update_whose_priorities_cannot_be_written_counts(make_learner, settles_later):
    """Its weights differ from those before it: actors take them, and the next update's are newer."""
    learner = make_learner("apex-dqn")
    learner._settles_later = settles_later
    write, given = learner._client.update_priorities, {}

    def gone(*args):
        raise UnavailableError("the shard is gone")

    for reachable in (True, False, False, True):
        learner._client.update_priorities = write if reachable else gone
        try:
            learner.learn()
        except UnavailableError:
            assert not reachable
        weights = learner._online.numpy().tobytes()
        assert given.setdefault(learner.version, weights) == weights, "two weights have one version"
    (state,) = learner._optimizers["online"].state.values()
    assert learner.version == learner._draws.given / BATCH == float(state["step"]) == 4
