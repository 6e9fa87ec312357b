"""A signature names columns; data of another structure with the same columns fits it, as in dm-reverb."""

from typing import NamedTuple

import numpy as np
import pytest

import reverie
from reverie import TensorSpec

FLOAT = TensorSpec((), np.float64)


class Step(NamedTuple):
    a: float
    b: float


class Backwards(NamedTuple):
    b: float
    a: float


@pytest.mark.parametrize(
    ("signature", "data", "unpacked"),
    [
        ({"0": FLOAT, "1": FLOAT}, [1.0, 2.0], {"0": 1.0, "1": 2.0}),
        ({0: FLOAT}, {"0": 1.0}, {0: 1.0}),
        ((FLOAT, {"x": FLOAT}), {"q": 1.0, "r": 2.0}, (1.0, {"x": 2.0})),
        (FLOAT, [1.0], 1.0),
        (Step(FLOAT, FLOAT), {"a": 1.0, "b": 2.0}, Step(1.0, 2.0)),
        # By place where names differ, by name where they do not: dm-reverb would give b the value of a.
        (Backwards(FLOAT, FLOAT), {"a": 1.0, "b": 2.0}, Backwards(2.0, 1.0)),
    ],
)
def test_columns_of_another_structure_are_taken_and_come_back_in_that_of_the_signature(
    connect, uniform, signature, data, unpacked
):
    client = connect(uniform("t", signature=signature))
    client.insert(data, {"t": 1.0})
    [[sample]] = client.sample("t", unpack_as_table_signature=True)
    assert sample.data == unpacked
    assert type(sample.data) is type(unpacked) or not isinstance(unpacked, tuple | dict)
    dataset = reverie.TimestepDataset.from_table_signature(client, "t", 1, max_samples=1)
    assert [element.data for element in dataset] == [unpacked]


@pytest.mark.parametrize(
    ("signature", "data", "message"),
    [
        ((FLOAT, FLOAT), [1.0, 2.0, 3.0], "3 columns.*2 "),
        (Backwards(FLOAT, TensorSpec((), np.int64)), {"a": 1.0, "b": 2}, "'b': got int64"),
        ({"x": FLOAT, "y": TensorSpec((), np.int64)}, {"p": 1, "q": 2.0}, "'x': got int64"),
    ],
)
def test_columns_that_do_not_fit_are_refused_whatever_their_structure(connect, uniform, signature, data, message):
    client = connect(uniform("t", signature=signature))
    with pytest.raises(reverie.SignatureError, match=message):
        client.insert(data, {"t": 1.0})
    assert client.info().tables["t"].current_size == 0


def test_lists_are_taken_for_tuples_and_tuples_for_lists(connect, uniform):
    client = connect(uniform("t", signature={"x": (FLOAT, [FLOAT])}))
    client.insert({"x": [1.0, (2.0,)]}, {"t": 1.0})
    [[sample]] = client.sample("t", unpack_as_table_signature=True)
    assert sample.data["x"][1][0] == 2.0


def test_data_of_the_same_structure_is_taken(connect, uniform):
    client = connect(uniform("t", signature=Step(FLOAT, FLOAT)))
    client.insert(Step(1.0, 2.0), {"t": 1.0})
    assert client.sample_batch("t", 1).data == Step(np.array([1.0]), np.array([2.0]))
