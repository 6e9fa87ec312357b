"""Steps of other programs: flags, ends of episodes and next observations, and what is refused."""

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason='Parquet needs pyarrow: pip install "reverie[parquet]"')

import pyarrow as pa
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


ENDS = np.array([False, False, True, False, False, True])


@pytest.mark.parametrize("name", ["timeouts", "timeout", "truncations", "done", "dones", "terminals"])
def test_a_column_of_another_name_that_ends_episodes_is_refused_with_its_remedy(client, write, name):
    source = open_dataset(write(terminated=np.zeros(6, bool), **{name: ENDS}))
    remedy = (
        rf"rename=\{{'{name}': 'truncated'\}} of open_dataset, --rename {name}=truncated of `reverie data` and"
        rf" dataset_rename=\['{name}=truncated'\] of `train`"
    )
    for options in ({"as_": "transitions"}, {"as_": "episodes"}, {"as_": "sequences", "length": 2}):
        with pytest.raises(DatasetError, match=f"column '{name}' ends episodes and is not read.*{remedy}"):
            import_dataset(client, "to", source, **options)
    source = open_dataset(source.path, rename={name: "truncated"})
    report = import_dataset(client, "to", source, as_="transitions")
    assert (report.items, report.left_out, report.episodes) == (4, 2, 2)


def test_a_step_that_is_done_and_terminated_terminates(client, write):
    source = open_dataset(write(terminated=ENDS, done=ENDS), rename={"done": "truncated"})
    assert import_dataset(client, "to", source, as_="transitions").items == 6
    assert client.get("to", client.query("to").key).data["discount"].tolist() == pytest.approx([0.99, 0.99, 0] * 2)


def test_a_column_of_timeouts_is_not_needed_where_episodes_are_numbered_or_it_is_left_out(client, write):
    path = write(terminated=np.zeros(6, bool), timeouts=ENDS, episode=np.arange(6) // 3)
    assert import_dataset(client, "to", open_dataset(path), as_="transitions").items == 4
    client.reset("to")
    path = write(terminated=np.zeros(6, bool), timeouts=ENDS)
    source = open_dataset(path, columns=["obs", "action", "reward", "terminated"])
    assert import_dataset(client, "to", source, as_="transitions").items == 5


def test_the_columns_of_d4rl_are_those_of_transitions_after_the_rename_that_the_error_names(client, tmp_path):
    steps = {"observations": np.arange(6.0), "actions": np.zeros(6), "rewards": np.ones(6)}
    ends = {"terminals": ENDS & (np.arange(6) < 3), "timeouts": ENDS & (np.arange(6) > 3)}
    pq.write_table(pa.table({**steps, **ends}), tmp_path / "d4rl.parquet")
    rename = {"observations": "obs", "actions": "action", "rewards": "reward"}
    rename |= {"terminals": "terminated", "timeouts": "truncated"}
    with pytest.raises(DatasetError, match="need the columns obs, action, reward, terminated;") as raised:
        import_dataset(client, "to", open_dataset(tmp_path / "d4rl.parquet"), as_="transitions")
    assert f"rename={rename} of open_dataset" in str(raised.value)
    source = open_dataset(tmp_path / "d4rl.parquet", rename=rename)
    assert import_dataset(client, "to", source, as_="transitions").items == 5
