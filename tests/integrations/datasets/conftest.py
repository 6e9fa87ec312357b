"""Shared by tests of data sets: tables, episodes, and exact comparison."""

import numpy as np
import pytest

from reverie import Server, Table, _native, selectors
from reverie.integrations.datasets.nests import described


def table(name, size=100_000):
    return Table(name, selectors.Uniform(), selectors.Fifo(), size)


@pytest.fixture
def client():
    """A client of the tables "from" and "to"."""
    with Server([table("from"), table("to")], listen=False) as server:
        yield server.client()


@pytest.fixture
def played():
    """A function that fills "from" with episodes: `played(client)`; each ends in a row with the last observation."""

    def played(client, lengths=(3, 1, 6), seed=0):
        rng = np.random.default_rng(seed)
        with client.episode_writer("from") as writer:
            for number, length in enumerate(lengths):
                for step in range(length):
                    last = step == length - 1
                    writer.append(row(rng, last and number % 2 == 0, last and number % 2 == 1))
                writer.append(row(rng, False, False, empty=True))
                writer.end_episode(priority=1.0 + number)

    return played


def row(rng, terminated, truncated, empty=False):
    action, reward = rng.integers(0, 5), np.float32(rng.normal())
    return {
        "obs": {"state": rng.normal(size=3).astype(np.float32), "pixels": rng.integers(0, 255, (8, 8, 3), np.uint8)},
        "action": np.int64(0 if empty else action),
        "reward": np.float32(0) if empty else reward,
        "terminated": terminated,
        "truncated": truncated,
    }


@pytest.fixture
def contents():
    """A function: a table's columns by path in the order of insertion, with lengths and priorities."""

    def contents(client, name, ragged="values"):
        found = client.query(name)
        batch = client.get(name, found.key, ragged=ragged)
        leaves, structure = _native.flatten(batch.data)
        lengths = None if batch.lengths is None else batch.lengths.tolist()
        form = described(batch.data)
        return dict(zip(structure.paths, leaves, strict=True)), form, lengths, batch.info.priority.tolist()

    return contents


@pytest.fixture
def same(contents):
    """A function that asserts that two tables hold the same items: bytes, dtypes, nests, lengths and priorities."""

    def same(client, one="from", other="to", ragged="values"):
        columns, form, lengths, priorities = contents(client, one, ragged)
        copied, form_of_copy, lengths_of_copy, priorities_of_copy = contents(client, other, ragged)
        assert form == form_of_copy
        assert (lengths, priorities) == (lengths_of_copy, priorities_of_copy)
        for path, column in columns.items():
            assert (copied[path].dtype, copied[path].shape) == (column.dtype, column.shape), path
            assert copied[path].tobytes() == column.tobytes(), path

    return same
