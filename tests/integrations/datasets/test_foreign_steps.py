"""Steps of other programs: flags, ends of episodes and next observations, and what is refused."""

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow", reason='Parquet needs pyarrow: pip install "reverie[parquet]"')

import pyarrow.parquet as pq

from reverie.integrations.datasets import DatasetError, import_dataset, open_dataset
from reverie.integrations.datasets.transitions import num_transitions


@pytest.fixture
def write(tmp_path):
    """A function: writes six steps of the observations 0 to 5 with further columns, and returns the file's path."""

    def write(**columns):
        steps = {"obs": np.arange(6.0), "action": np.zeros(6, np.int64), "reward": np.ones(6)}
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
        pq.write_table(pa.table({**steps, **columns}), path)
        return path

    return write


@pytest.mark.parametrize("numbered", [{}, {"episode": np.zeros(6, np.int64)}])
@pytest.mark.parametrize("flag", [np.nan, 0.5, -1.0, 2.0])
@pytest.mark.parametrize("name", ["terminated", "truncated"])
def test_a_flag_that_is_neither_0_nor_1_is_refused_with_its_column_and_row(client, write, name, flag, numbered):
    flags = {"terminated": np.zeros(6), "truncated": np.zeros(6), **numbered}
    flags[name] = np.array([0, 0, 0, 0, flag, 1])
    expected = rf"row 4 \(from 0\): column '{name}' is {flag}, and a flag must be 0 or 1"
    with pytest.raises(DatasetError, match=expected):
        import_dataset(client, "to", open_dataset(write(**flags)), as_="transitions")
    with pytest.raises(DatasetError, match=expected):
        num_transitions(open_dataset(write(**flags), columns=["terminated", "truncated"]))
    if not numbered:
        with pytest.raises(DatasetError, match=expected):
            import_dataset(client, "to", open_dataset(write(**flags)), as_="episodes")


def test_the_row_of_an_invalid_flag_counts_all_rows_before_it(client, tmp_path):
    for number, flag in enumerate([0.0, 7.0]):
        flags = pa.table({"obs": np.arange(3.0), "terminated": [0.0, flag, 1.0]})
        pq.write_table(flags, tmp_path / f"{number}.parquet")
    with pytest.raises(DatasetError, match=r"row 4 \(from 0\): column 'terminated' is 7.0"):
        import_dataset(client, "to", open_dataset(tmp_path), as_="episodes")


@pytest.mark.parametrize("dtype", [bool, np.int64, np.float64])
def test_flags_of_any_dtype_that_are_0_or_1_end_episodes(client, write, dtype):
    flags = np.array([0, 0, 1, 0, 0, 1]).astype(dtype)
    report = import_dataset(client, "to", open_dataset(write(terminated=flags)), as_="transitions")
    assert (report.items, report.episodes) == (6, 2)
