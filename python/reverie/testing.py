"""Helpers for tests of code that uses Reverie: servers, and Hypothesis strategies for what is stored."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from reverie.client import Client
from reverie.server import Server
from reverie.tables import Table

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["DTYPES", "TRANSPORTS", "Transport", "arrays", "nests", "serve"]

Transport = Literal["in-process"]

#: Every way in which a client can reach its tables; the flow's tests run over each.
TRANSPORTS: tuple[Transport, ...] = ("in-process",)

#: The numeric dtypes that every column can hold, without those of ml_dtypes.
DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)


@contextlib.contextmanager
def serve(tables: Sequence[Table], transport: Transport = "in-process", **options: Any) -> Iterator[Client]:
    """A client of a fresh server with these tables, over a transport; the server stops at the end.

    Args:
        tables: the tables.
        transport: one of `TRANSPORTS`.
        options: for `Server`.
    """
    if transport not in TRANSPORTS:
        raise ValueError(f"transport must be one of {TRANSPORTS}, got {transport!r}")
    with Server(tables, listen=False, **options) as server, server.client() as client:
        yield client


def arrays(max_side: int = 3) -> SearchStrategy[np.ndarray[Any, Any]]:
    """Arrays of any dtype that a column can hold, of up to three axes, in any memory order."""
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as hnp

    dtypes = st.sampled_from([*DTYPES, "S3", "U2", ">i4", ">f8"])
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=max_side)
    plain = dtypes.flatmap(lambda dtype: hnp.arrays(np.dtype(dtype), shapes))
    return st.one_of(
        plain, plain.map(lambda array: array.T), plain.map(lambda array: array[..., ::-1] if array.ndim else array)
    )


def nests(leaves: SearchStrategy[Any], max_leaves: int = 6) -> SearchStrategy[Any]:
    """Nests of dicts, lists and tuples with at least one leaf."""
    from hypothesis import strategies as st

    def extend(children: SearchStrategy[Any]) -> SearchStrategy[Any]:
        keys = st.text("abc/", min_size=1, max_size=3)
        return st.one_of(
            st.dictionaries(keys, children, min_size=1, max_size=3),
            st.dictionaries(st.integers(-3, 300), children, min_size=1, max_size=3),
            st.lists(children, min_size=1, max_size=3),
            st.lists(children, min_size=1, max_size=3).map(tuple),
        )

    return st.recursive(leaves, extend, max_leaves=max_leaves)
