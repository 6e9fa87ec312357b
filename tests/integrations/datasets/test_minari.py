"""Minari: a data set that its own package writes is read, and one that is written here is read by that package."""

import json

import numpy as np
import pytest

minari = pytest.importorskip("minari", reason='needs Minari: pip install "reverie[minari]"')
pytest.importorskip("h5py")

from gymnasium import spaces  # noqa: E402
from minari.data_collector import EpisodeBuffer  # noqa: E402
from minari.dataset.minari_storage import MinariStorage  # noqa: E402

from reverie.integrations.datasets import DatasetError, export_table, import_dataset, open_dataset  # noqa: E402

OBSERVATIONS = spaces.Dict(
    {"state": spaces.Box(-1, 1, (3,), np.float32), "pair": spaces.Tuple([spaces.Discrete(4), spaces.MultiBinary(2)])}
)


def written(path, lengths=(3, 2), data_format="hdf5"):
    """A data set that Minari writes, and its episodes."""
    path.mkdir()
    storage = MinariStorage.new(
        path / "data", OBSERVATIONS, spaces.Discrete(5), data_format=data_format, jpeg_encoding=False
    )
    rng, episodes = np.random.default_rng(0), []
    for number, length in enumerate(lengths):
        last = np.arange(length) == length - 1
        pair = (rng.integers(0, 4, length + 1), rng.integers(0, 2, (length + 1, 2)).astype(np.int8))
        episodes.append(
            EpisodeBuffer(
                observations={"state": rng.normal(size=(length + 1, 3)).astype(np.float32), "pair": pair},
                actions=rng.integers(0, 5, length),
                rewards=rng.normal(size=length),
                terminations=last & (number % 2 == 0),
                truncations=last & (number % 2 == 1),
                seed=number,
            )
        )
    storage.update_episodes(episodes)
    storage.update_metadata({"dataset_id": "tests/written-v0", "minari_version": minari.__version__})
    return path, episodes


@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
def test_a_data_set_of_minari_becomes_episodes_with_their_last_observation(client, contents, tmp_path, data_format):
    if data_format == "arrow":
        pytest.importorskip("pyarrow")
    path, episodes = written(tmp_path / "m", data_format=data_format)
    source = open_dataset(path)
    assert (source.format, source.num_episodes, source.num_rows) == ("minari", 2, 7)
    assert source.details == {"id": "tests/written-v0"}
    assert import_dataset(client, "to", source).items == 2
    found, _, lengths, _ = contents(client, "to")
    assert lengths == [4, 3]
    assert found["obs/state"].tobytes() == b"".join(one.observations["state"].tobytes() for one in episodes)
    assert found["obs/pair/0"].tolist() == [value for one in episodes for value in one.observations["pair"][0]]
    assert found["reward"].tolist() == [*episodes[0].rewards, 0, *episodes[1].rewards, 0]
    assert found["reward"].dtype == np.float64
    assert np.flatnonzero(found["terminated"]).tolist() == [2]
    assert np.flatnonzero(found["truncated"]).tolist() == [5]


def test_transitions_of_minari_tell_what_terminated_from_what_was_cut_off(client, tmp_path):
    path, episodes = written(tmp_path / "m")
    assert import_dataset(client, "to", open_dataset(path), as_="transitions", discount=0.5).items == 5
    data = client.get("to", client.query("to").key).data
    assert data["discount"].tolist() == [0.5, 0.5, 0, 0.5, 0.5]
    assert data["next_obs"]["state"][4].tolist() == episodes[1].observations["state"][2].tolist()


@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
def test_data_exported_to_minari_is_read_by_it_and_comes_back_exactly(client, played, same, tmp_path, data_format):
    if data_format == "arrow":
        pytest.importorskip("pyarrow")
    played(client)
    client.update_priorities("from", client.query("from").key, np.ones(3))  # Minari has no priorities.
    report = export_table(client, "from", tmp_path / "mine" / "play-v3", format="minari", data_format=data_format)
    assert (report.items, report.rows) == (3, 13)
    theirs = minari.MinariDataset(tmp_path / "mine" / "play-v3" / "data")
    assert (theirs.id, theirs.total_episodes, theirs.total_steps) == ("mine/play-v3", 3, 10)
    assert [len(episode) for episode in theirs] == [3, 1, 6]
    assert theirs.observation_space["pixels"].dtype == np.uint8
    import_dataset(client, "to", open_dataset(tmp_path / "mine" / "play-v3"))
    same(client)


@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
def test_a_path_may_be_relative_to_the_working_folder(client, played, same, tmp_path, monkeypatch, data_format):
    if data_format == "arrow":
        pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    played(client)
    client.update_priorities("from", client.query("from").key, np.ones(3))  # Minari has no priorities.
    export_table(client, "from", "play-v3", format="minari", data_format=data_format)
    assert [one.name for one in tmp_path.iterdir()] == ["play-v3"]
    assert minari.MinariDataset(tmp_path / "play-v3" / "data").id == "play-v3"
    import_dataset(client, "to", open_dataset("play-v3"))
    same(client)


def test_the_environment_gives_its_spaces_and_its_specification(client, tmp_path):
    with client.episode_writer("from") as writer:
        for step in range(3):
            data = {"obs": np.zeros(4, np.float32), "action": np.int64(0), "reward": 1.0}
            writer.append({**data, "terminated": step == 1, "truncated": False})
        writer.end_episode()
    export_table(client, "from", tmp_path / "cart-v0", format="minari", environment="CartPole-v1")
    theirs = minari.MinariDataset(tmp_path / "cart-v0" / "data")
    assert theirs.action_space == spaces.Discrete(2)
    assert theirs.spec.env_spec.id == "CartPole-v1"


def test_tables_that_minari_cannot_hold_are_refused_by_name(client, tmp_path):
    client.insert_batch("from", {"x": np.arange(3)})
    with pytest.raises(DatasetError, match="single rows; fill a table with episode_writer"):
        export_table(client, "from", tmp_path / "m", format="minari")
    client.reset("from")
    data = {"obs": 1.0, "action": 1, "reward": 1.0, "terminated": True, "truncated": False}
    with client.episode_writer("from") as writer:
        writer.append({**data, "q": 0.5})
        writer.end_episode()
    with pytest.raises(DatasetError, match=r"needs the columns obs, action.*choose with columns="):
        export_table(client, "from", tmp_path / "m", format="minari")
    with pytest.raises(DatasetError, match="last observation"):
        export_table(client, "from", tmp_path / "m", format="minari", columns=list(data))
    assert list(tmp_path.iterdir()) == []


def test_damaged_and_foreign_folders_are_named(client, tmp_path):
    path, _ = written(tmp_path / "m")
    file = path / "data" / "main_data.hdf5"
    file.write_bytes(file.read_bytes()[:900])
    with pytest.raises(DatasetError, match=f"{path}.*(damaged|not a readable)"):
        import_dataset(client, "to", open_dataset(path))
    about = path / "data" / "metadata.json"
    about.write_text(json.dumps({"of": "another program"}))
    with pytest.raises(DatasetError, match=f"{path}.*not a readable Minari data set"):
        open_dataset(path)
    with pytest.raises(DatasetError, match="not a Minari data set"):
        open_dataset(tmp_path, format="minari")
