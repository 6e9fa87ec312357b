"""Import through the writers: transitions, sequences, limits, and what is refused."""

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason='Parquet needs pyarrow: pip install "reverie[parquet]"')

import reverie
from reverie.integrations.datasets import DatasetError, export_table, import_dataset, open_dataset


def steps(client, tmp_path, *episodes, **more):
    """A data set of episodes of `(obs, terminated, truncated)`; the reward is obs, the action obs + 100."""
    client.reset("from")
    with client.episode_writer("from") as writer:
        for episode in episodes:
            for obs, terminated, truncated in episode:
                data = {"obs": np.float32(obs), "action": np.int64(obs + 100), "reward": np.float32(obs)}
                writer.append({**data, "terminated": terminated, "truncated": truncated, **more})
            writer.end_episode()
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
    export_table(client, "from", path)
    return open_dataset(path)


def transitions(client):
    data = client.get("to", client.query("to").key).data
    return [
        (float(obs), int(action), round(float(reward), 4), round(float(discount), 4), float(after))
        for obs, action, reward, discount, after in zip(
            *(data[name] for name in ("obs", "action", "reward", "discount", "next_obs")), strict=True
        )
    ]


def test_transitions_keep_what_terminated_apart_from_what_was_cut_off(client, tmp_path):
    source = steps(
        client,
        tmp_path,
        [(1, False, False), (2, True, False), (3, False, False)],  # ends in the observation 3
        [(5, False, False), (6, False, True), (7, False, False)],
    )
    report = import_dataset(client, "to", source, as_="transitions", discount=0.5)
    assert (report.items, report.rows, report.episodes, report.left_out) == (4, 6, 2, 0)
    assert transitions(client) == [
        (1, 101, 1, 0.5, 2),
        (2, 102, 2, 0.0, 3),
        (5, 105, 5, 0.5, 6),
        (6, 106, 6, 0.5, 7),
    ]


def test_transitions_of_n_steps_are_those_of_the_writer(client, tmp_path):
    source = steps(client, tmp_path, [(1, False, False), (2, False, False), (3, False, True), (4, False, False)])
    import_dataset(client, "to", source, as_="transitions", n_step=2, discount=0.5)
    assert sorted(transitions(client)) == [(1, 101, 2.0, 0.25, 3), (2, 102, 3.5, 0.25, 4), (3, 103, 3, 0.5, 4)]


def test_without_a_last_observation_a_cut_step_makes_no_transition_and_a_terminal_one_does(client, tmp_path):
    source = steps(client, tmp_path, [(1, False, False), (2, False, True)], [(5, False, False), (6, True, False)])
    report = import_dataset(client, "to", source, as_="transitions", discount=0.5)
    assert (report.items, report.left_out) == (3, 1)
    assert transitions(client) == [(1, 101, 1, 0.5, 2), (5, 105, 5, 0.5, 6), (6, 106, 6, 0, 6)]


def test_an_episode_without_any_end_bootstraps_from_its_last_observation(client, tmp_path):
    source = steps(client, tmp_path, [(1, False, False), (2, False, False)], [(5, False, False), (6, False, False)])
    assert import_dataset(client, "to", source, as_="transitions", discount=0.5).left_out == 2
    assert transitions(client) == [(1, 101, 1, 0.5, 2), (5, 105, 5, 0.5, 6)]


def test_steps_after_an_end_are_refused(client, tmp_path):
    source = steps(client, tmp_path, [(1, True, False), (2, False, False), (3, False, False)])
    with pytest.raises(DatasetError, match="episode 0: it has steps after the one that ended it"):
        import_dataset(client, "to", source, as_="transitions")


def test_other_columns_become_extras_of_transitions(client, tmp_path):
    source = steps(client, tmp_path, [(1, False, False), (2, True, False)], camera=np.uint8(7))
    import_dataset(client, "to", source, as_="transitions")
    assert client.get("to", client.query("to").key).data["camera"].tolist() == [7, 7]


def test_transitions_name_the_columns_that_are_missing(client, tmp_path):
    client.insert_batch("from", {"obs": np.zeros(3), "done": np.zeros(3, bool)})
    export_table(client, "from", tmp_path / "x.parquet")
    source = open_dataset(tmp_path / "x.parquet", rename={"done": "terminated"})
    with pytest.raises(DatasetError, match="need the columns action, reward; it has obs, terminated"):
        import_dataset(client, "to", source, as_="transitions")


def test_sequences_are_those_of_the_writer(client, tmp_path, contents):
    source = steps(client, tmp_path, [(step, False, False) for step in range(7)])
    report = import_dataset(client, "to", source, as_="sequences", length=3, period=2)
    assert (report.items, report.left_out) == (3, 0)
    found, _, lengths, _ = contents(client, "to")
    assert (found["obs"].tolist(), lengths) == ([0, 1, 2, 2, 3, 4, 4, 5, 6], [3, 3, 3])


@pytest.mark.parametrize(
    ("limits", "rows", "items", "stopped_by"),
    [
        ({"max_steps": 4}, 4, 1, "max_steps"),
        ({"max_episodes": 2}, 6, 2, "max_episodes"),
        ({"max_bytes": 4 * 18}, 4, 1, "max_bytes"),
        ({"max_bytes": 9 * 18, "max_steps": 9, "max_episodes": 3}, 9, 3, None),
    ],
)
def test_limits_stop_before_the_row_that_would_exceed_them(client, tmp_path, limits, rows, items, stopped_by):
    source = steps(client, tmp_path, *([(step, False, False) for step in range(3)] for _ in range(3)))
    assert source.row_bytes == 18
    report = import_dataset(client, "to", source, **limits)
    assert (report.rows, report.items, report.stopped_by) == (rows, items, stopped_by)
    assert report.left_out == rows - 3 * items
    assert report.size_bytes == rows * 18
    assert client.server_info()["to"].current_size == items


def test_limits_hold_for_rows_that_are_items_and_for_exports(client, tmp_path):
    client.insert_batch("from", {"x": np.arange(100)})
    report = export_table(client, "from", tmp_path / "all.parquet", max_bytes=8 * 70 + 7)
    assert (report.items, report.size_bytes, report.stopped_by) == (70, 560, "max_bytes")
    report = import_dataset(client, "to", open_dataset(tmp_path / "all.parquet"), max_steps=30)
    assert (report.items, report.stopped_by, client.server_info()["to"].current_size) == (30, "max_steps", 30)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"as_": "rows"}, "as_ must be one of"),
        ({"as_": "sequences"}, "needs length="),
        ({"as_": "episodes", "length": 3}, 'are for as_="sequences"'),
        ({"as_": "items", "n_step": 3}, "n_step is for"),
        ({"as_": "items", "max_episodes": 3}, "max_episodes is for"),
        ({"max_bytes": 0}, "max_bytes must be at least 1"),
    ],
)
def test_options_without_an_effect_are_refused(client, tmp_path, options, reason):
    source = steps(client, tmp_path, [(1, False, False)])
    with pytest.raises(ValueError, match=reason):
        import_dataset(client, "to", source, **options)
    assert client.server_info()["to"].current_size == 0


def test_an_unknown_table_and_rows_that_it_refuses_are_errors_of_the_client(client, tmp_path):
    source = steps(client, tmp_path, [(1, False, False)])
    with pytest.raises(reverie.UnknownTableError):
        import_dataset(client, "none", source)
    client.insert_batch("to", {"other": np.arange(3)})
    signature = {"obs": reverie.TensorSpec((None, 2), np.float32)}
    picky = reverie.Table("to", reverie.selectors.Fifo(), reverie.selectors.Fifo(), 5, signature=signature)
    with reverie.Server([picky], listen=False) as server, pytest.raises(reverie.SignatureError):
        import_dataset(server.client(), "to", source)


def test_progress_ends_with_the_whole_report(client, tmp_path):
    source, seen = steps(client, tmp_path, [(step, False, False) for step in range(5)]), []
    report = import_dataset(client, "to", source, progress=lambda report: seen.append(report.rows))
    assert seen[-1] == report.rows == 5
    assert report.seconds > 0


def test_the_memory_of_an_import_is_bounded_by_blocks_and_not_by_the_file(client, tmp_path):
    """Blocks are made when they are asked for: a file of 100 blocks is never whole in memory."""
    client.insert_batch("from", {"x": np.zeros((200, 1 << 18), np.uint8)})
    export_table(client, "from", tmp_path / "large.parquet")
    sizes = [
        sum(column.nbytes for column in block.columns) for block in open_dataset(tmp_path / "large.parquet").blocks()
    ]
    assert sum(sizes) == 200 << 18
    assert max(sizes) <= 4 << 20
