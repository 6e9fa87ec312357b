"""Steps of other programs: flags, ends of episodes and next observations, and what is refused."""

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason='Parquet needs pyarrow: pip install "reverie[parquet]"')

import pyarrow as pa
import pyarrow.parquet as pq

from reverie.integrations.datasets import DatasetError, import_dataset, open_dataset
from reverie.integrations.datasets.transitions import num_breaks, num_transitions


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
        rf" dataset_rename=\[\"{name}=truncated\"\] of `train` \(in a shell --set 'dataset_rename=\["
    )
    for options in ({"as_": "transitions"}, {"as_": "episodes"}, {"as_": "sequences", "length": 2}):
        with pytest.raises(DatasetError, match=f"column '{name}' may end episodes and is not read.*{remedy}"):
            import_dataset(client, "to", source, **options)
    source = open_dataset(source.path, rename={name: "truncated"})
    report = import_dataset(client, "to", source, as_="transitions")
    assert (report.items, report.left_out, report.episodes) == (4, 2, 2)


def test_a_step_that_is_done_and_terminated_terminates(client, write):
    source = open_dataset(write(terminated=ENDS, done=ENDS), rename={"done": "truncated"})
    assert import_dataset(client, "to", source, as_="transitions").items == 6
    assert client.get("to", client.query("to").key).data["discount"].tolist() == pytest.approx([0.99, 0.99, 0] * 2)


def test_a_column_of_another_name_is_not_needed_where_next_observations_show_the_ends(client, write):
    path = write(terminated=np.zeros(6, bool), timeouts=ENDS, next_obs=[1.0, 2, 30, 4, 5, 60])
    assert import_dataset(client, "to", open_dataset(path), as_="transitions", n_step=3).items == 6
    assert sorted(client.get("to", client.query("to").key).data["next_obs"]) == [30, 30, 30, 60, 60, 60]


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


NEXT_NAMES = ["next_obs", "next_observation", "next_observations"]


@pytest.mark.parametrize("name", NEXT_NAMES)
@pytest.mark.parametrize("n_step", [1, 2])
def test_transitions_in_any_order_keep_their_own_next_observation_and_returns_end_at_a_break(
    client, write, name, n_step
):
    order = [0, 1, 4, 3, 2, 5]
    obs, terminated = np.arange(6.0)[order], np.array(order) == 3
    source = open_dataset(write(obs=obs, terminated=terminated, **{name: obs + 1}))
    report = import_dataset(client, "to", source, as_="transitions", n_step=n_step, discount=0.5)
    assert (report.items, report.left_out) == (6, 0)
    data = client.get("to", client.query("to").key).data
    found = sorted(zip(*(data[name].tolist() for name in ("obs", "next_obs", "reward", "discount")), strict=True))
    alone = [(float(i), i + 1.0, 1.0, 0.0 if i == 3 else 0.5) for i in range(6)]
    if n_step == 2:
        alone[0] = (0.0, 2.0, 1.5, 0.25)  # row 1 goes on from row 0; no other row goes on from the one before it
    assert found == alone
    assert num_breaks(source, 1_000) == 3


NUMBERS = np.array([0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize("ends", [{"truncated": ENDS}, {"episode": NUMBERS}], ids=["truncated", "numbered"])
def test_a_next_observation_that_is_the_next_episode_s_first_one_is_missing(client, write, ends):
    shifted = np.append(np.arange(1.0, 6), np.nan)
    source = open_dataset(write(terminated=np.zeros(6, bool), next_obs=shifted, **ends))
    report = import_dataset(client, "to", source, as_="transitions")
    assert (report.items, report.left_out) == (4, 2)
    assert client.get("to", client.query("to").key).data["next_obs"].tolist() == [1, 2, 4, 5]


def test_a_terminated_step_needs_no_finite_next_observation(client, write):
    source = open_dataset(write(terminated=ENDS, next_obs=[1, 2, np.nan, 4, 5, np.nan]))
    assert import_dataset(client, "to", source, as_="transitions").items == 6
    data = client.get("to", client.query("to").key).data
    assert data["next_obs"].tolist() == [1, 2, 2, 4, 5, 5]
    assert data["discount"].tolist() == pytest.approx([0.99, 0.99, 0] * 2)


@pytest.mark.parametrize("seed", range(5))
def test_shuffled_rows_of_numbered_episodes_are_all_transitions(client, write, seed):
    order = np.random.default_rng(seed).permutation(6)
    obs, flags = np.arange(6.0)[order], ENDS[order]
    source = open_dataset(write(obs=obs, terminated=flags, episode=NUMBERS[order], next_obs=obs + 0.5))
    assert import_dataset(client, "to", source, as_="transitions").items == 6
    data = client.get("to", client.query("to").key).data
    assert sorted(data["next_obs"] - data["obs"]) == [0.5] * 6
    assert sorted(data["obs"][data["discount"] == 0]) == [2, 5]


def test_next_observations_that_were_rounded_to_a_shorter_dtype_go_on(write):
    obs = np.arange(6.0) / 3
    path = write(obs=obs, terminated=ENDS, next_obs=np.append(obs[1:], 2.0).astype(np.float32))
    assert num_breaks(open_dataset(path), 1_000) == 0


def test_the_next_observation_of_an_episode_s_last_step_is_its_last_observation(client, write):
    ends = {"terminated": ENDS & (np.arange(6) < 3), "truncated": ENDS & (np.arange(6) > 3)}
    source = open_dataset(write(**ends, next_observations=np.array([1, 2, 30, 4, 5, 60], np.float32)))
    report = import_dataset(client, "to", source, as_="transitions", discount=0.5)
    assert (report.items, report.left_out) == (6, 0)
    data = client.get("to", client.query("to").key).data
    assert sorted(data) == ["action", "discount", "next_obs", "obs", "reward"]
    assert data["next_obs"].tolist() == [1, 2, 30, 4, 5, 60]
    assert data["discount"].tolist() == [0.5, 0.5, 0, 0.5, 0.5, 0.5]


def test_a_last_row_with_the_last_observation_is_no_step_where_there_are_next_observations(client, write):
    ends = {"truncated": np.array([0, 1, 0, 0, 1, 0], bool), "terminated": np.zeros(6, bool)}
    episodes = {"episode": np.array([0, 0, 0, 1, 1, 1])}
    source = open_dataset(write(**ends, **episodes, next_obs=np.array([1.0, 2, 0, 4, 5, 0])))
    assert import_dataset(client, "to", source, as_="transitions").items == 4
    assert client.get("to", client.query("to").key).data["next_obs"].tolist() == [1, 2, 4, 5]


def test_next_observations_of_nests_are_compared_in_each_part(client, write):
    place, speed = np.arange(6.0), np.arange(6.0) / 2
    parts = {"obs/place": place, "obs/speed": speed, "next_obs/place": place + 1, "next_obs/speed": speed + 0.5}
    rename = {name.replace("/", "_"): name for name in parts}
    named = {"columns": ["obs", "next_obs", "action", "reward", "terminated"], "rename": {**rename, "obs": "plain"}}
    columns = {"terminated": ENDS, **{old: parts[new] for old, new in rename.items()}}
    read = open_dataset(write(**columns), **named)
    assert import_dataset(client, "to", read, as_="transitions").items == 6
    assert num_breaks(read, 1_000) == 0
    columns["next_obs_speed"] = speed
    read = open_dataset(write(**columns), **named)
    assert num_breaks(read, 1_000) == 4, "two rows of six end episodes by their flags"


def test_next_observations_of_another_shape_are_refused_before_a_row_is_read(client, write):
    source = open_dataset(write(terminated=ENDS, next_obs=[[0.0, 1.0]] * 6))
    with pytest.raises(DatasetError, match=r"column 'next_obs' differs from obs: .*\(2,\).* and .*\(\)"):
        import_dataset(client, "to", source, as_="transitions")
