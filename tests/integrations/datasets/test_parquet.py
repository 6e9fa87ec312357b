"""Parquet: what was exported comes back exactly; files of other programs are read or refused by name."""

import collections
import io
import json

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow", reason='Parquet needs pyarrow: pip install "reverie[parquet]"')
pq = pytest.importorskip("pyarrow.parquet")

from reverie.integrations import datasets  # noqa: E402
from reverie.integrations.datasets import DatasetError, export_table, import_dataset, open_dataset  # noqa: E402
from reverie.integrations.datasets import parquet as format_  # noqa: E402

Pair = collections.namedtuple("Pair", "left right")
ROWS = 7


def rows(count=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "nest": Pair(np.arange(count), [rng.normal(size=(count, 2, 3)), (rng.random(count) < 0.5,)]),
        "image": rng.integers(0, 255, (count, 12, 12, 3), np.uint8),
        "half": rng.normal(size=(count, 4)).astype(np.float16),
        "complex": rng.normal(size=count) + 1j,
        "unsigned": rng.integers(0, 2**63, (count, 40)).astype(np.uint64) * 2,
        "text": np.array(["", "a", "wörld", "dd", "e", "f", "g"][:count]),
        "words": np.array([["a", "bb"]] * count),
        "bytes": np.array([b"", b"\x01\xff", b"c", b"d", b"e", b"f", b"g"][:count]),
        "nothing": np.zeros((count, 0), np.float32),
        "nan": np.full(count, np.nan, np.float32),
    }


def test_items_come_back_exactly_with_their_priorities(client, same, tmp_path):
    client.insert_batch("from", rows(), np.arange(ROWS) + 0.5)
    report = export_table(client, "from", tmp_path / "rows.parquet")
    assert (report.items, report.rows, report.as_) == (ROWS, ROWS, "items")
    source = open_dataset(tmp_path / "rows.parquet")
    assert (source.layout, source.num_rows, source.num_episodes) == ("items", ROWS, None)
    assert source.columns["image"].shape == (12, 12, 3)
    assert import_dataset(client, "to", source).items == ROWS
    same(client)


def test_extended_dtypes_come_back_exactly(client, same, tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    client.insert_batch("from", {"x": np.arange(6).reshape(3, 2).astype(ml_dtypes.bfloat16)})
    export_table(client, "from", tmp_path / "rows.parquet")
    import_dataset(client, "to", open_dataset(tmp_path / "rows.parquet"))
    same(client)


def test_episodes_come_back_exactly_with_their_ends_and_lengths(client, played, same, tmp_path):
    played(client)
    report = export_table(client, "from", tmp_path / "episodes.parquet")
    assert (report.items, report.episodes, report.rows, report.as_) == (3, 3, 13, "episodes")
    source = open_dataset(tmp_path / "episodes.parquet")
    assert (source.layout, source.num_episodes, source.count_episodes()) == ("steps", 3, 3)
    assert import_dataset(client, "to", source).items == 3
    same(client)


def test_overlapping_sequences_come_back_as_the_same_items(client, same, tmp_path):
    with client.sequence_writer("from", 4, 2, burn_in=1) as writer:
        for step in range(9):
            writer.append({"x": np.float32(step)})
        writer.end_episode()
    export_table(client, "from", tmp_path / "sequences.parquet")
    import_dataset(client, "to", open_dataset(tmp_path / "sequences.parquet"))
    same(client)


def test_stacks_of_frames_next_to_single_values_are_rows(client, contents, tmp_path):
    with client.transition_writer("from", frame_stack=3) as writer:
        for step in range(6):
            writer.append(np.full((2, 2), step, np.uint8), step, 1.0, False, False)
    export_table(client, "from", tmp_path / "stacks.parquet")
    assert import_dataset(client, "to", open_dataset(tmp_path / "stacks.parquet")).as_ == "items"
    one, other = (contents(client, name, None)[0] for name in ("from", "to"))
    assert other["obs"].shape == (5, 3, 2, 2)
    assert all(np.array_equal(one[path], other[path]) for path in one)


def test_columns_without_a_common_time_axis_are_refused_by_name(client, tmp_path):
    with client.trajectory_writer(5) as writer:
        for step in range(4):
            writer.append({"x": step, "state": np.zeros(2)})
        for length in (2, 3):
            item = {"x": writer.history["x"][-length:], "state": writer.history["state"][-1]}
            writer.create_item("from", 1.0, item)
    with pytest.raises(DatasetError, match=r"'from'.*columns="):
        export_table(client, "from", tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == [], "no file is left"
    assert export_table(client, "from", tmp_path / "x.parquet", columns=["x"]).rows == 5


def test_an_empty_table_and_a_file_that_is_there_are_refused(client, tmp_path):
    with pytest.raises(DatasetError, match="'from' has no items"):
        export_table(client, "from", tmp_path / "x.parquet")
    (tmp_path / "x.parquet").write_text("mine")
    with pytest.raises(FileExistsError, match=r"x\.parquet"):
        export_table(client, "from", tmp_path / "x.parquet")
    assert (tmp_path / "x.parquet").read_text() == "mine"


def test_a_compression_that_parquet_does_not_have_is_refused_and_no_file_is_left(client, tmp_path):
    client.insert_batch("from", {"x": np.arange(10)})
    with pytest.raises(ValueError, match=r"compression must be one of 'zstd', .*, got 'lzma'"):
        export_table(client, "from", tmp_path / "x.parquet", compression="lzma")
    assert list(tmp_path.iterdir()) == []


def test_items_that_leave_the_table_meanwhile_are_counted_and_the_others_written(client, tmp_path, monkeypatch):
    client.insert_batch("from", {"x": np.arange(10)})
    keys = client.query("from").key
    monkeypatch.setattr("reverie.integrations.datasets.tables.BLOCK_BYTES", 8 * 5)

    def show(report):
        client.delete("from", keys[[6, 8]])

    report = export_table(client, "from", tmp_path / "x.parquet", progress=show)
    assert (report.items, report.left_out) == (8, 2)
    assert pq.read_table(tmp_path / "x.parquet")["x"].to_pylist() == [0, 1, 2, 3, 4, 5, 7, 9]


def test_rows_are_streamed_in_blocks_and_row_groups(client, tmp_path, monkeypatch, contents):
    monkeypatch.setattr(format_, "ROW_GROUP_BYTES", 4000)
    monkeypatch.setattr(format_, "BLOCK_BYTES", 800)
    monkeypatch.setattr("reverie.integrations.datasets.tables.BLOCK_BYTES", 1600)
    client.insert_batch("from", {"x": np.arange(5000).reshape(500, 10)})
    export_table(client, "from", tmp_path / "x.parquet")
    assert pq.ParquetFile(tmp_path / "x.parquet").num_row_groups > 5
    blocks = [len(block) for block in open_dataset(tmp_path / "x.parquet").blocks()]
    assert max(blocks) <= 10
    assert sum(blocks) == 500


def test_rows_that_were_read_from_a_file_do_not_stay_in_memory(client, tmp_path, monkeypatch):
    monkeypatch.setattr(format_, "ROW_GROUP_BYTES", 1 << 20)
    client.insert_batch("from", {"x": np.random.default_rng(0).integers(0, 255, (400, 1 << 16), np.uint8)})
    export_table(client, "from", tmp_path / "large.parquet")
    source, before = open_dataset(tmp_path / "large.parquet"), pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for _ in source.blocks()]
    assert max(held) < 16 << 20, "of a file of 25 MiB"


def test_a_folder_of_files_is_read_in_the_order_of_names_and_episodes_stay_apart(client, played, tmp_path, contents):
    played(client, (2,))
    for name in ("b", "a"):
        export_table(client, "from", tmp_path / f"{name}.parquet")
    source = open_dataset(tmp_path)
    assert (source.num_rows, source.num_episodes) == (6, 2)
    assert import_dataset(client, "to", source).episodes == 2
    assert contents(client, "to")[2] == [3, 3]
    pq.write_table(pa.table({"other": [1]}), tmp_path / "c.parquet")
    with pytest.raises(DatasetError, match=r"c\.parquet.*differ"):
        open_dataset(tmp_path)


def test_columns_can_be_chosen_and_one_that_is_missing_is_named(client, tmp_path, contents):
    client.insert_batch("from", rows())
    export_table(client, "from", tmp_path / "x.parquet")
    import_dataset(client, "to", open_dataset(tmp_path / "x.parquet", columns=["text", "nest/left"]))
    assert sorted(contents(client, "to")[0]) == ["nest/left", "text"]
    with pytest.raises(DatasetError, match="no column 'pixels'"):
        open_dataset(tmp_path / "x.parquet", columns=["pixels"])


def test_a_file_that_is_no_parquet_or_is_cut_short_is_named(client, tmp_path):
    (tmp_path / "text.parquet").write_text("not at all")
    with pytest.raises(DatasetError, match=r"text\.parquet: not a readable Parquet file"):
        open_dataset(tmp_path / "text.parquet")
    client.insert_batch("from", {"x": np.random.default_rng(0).normal(size=(3000, 10))})
    export_table(client, "from", tmp_path / "whole.parquet")
    content = (tmp_path / "whole.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(content[: len(content) // 2])
    with pytest.raises(DatasetError, match=r"cut\.parquet: not a readable Parquet file"):
        open_dataset(tmp_path / "cut.parquet")
    (tmp_path / "zeros.parquet").write_bytes(content[:100] + bytes(5000) + content[5100:])
    with pytest.raises(DatasetError, match=r"zeros\.parquet: not a readable Parquet file"):
        import_dataset(client, "to", open_dataset(tmp_path / "zeros.parquet"))
    with pytest.raises(FileNotFoundError):
        open_dataset(tmp_path / "none.parquet")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(DatasetError, match=r"notes\.txt: not a data set"):
        open_dataset(tmp_path / "notes.txt")


def foreign(tmp_path, **columns):
    pq.write_table(pa.table(columns), tmp_path / "other.parquet")
    return tmp_path / "other.parquet"


def test_files_of_other_programs_are_read_with_lists_structs_and_images(client, contents, tmp_path):
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 255, (4, 5, 6, 3), np.uint8)
    encoded = []
    for one in pixels:
        file = io.BytesIO()
        image.fromarray(one).save(file, format="PNG")
        encoded.append({"bytes": file.getvalue(), "path": None})
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    path = foreign(
        tmp_path,
        episode_index=[4, 4, 9, 9],
        camera=pa.array(encoded, kind),
        matrix=pa.array([[[1.0, 2.0], [3.0, 4.0]]] * 4, pa.list_(pa.list_(pa.float32()))),
        pose=pa.array([{"x": 1, "y": 2.0}] * 4),
        **{"observation.state": pa.array([[1, 2, 3]] * 4, pa.list_(pa.int16(), 3))},
    )
    source = open_dataset(path, rename={"observation.state": "obs/state", "camera": "obs/camera"})
    assert (source.layout, source.count_episodes()) == ("steps", 2)
    import_dataset(client, "to", source)
    found, _, lengths, _ = contents(client, "to")
    assert lengths == [2, 2]
    assert (found["obs/camera"] == pixels).all()
    assert found["matrix"].dtype == np.float32
    assert found["matrix"][3].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert (found["pose.x"].tolist(), found["obs/state"].dtype) == ([1] * 4, np.int16)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (pa.array([1, None]), "'x' has missing values"),
        (pa.array([[1], [1, 2]]), "'x' has lists of different lengths"),
        (pa.array([[1, 2], [3, None]]), "'x' has missing values"),
        (pa.array([1, 2], pa.timestamp("s")), "'x' holds timestamp"),
        (pa.array([{"bytes": b"no image", "path": None}] * 2), "'x' has a damaged image"),
    ],
)
def test_values_that_no_array_holds_are_refused_by_column(client, tmp_path, values, reason):
    with pytest.raises(DatasetError, match=f"other.parquet: column {reason}"):
        import_dataset(client, "to", open_dataset(foreign(tmp_path, x=values)))


def test_without_numbers_of_episodes_the_flags_end_them_and_without_both_rows_are_items(client, contents, tmp_path):
    path = foreign(tmp_path, x=[0, 1, 2, 3, 4], done=[False, True, False, False, True])
    assert open_dataset(path).layout == "items"
    with pytest.raises(DatasetError, match="belong to no episode"):
        import_dataset(client, "to", open_dataset(path), as_="episodes")
    source = open_dataset(path, rename={"done": "terminated"})
    assert source.count_episodes() == 2
    import_dataset(client, "to", source)
    assert contents(client, "to")[2] == [2, 3]
    with pytest.raises(DatasetError, match="no column 'nothing'"):
        open_dataset(path, episode="nothing")


def test_a_newer_version_of_the_metadata_is_refused(client, tmp_path):
    client.insert_batch("from", {"x": np.arange(3)})
    export_table(client, "from", tmp_path / "x.parquet")
    table = pq.read_table(tmp_path / "x.parquet")
    about = json.loads(table.schema.metadata[b"reverie"])
    newer = table.replace_schema_metadata({b"reverie": json.dumps({**about, "version": 2})})
    pq.write_table(newer, tmp_path / "newer.parquet")
    with pytest.raises(DatasetError, match="newer version of Reverie"):
        open_dataset(tmp_path / "newer.parquet")


def test_the_public_names_are_those_of_the_guide():
    assert sorted(datasets.__all__) == [
        "DatasetError", "DatasetSource", "EpisodeRow", "RowBlock", "TransferReport", "export_table", "import_dataset",
        "open_dataset",
    ]  # fmt: skip
