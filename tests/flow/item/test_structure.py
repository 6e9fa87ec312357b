"""A signature is a structure, too: equal paths do not make a list a dictionary."""

from typing import NamedTuple

import numpy as np
import pytest

import reverie
from reverie import TensorSpec

FLOAT = TensorSpec((), np.float64)


class Step(NamedTuple):
    a: float
    b: float


@pytest.mark.parametrize(
    ("signature", "data", "got", "want"),
    [
        ({"0": FLOAT, "1": FLOAT}, [1.0, 2.0], "a list of 2", "a dict of"),
        ({0: FLOAT}, {"0": 1.0}, "a dict of '0'", "a dict of 0"),
        ((FLOAT, FLOAT), [1.0, 2.0, 3.0], "3 columns", "2 "),
        ({0: (FLOAT,), 1: FLOAT}, ([1.0], 2.0), "a tuple of 2", "a dict of 0, 1"),
        (Step(FLOAT, FLOAT), {"a": 1.0, "b": 2.0}, "a dict of", "Step of a, b"),
        ({"x": (FLOAT,)}, {"x": {"0": 1.0}}, "'x'.* a dict of '0'", "a tuple of 1"),
    ],
)
def test_data_of_another_structure_is_refused_though_its_paths_are_the_same(
    connect, uniform, signature, data, got, want
):
    client = connect(uniform("t", signature=signature))
    with pytest.raises(reverie.SignatureError, match=f"(?s){got}.*{want}"):
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
