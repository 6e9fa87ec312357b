"""Configs of structured writers, before any step: invalid configs, and the signatures of items."""

import pickle

import numpy as np
import pytest

import reverie
from reverie import Table, rate_limiters, selectors, structured
from reverie.structured import Condition, create_config, td_error

STEP = {"a": None, "b": None, "c": None}
REF = structured.create_reference_step(STEP)
DATA = Condition.data(STEP)


def config(pattern, *conditions, table="t", priority=None):
    return create_config(pattern, table, conditions, priority)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: REF["a"][0], "future step"),
        (lambda: REF["a"][1:], "start must be below 0"),
        (lambda: REF["a"][:-1], "needs a start"),
        (lambda: REF["a"][:], "needs a start"),
        (lambda: REF["a"][-1:1], "stop must be at most 0"),
        (lambda: REF["a"][-2:-3], "no cells"),
        (lambda: REF["a"][-2:-2], "no cells"),
        (lambda: REF["a"][-3::-1], "step must be at least 1"),
        (lambda: REF["a"][-3::0], "step must be at least 1"),
        (lambda: REF["a"][-(1 << 40)], "32 bits"),
        (lambda: Condition.step_index() % 0, "divisor must be at least 1"),
        (lambda: Condition.step_index() % 2 == 2, "never hold"),
        (lambda: Condition.step_index() % 2 == -1, "never hold"),
        (lambda: Condition.step_index() % 1 != 0, "never hold"),
        (lambda: Condition.step_index() < 0, "never hold"),
        (lambda: Condition.steps_since_applied() == 0, "never hold"),
        (lambda: Condition.step_index() % 2 > 1, "never hold"),
        (lambda: DATA["a"] == 1 << 63, "64 bits"),
        (lambda: config({}), "at least one column"),
        (lambda: td_error(1.5, STEP, lambda step: step["b"]), "max_priority_weight"),
        (lambda: td_error(0.5, STEP, lambda step: step), "one leaf"),
        (lambda: config(REF["a"][-1], priority=td_error(0.5, STEP, lambda step: step["b"])), "0 slices of the field"),
        (
            lambda: config([REF["b"][-1], REF["b"][-2:]], priority=td_error(0.5, STEP, lambda s: s["b"])),
            "2 slices of the field",
        ),
        (lambda: config(REF["a"][-1], Condition.data({"z": None})["z"] == 1), "one step structure"),
    ],
)
def test_invalid_configs_are_refused_when_they_are_made(make, says):
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: REF["a"]["x"], "'a'.* must be an int"),
        (lambda: REF["a"][-1.5:], "start must be an int"),
        (lambda: Condition.step_index() == 1.5, "must be an int"),
        (lambda: config({"x": REF["a"]}), r"'x'.*needs an index"),
        (lambda: config({"x": 1}), r"'x'.*slice of a reference step"),
        (lambda: config(REF["a"][-1], Condition.step_index()), "comparison"),
        (lambda: create_config(REF["a"][-1], "t", Condition.is_end_episode()), "sequence"),
        (lambda: config(REF["a"][-1], priority=1.0), "constant_priority_fn"),
    ],
)
def test_arguments_of_the_wrong_type_are_refused_when_configs_are_made(make, says):
    with pytest.raises(TypeError, match=says):
        make()


def test_configs_are_data():
    made = config({"x": REF["a"][-3:-1:2], "y": [REF["b"][-1]]}, DATA["b"] % 3 == 2, Condition.is_end_episode())
    assert pickle.loads(pickle.dumps(made)) == made
    assert hash(made) == hash(pickle.loads(pickle.dumps(made)))
    assert made != config({"x": REF["a"][-3:-1], "y": [REF["b"][-1]]}, *made.conditions)
    assert structured.unpack_pattern(made) == {"x": REF["a"][-3:-1:2], "y": [REF["b"][-1]]}
    assert (made.table, [node.path for node in made.flat]) == ("t", ["a", "b"])
    assert repr(made) == (
        "Config({'x': step['a'][-3:-1:2], 'y': [step['b'][-1]]}, table='t', "
        "conditions=[Condition.data['b'] % 3 == 2, Condition.is_end_episode()], constant_priority_fn(1.0))"
    )
    with pytest.raises(AttributeError, match="cannot be changed"):
        made.table = "u"
    pattern = structured.pattern_from_transform(STEP, lambda step: {"x": step["a"][-3:-1:2], "y": [step["b"][-1]]})
    assert pattern == made.pattern


SPEC = {
    "a": reverie.TensorSpec((3,), np.float32),
    "b": reverie.TensorSpec((), np.int32),
    "c": reverie.TensorSpec((None, 2), np.int64),
}


def test_the_signature_of_configs_counts_their_cells():
    one = config({"x": REF["a"][-4::3], "y": REF["b"][-2], "z": {"c": REF["c"][-5:]}})
    assert structured.infer_signature([one], SPEC) == {
        "x": reverie.TensorSpec((2, 3), np.float32, "x"),
        "y": reverie.TensorSpec((), np.int32, "y"),
        "z": {"c": reverie.TensorSpec((5, None, 2), np.int64, "z/c")},
    }
    lengths = [config({"x": REF["b"][-2:]}), config({"x": REF["b"][-3:]})]
    assert structured.infer_signature(lengths, SPEC) == {"x": reverie.TensorSpec((None,), np.int32, "x")}


@pytest.mark.parametrize(
    ("configs", "spec", "says"),
    [
        ([], SPEC, "at least one config"),
        ([config({"x": REF["a"][-1]}), config({"x": REF["a"][-1]}, table="u")], SPEC, "different tables: 't', 'u'"),
        ([config({"x": REF["a"][-1]}), config({"y": REF["a"][-1]})], SPEC, "different structures"),
        ([config({"x": REF["a"][-1]}), config({"x": REF["b"][-1]})], SPEC, "float32 and int32"),
        ([config({"x": REF["a"][-1]}), config({"x": REF["a"][-1:]})], SPEC, r"\[3\] and \[1, 3\]"),
        ([config({"x": REF["a"][-1]})], {"b": SPEC["b"]}, "refer to a"),
    ],
)
def test_configs_without_one_signature_are_refused(configs, spec, says):
    with pytest.raises(ValueError, match=says):
        structured.infer_signature(configs, spec)


def test_a_table_with_the_inferred_signature_takes_the_items(connect):
    made = config({"x": REF["a"][-3::2], "y": REF["b"][-1]})
    signature = structured.infer_signature([made], SPEC)
    client = connect(Table("t", selectors.Fifo(), selectors.Fifo(), 10, rate_limiters.MinSize(1), signature=signature))
    with client.structured_writer([made]) as writer:
        for i in range(3):
            writer.append({"a": np.full(3, i, np.float32), "b": np.int32(i), "c": None})
    assert client.sample_batch("t", 1).data["x"][0, :, 0].tolist() == [0.0, 2.0]


def test_dm_reverbs_names_are_there():
    from reverie import structured_writer

    assert structured_writer.StructuredWriter is reverie.StructuredWriter
    names = set(structured_writer.__all__) - {"StructuredWriter"}
    assert all(getattr(structured_writer, name) is getattr(structured, name) for name in names)


def test_a_signature_is_inferred_from_the_fields_that_configs_refer_to():
    configs = [config({"x": REF["b"][-2:]}), config({"x": REF["b"][-3:]})]
    spec = reverie.TensorSpec((4,), np.int8)
    wanted = {"x": reverie.TensorSpec((None, 4), np.int8, "x")}
    assert structured.infer_signature(configs, {"b": spec, "other": {"d": spec}}) == wanted
    with pytest.raises(ValueError, match="refer to b"):
        structured.infer_signature(configs, {"a": spec, "c": spec})
    first = config(structured.pattern_from_transform(None, lambda step: step[-1]))
    assert structured.infer_signature([first], {"b": wanted["x"], "a": spec}) == reverie.TensorSpec((4,), np.int8, "")
