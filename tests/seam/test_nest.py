import collections
import dataclasses
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reverie
from reverie import _native, specs
from reverie.testing import nests

LEAVES = st.one_of(st.integers(-5, 5), st.floats(allow_nan=False), st.text(max_size=2), st.none(), st.booleans())


def reference(nest):
    """Leaves in flattening order, by the definition: dicts by sorted key."""
    if isinstance(nest, dict):
        return [leaf for key in sorted(nest) for leaf in reference(nest[key])]
    if isinstance(nest, list | tuple):
        return [leaf for child in nest for leaf in reference(child)]
    return [nest]


def paths(nest, prefix=()):
    if isinstance(nest, dict):
        return [path for key in sorted(nest) for path in paths(nest[key], (*prefix, str(key)))]
    if isinstance(nest, list | tuple):
        return [path for index, child in enumerate(nest) for path in paths(child, (*prefix, str(index)))]
    return ["/".join(prefix)]


@given(nest=nests(LEAVES, max_leaves=12))
def test_nests_flatten_by_sorted_key_and_come_back(nest):
    leaves, structure = _native.flatten(nest)
    assert leaves == reference(nest)
    assert structure.paths == paths(nest)
    assert structure.unflatten(leaves) == nest
    assert structure == _native.flatten(nest)[1]
    assert hash(structure) == hash(_native.flatten(nest)[1])


Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Box:
    width: float
    inner: Pair
    made: int = dataclasses.field(init=False, default=3)


def test_records_flatten_in_the_order_of_their_fields():
    box = Box(1.0, Pair("l", {"b": 2, "a": 1}))
    leaves, structure = _native.flatten(box)
    assert leaves == [1.0, "l", 1, 2, 3]
    assert structure.paths == ["width", "inner/left", "inner/right/a", "inner/right/b", "made"]
    assert structure.unflatten(leaves) == box


def test_a_class_whose_fields_changed_is_replaced_by_a_generated_named_tuple():
    def make(fields):
        return collections.namedtuple("Changing", fields)

    first = make("a b")
    leaves, structure = _native.flatten(first(1, 2))
    assert type(structure.unflatten(leaves)) is first
    _native.flatten(make("a c")(1, 2))
    again = structure.unflatten([5, 6])
    assert (again.a, again.b, again._fields) == (5, 6, ("a", "b"))


@pytest.mark.parametrize(
    ("nest", "words"),
    [
        ({1: 0, "a": 0}, "no order"),
        ({(1, 2): 0}, "str or all int"),
        ({1.5: 0}, "str or all int"),
        ({"deep": {b"k": 0}}, "'deep'"),
    ],
)
def test_keys_that_cannot_be_sorted_are_refused(nest, words):
    with pytest.raises(reverie.SignatureError, match=words):
        _native.flatten(nest)


def test_a_recursive_nest_is_refused():
    endless = []
    endless.append(endless)
    with pytest.raises(reverie.SignatureError, match="deeper than 64"):
        _native.flatten(endless)


def test_too_few_and_too_many_leaves_are_refused():
    _, structure = _native.flatten({"a": 1, "b": 2})
    for wrong in ([1], [1, 2, 3]):
        with pytest.raises(reverie.SignatureError, match="2 leaves"):
            structure.unflatten(wrong)


def test_leaf_classes_of_ours_are_leaves():
    spec = reverie.TensorSpec((3, None), np.float32, "x")
    assert _native.flatten([spec])[0] == [spec]
    assert repr(spec) == "TensorSpec(shape=(3, None), dtype='float32', name='x')"
    with pytest.raises(AttributeError, match="shape"):
        spec.shape = ()


def test_signatures_take_anything_with_shape_and_dtype():
    nest = {"a": np.zeros((2, 3), np.int8), "b": [reverie.TensorSpec((None,), "f4")]}
    assert specs.signature(nest) == {
        "a": reverie.TensorSpec((2, 3), np.int8),
        "b": [reverie.TensorSpec((None,), np.float32)],
    }
    with pytest.raises(TypeError, match="'b'"):
        specs.signature({"a": np.zeros(2), "b": 5})
    assert specs.from_data({"x": 1.5, "y": np.zeros((2,), "S3")}) == {
        "x": reverie.TensorSpec((), np.float64),
        "y": reverie.TensorSpec((2,), "S3"),
    }


class Space:
    def __init__(self, shape=None, dtype=None, spaces=None):
        self.shape, self.dtype = shape, dtype
        if spaces is not None:
            self.spaces = spaces


def test_spaces_become_specs():
    box = Space((2,), np.float32)
    space = Space(spaces={"obs": box, "both": Space(spaces=(box, Space((), np.int64)))})
    spec = reverie.TensorSpec((2,), np.float32)
    assert specs.from_space(space) == {"obs": spec, "both": (spec, reverie.TensorSpec((), np.int64))}
    with pytest.raises(TypeError, match="Space"):
        specs.from_space(Space())


def test_a_server_and_its_clients_are_garbage_collected_together():
    server = reverie.Server([reverie.Table.queue("q", 1)], listen=False)
    server.client().insert({"n": 1}, {"q": 1.0})
    watch = weakref.ref(server)
    del server
    import gc

    gc.collect()
    assert watch() is None
