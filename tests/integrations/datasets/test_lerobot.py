"""LeRobot: folders of versions 2 and 3 are read, videos included, and written."""

import json

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow", reason='needs pyarrow: pip install "reverie[lerobot]"')
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("PIL")

from reverie.integrations.datasets import DatasetError, export_table, import_dataset, open_dataset  # noqa: E402

FPS, LENGTHS, SIZE = 10, (4, 3), 48
CAMERA = "observation.images.top"


def gray(episode, frame):
    """The brightness of a frame: frames of an episode and of both episodes can be distinguished."""
    return 20 + 100 * episode + 20 * frame


def video(path, levels):
    av = pytest.importorskip("av", reason='videos need PyAV: pip install "reverie[lerobot]"')
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=FPS, options={"g": "2"})
        stream.width = stream.height = SIZE
        stream.pix_fmt = "yuv420p"
        for level in levels:
            frame = av.VideoFrame.from_ndarray(np.full((SIZE, SIZE, 3), level, np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def rows(episode, length, start):
    rng = np.random.default_rng(episode)
    return {
        "observation.state": pa.array(
            rng.normal(size=(length, 2)).astype(np.float32).tolist(), pa.list_(pa.float32(), 2)
        ),
        "action": pa.array(rng.normal(size=(length, 2)).astype(np.float32).tolist(), pa.list_(pa.float32(), 2)),
        "next.reward": np.arange(length, dtype=np.float32),
        "next.done": np.arange(length) == length - 1,
        "timestamp": (np.arange(length) / FPS).astype(np.float32),
        "frame_index": np.arange(length),
        "episode_index": np.full(length, episode),
        "index": np.arange(start, start + length),
        "task_index": np.zeros(length, np.int64),
    }


def info(version, with_video, **paths):
    vector = {"dtype": "float32", "shape": [2], "names": None}
    features = {"observation.state": vector, "action": vector}
    features["next.reward"] = {"dtype": "float32", "shape": [1], "names": None}
    features["next.done"] = {"dtype": "bool", "shape": [1], "names": None}
    features |= {
        name: {"dtype": dtype, "shape": [1], "names": None}
        for name, dtype in (
            ("timestamp", "float32"),
            *((n, "int64") for n in ("frame_index", "episode_index", "index", "task_index")),
        )
    }
    if with_video:
        features[CAMERA] = {"dtype": "video", "shape": [3, SIZE, SIZE], "names": ["channels", "height", "width"]}
    return {
        "codebase_version": version, "robot_type": "so100", "total_episodes": len(LENGTHS), "total_tasks": 1,
        "total_frames": sum(LENGTHS), "chunks_size": 1000, "fps": FPS, "features": features, **paths,
    }  # fmt: skip


def version_2(root, with_video=True):
    (root / "meta").mkdir(parents=True)
    paths = {
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
    }
    (root / "meta" / "info.json").write_text(json.dumps(info("v2.1", with_video, **paths)))
    lines = [json.dumps({"episode_index": n, "tasks": ["push"], "length": length}) for n, length in enumerate(LENGTHS)]
    (root / "meta" / "episodes.jsonl").write_text("\n".join(lines) + "\n")
    (root / "data" / "chunk-000").mkdir(parents=True)
    for number, length in enumerate(LENGTHS):
        table = pa.table(rows(number, length, sum(LENGTHS[:number])))
        pq.write_table(table, root / "data" / "chunk-000" / f"episode_{number:06d}.parquet")
        if with_video:
            levels = [gray(number, frame) for frame in range(length)]
            video(root / "videos" / "chunk-000" / CAMERA / f"episode_{number:06d}.mp4", levels)
    return root


def version_3(root, with_video=True):
    paths = {
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    }
    for folder in ("meta/episodes/chunk-000", "data/chunk-000"):
        (root / folder).mkdir(parents=True)
    (root / "meta" / "info.json").write_text(json.dumps(info("v3.0", with_video, **paths)))
    tables, episodes, levels = [], [], []
    for number, length in enumerate(LENGTHS):
        start = sum(LENGTHS[:number])
        tables.append(pa.table(rows(number, length, start)))
        levels += [gray(number, frame) for frame in range(length)]
        place = {"episode_index": number, "tasks": ["push"], "length": length}
        place |= {"data/chunk_index": 0, "data/file_index": 0, "stats/action/mean": [0.0]}
        if with_video:
            place |= {f"videos/{CAMERA}/chunk_index": 0, f"videos/{CAMERA}/file_index": 0}
            place[f"videos/{CAMERA}/from_timestamp"] = start / FPS
        episodes.append(place)
    pq.write_table(pa.concat_tables(tables), root / "data" / "chunk-000" / "file-000.parquet")
    pq.write_table(pa.Table.from_pylist(episodes), root / "meta" / "episodes" / "chunk-000" / "file-000.parquet")
    if with_video:
        video(root / "videos" / CAMERA / "chunk-000" / "file-000.mp4", levels)
    return root


@pytest.mark.long
@pytest.mark.parametrize("made", [version_2, version_3])
def test_both_versions_are_read_with_their_videos(client, contents, tmp_path, made):
    source = open_dataset(made(tmp_path / "set"))
    assert (source.format, source.num_episodes, source.num_rows) == ("lerobot", 2, 7)
    assert source.columns["obs/images/top"].shape == (3, SIZE, SIZE)
    assert source.details["robot"] == "so100"
    report = import_dataset(client, "to", source)
    assert (report.items, report.episodes) == (2, 2)
    found, _, lengths, _ = contents(client, "to")
    assert lengths == list(LENGTHS)
    assert sorted(found) == [
        "action", "obs/images/top", "obs/state", "reward", "task_index", "terminated", "timestamp",
    ]  # fmt: skip
    want = [gray(number, frame) for number, length in enumerate(LENGTHS) for frame in range(length)]
    # The codec loses a little; frames are 20 apart.
    assert np.abs(found["obs/images/top"].mean((1, 2, 3)) - want).max() < 5
    assert found["reward"].tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert found["terminated"].tolist() == [False] * 3 + [True] + [False] * 2 + [True]
    assert found["obs/state"].dtype == np.float32


def test_videos_that_are_left_out_are_not_opened(client, contents, tmp_path):
    root = version_3(tmp_path / "set")
    (root / "videos" / CAMERA / "chunk-000" / "file-000.mp4").unlink()
    assert import_dataset(client, "to", open_dataset(root, columns=["obs/state", "action"])).items == 2
    assert sorted(contents(client, "to")[0]) == ["action", "obs/state"]
    with pytest.raises(DatasetError, match=r"file-000\.mp4: not a readable video"):
        import_dataset(client, "to", open_dataset(root, columns=["obs"]))


@pytest.mark.parametrize("made", [version_2, version_3])
def test_transitions_and_sequences_come_from_chosen_columns(client, tmp_path, made):
    source = open_dataset(made(tmp_path / "set", False), columns=["obs", "action", "reward", "terminated"])
    assert import_dataset(client, "to", source, as_="transitions").items == 7
    data = client.get("to", client.query("to").key).data
    assert np.flatnonzero(data["discount"] == 0).tolist() == [3, 6]
    client.reset("to")
    assert import_dataset(client, "to", source, as_="sequences", length=2).items == 4


def test_the_frames_of_an_episode_are_found_in_the_middle_of_a_video(tmp_path):
    pytest.importorskip("av")
    from reverie.integrations.datasets.videos import VideoReader

    video(tmp_path / "v.mp4", [gray(0, frame) for frame in range(8)])
    reader = VideoReader(tmp_path / "v.mp4", 0.05)
    reader.begin(0.5)
    assert abs(float(reader.frame(0.5).mean()) - gray(0, 5)) < 5
    reader.begin(0.2)
    assert abs(float(reader.frame(0.2).mean()) - gray(0, 2)) < 5
    with pytest.raises(DatasetError, match=r"v\.mp4: there is no frame at 3\.000 s"):
        reader.frame(3.0)
    reader.close()
    reader = VideoReader(tmp_path / "v.mp4", 0.02)
    with pytest.raises(DatasetError, match=r"no frame at 0\.250 s"):  # The next one is at 0.3 s.
        reader.frame(0.25)
    reader.close()
    (tmp_path / "w.mp4").write_bytes(b"no video at all")
    with pytest.raises(DatasetError, match=r"w\.mp4: not a readable video"):
        VideoReader(tmp_path / "w.mp4", 0.05)


def test_without_pyav_the_video_is_named_with_what_to_install(tmp_path, monkeypatch):
    import sys

    root = version_3(tmp_path / "set")
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ImportError, match=r"'obs/images/top' is a video.*reverie\[lerobot\].*columns="):
        open_dataset(root)
    assert open_dataset(root, columns=["action"]).num_rows == 7


def test_damaged_folders_are_named(client, tmp_path):
    root = version_2(tmp_path / "short", with_video=False)
    episodes = root / "meta" / "episodes.jsonl"
    episodes.write_text(episodes.read_text().replace('"length": 3', '"length": 5'))
    with pytest.raises(DatasetError, match="episode 1 has 3 rows, and its description 5"):
        import_dataset(client, "to", open_dataset(root))
    about = json.loads((root / "meta" / "info.json").read_text())
    for change, reason in (
        ({"codebase_version": "v1.6"}, "version v1.6 is not known here"),
        ({"data_path": "../other/{episode_index}.parquet"}, "leaves the data set's folder"),
        ({"features": 3}, "not the description of a LeRobot data set"),
    ):
        (root / "meta" / "info.json").write_text(json.dumps({**about, **change}))
        with pytest.raises(DatasetError, match=reason):
            open_dataset(root)
    (root / "meta" / "info.json").write_text("{")
    with pytest.raises(DatasetError, match=r"info\.json: not the description"):
        open_dataset(root)


def test_exported_data_comes_back_exactly(client, same, tmp_path):
    rng = np.random.default_rng(0)
    with client.episode_writer("from", priority=1.0) as writer:
        for episode, length in enumerate((5, 2)):
            for step in range(length):
                data = {
                    "obs": {"state": rng.normal(size=4).astype(np.float32), "map": rng.normal(size=(2, 3))},
                    "action": rng.normal(size=40).astype(np.float32),
                    "reward": np.float32([step]),
                    "terminated": step == length - 1 and episode == 0,
                    "truncated": step == length - 1 and episode == 1,
                    "task_index": np.int64(episode),
                    "camera": rng.integers(0, 255, (8, 9, 3), np.uint8),
                    "first": rng.integers(0, 255, (3, 8, 9), np.uint8),
                    "note": "ab" * step,
                }
                writer.append(data)
            writer.end_episode()
    report = export_table(client, "from", tmp_path / "set", format="lerobot", fps=10, task=["push", "pull"])
    assert (report.rows, report.left_out) == (7, 0)
    source = open_dataset(tmp_path / "set", columns=list(data))
    assert source.details == {"version": "v3.0", "fps": 10.0, "videos": 0, "tasks": 2}
    import_dataset(client, "to", source)
    same(client)


def test_the_description_has_what_lerobot_reads(client, played, tmp_path):
    played(client)
    report = export_table(client, "from", tmp_path / "set", format="lerobot", fps=20, task="play", robot_type="arm")
    assert (report.items, report.left_out) == (3, 3), "LeRobot has no row for a last observation"
    about = json.loads((tmp_path / "set" / "meta" / "info.json").read_text())
    assert (about["total_episodes"], about["total_frames"], about["fps"]) == (3, 10, 20)
    assert about["features"]["observation.pixels"] == {
        "dtype": "image", "shape": [8, 8, 3], "names": ["height", "width", "channels"],
    }  # fmt: skip
    assert about["features"]["next.done"] == {"dtype": "bool", "shape": [1], "names": None}
    rows = pq.read_table(tmp_path / "set" / "data").to_pydict()
    assert rows["index"] == list(range(10))
    assert rows["episode_index"] == [0] * 3 + [1] + [2] * 6
    assert np.allclose(rows["timestamp"][4:], np.arange(6) / 20)
    stats = json.loads((tmp_path / "set" / "meta" / "stats.json").read_text())
    rewards = np.array(rows["next.reward"])
    assert np.allclose(
        [stats["next.reward"][name] for name in ("mean", "std", "min", "max")],
        [[rewards.mean()], [rewards.std()], [rewards.min()], [rewards.max()]],
    )
    assert np.shape(stats["observation.pixels"]["mean"]) == (3, 1, 1)
    episodes = pq.read_table(tmp_path / "set" / "meta" / "episodes").to_pylist()
    assert [(of["dataset_from_index"], of["dataset_to_index"], of["tasks"]) for of in episodes] == [
        (0, 3, ["play"]), (3, 4, ["play"]), (4, 10, ["play"]),
    ]  # fmt: skip
    tasks = pq.read_table(tmp_path / "set" / "meta" / "tasks.parquet")
    assert tasks.to_pydict() == {"task_index": [0], "task": ["play"]}
    about = json.loads(tasks.schema.metadata[b"pandas"])
    assert about["index_columns"] == ["task"]
    assert {of["name"] for of in about["columns"]} == {"task_index", "task"}, "pandas refuses an index without them"


def test_columns_that_lerobot_does_not_have_are_refused_by_name(client, tmp_path):
    for column, reason in (({"x": 1j}, "'x' is complex128"), ({"index": 1}, "'index' has the name of a counter")):
        client.reset("from")
        with client.episode_writer("from") as writer:
            writer.append({"action": 1, **column})
            writer.end_episode()
        with pytest.raises(DatasetError, match=reason):
            export_table(client, "from", tmp_path / "set", format="lerobot", fps=10)
    client.reset("from")
    with client.episode_writer("from") as writer:
        writer.append({"task_index": 3})
        writer.end_episode()
    with pytest.raises(DatasetError, match="task_index 3, and there are 1 tasks"):
        export_table(client, "from", tmp_path / "set", format="lerobot", fps=10)
    assert list(tmp_path.iterdir()) == []
