"""Patterns over streams of steps: the items that a structured writer would insert, without a table."""

import numpy as np
import pytest

import reverie
from reverie import PatternDataset, rate_limiters, selectors, structured
from reverie.datasets.chain import Dataset
from reverie.pattern_dataset import pattern_dataset_with_info
from reverie.structured import Condition, create_config, td_error

STEP = {"obs": None, "end": None}
REF = structured.create_reference_step(STEP)
TWO = create_config({"x": REF["obs"][-2:]}, "t")
#: Two episodes, of four steps and of three, and a step of a third.
STEPS = [{"obs": np.int32(i), "end": i in (3, 6)} for i in range(8)]


def is_end(step):
    return step["end"]


def lists(dataset):
    return [element["x"].tolist() for element in dataset]


def test_trajectories_stay_within_an_episode_on_request():
    assert lists(PatternDataset(STEPS, [TWO], True, is_end)) == [[0, 1], [1, 2], [2, 3], [4, 5], [5, 6]]
    assert lists(PatternDataset(STEPS, [TWO], False, is_end)) == [[i, i + 1] for i in range(7)]


@pytest.mark.parametrize("respect", [True, False])
@pytest.mark.parametrize(
    ("condition", "want"),
    [
        (Condition.is_end_episode(), [3, 6]),
        (Condition.step_index() == 1, [1, 5]),
        (Condition.steps_since_applied() >= 3, [2, 5]),
        (Condition.data(STEP)["end"] == 0, [0, 1, 2, 4, 5, 7]),
    ],
)
def test_conditions_mean_what_they_mean_to_a_writer(respect, condition, want):
    config = create_config({"x": REF["obs"][-1]}, "t", [condition])
    assert lists(PatternDataset(STEPS, [config], respect, is_end)) == want


def test_it_gives_what_a_structured_writer_inserts():
    rng = np.random.default_rng(5)
    steps = [{"obs": rng.normal(size=3), "end": bool(rng.random() < 0.2)} for _ in range(60)]
    configs = [
        create_config({"x": REF["obs"][-5::2]}, "t", [Condition.steps_since_applied() >= 2]),
        create_config({"x": REF["obs"][-2:]}, "t", [Condition.is_end_episode()]),
    ]
    table = reverie.Table("t", selectors.Fifo(), selectors.Fifo(), 1000, rate_limiters.MinSize(1), max_times_sampled=1)
    client = reverie.Server([table], listen=False).client()
    with client.structured_writer(configs) as writer:
        for step in steps:
            writer.append(step)
            if step["end"]:
                writer.end_episode()
    size = client.server_info()["t"].current_size
    stored = [sample.data[0].tolist() for sample in client.sample("t", size, emit_timesteps=False)]
    assert stored == lists(PatternDataset(steps, configs, True, is_end))
    assert len(stored) >= 20


def test_priorities_have_no_meaning_here():
    errors = create_config({"x": REF["obs"][-1]}, "t", (), td_error(0.5, STEP, lambda step: step["obs"]))
    steps = [{"obs": np.float32("nan"), "end": False}]
    assert len(list(PatternDataset(steps, [errors], True, is_end))) == 1


def test_every_iterator_starts_from_the_beginning_and_elements_own_their_bytes():
    dataset = PatternDataset(STEPS, [TWO], True, is_end)
    first = next(iter(dataset))
    first["x"][:] = -1
    assert lists(dataset) == lists(dataset) == [[0, 1], [1, 2], [2, 3], [4, 5], [5, 6]]


def test_an_iterator_can_be_used_once():
    dataset = PatternDataset(iter(STEPS), [TWO], True, is_end)
    assert len(lists(dataset)) == 5
    with pytest.raises(ValueError, match="already used"):
        iter(dataset)


def test_chains_follow_and_precede_it():
    source = Dataset(lambda: iter(STEPS)).map(lambda step: {"obs": step["obs"] * 10, "end": step["end"]})
    batches = list(PatternDataset(source, [TWO], True, is_end).batch(2, drop_remainder=True).prefetch(1))
    assert [batch["x"].tolist() for batch in batches] == [[[0, 10], [10, 20]], [[20, 30], [40, 50]]]


def test_the_element_spec_is_the_configs_signature():
    spec = {"obs": reverie.TensorSpec((3,), np.float32), "end": reverie.TensorSpec((), np.bool_)}
    source = Dataset(lambda: iter(()), spec)
    dataset = PatternDataset(source, [TWO], True, is_end)
    assert dataset.element_spec == {"x": reverie.TensorSpec((2, 3), np.float32, "x")}
    assert PatternDataset(STEPS, [TWO], True, is_end).element_spec == {"x": reverie.TensorSpec((2,), np.int32)}


def test_steps_that_are_tuples_are_given_to_functions_as_their_parts():
    ref = structured.create_reference_step((None, None))
    config = create_config({"x": ref[0][-1]}, "t", [Condition.is_end_episode()])
    steps = [(step["obs"], step["end"]) for step in STEPS]
    assert lists(PatternDataset(steps, [config], True, lambda obs, end: end)) == [3, 6]


def test_samples_with_info_have_zeros_for_it():
    samples = list(pattern_dataset_with_info(STEPS, [TWO], True, is_end))
    assert samples[0].info == reverie.SampleInfo.zeros()
    assert [sample.data["x"].tolist() for sample in samples] == lists(PatternDataset(STEPS, [TWO], True, is_end))


def test_invalid_arguments_are_refused():
    one = create_config({"y": REF["obs"][-1]}, "t")
    with pytest.raises(ValueError, match="different structures"):
        PatternDataset(STEPS, [TWO, one], True, is_end)
    with pytest.raises(ValueError, match="at least one config"):
        PatternDataset(STEPS, [], True, is_end)
    mixed = create_config({"x": REF["end"][-2:]}, "t")
    spec = {"obs": reverie.TensorSpec((3,), np.float32), "end": reverie.TensorSpec((), np.bool_)}
    with pytest.raises(ValueError, match="float32 and bool"):
        PatternDataset(Dataset(lambda: iter(()), spec), [TWO, mixed], True, is_end)
    for wrong in (1, None, np.array([True]), np.float32(1)):
        with pytest.raises(TypeError, match="one bool"):
            list(PatternDataset(STEPS, [TWO], True, lambda step, wrong=wrong: wrong))
    with pytest.raises(reverie.SignatureError, match="'other'"):
        list(PatternDataset([{"other": 1}], [TWO], True, is_end))
