"""The files of a run's checkpoints: whole or not there, named where they are damaged, and removed in order."""

import contextlib
import errno
import os
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import reverie  # noqa: E402
from reverie import agents  # noqa: E402
from reverie.agents import preset_choice, presets  # noqa: E402
from reverie.runners import CheckpointError, checkpoints  # noqa: E402
from reverie.runners.checkpoints import checkpoint_files  # noqa: E402

NEST = {
    "none": None,
    "numbers": [1, -2.5, True, 2**100, float("inf")],
    "pair": (1, "two"),
    3: {"array": np.arange(6, dtype=np.int16).reshape(2, 3), "scalar": np.float32(0.1)},
    "tensor": torch.arange(5, dtype=torch.float64),
    "empty": np.zeros((0, 4), np.float32),
}


def test_a_saved_state_is_loaded_unchanged(tmp_path, same):
    path = checkpoints.save(tmp_path, 7, NEST, "[agent]\n")
    loaded = checkpoints.load(path)
    assert loaded[3].pop("scalar") == pytest.approx(np.float32(0.1))
    expected = {**NEST, 3: {"array": NEST[3]["array"]}}
    assert same(expected, loaded)
    assert (path / "preset.toml").read_text() == "[agent]\n"


def test_unsupported_values_are_refused_and_leave_no_files(tmp_path):
    with pytest.raises(TypeError, match="a checkpoint cannot hold a set"):
        checkpoints.save(tmp_path, 7, {"a": {1, 2}}, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["state.json", "arrays.npz", "preset.toml"])
def test_any_changed_byte_is_found_and_the_file_is_named(tmp_path, name):
    path = checkpoints.save(tmp_path, 7, {"w": np.arange(3.0), "n": 12345}, "[agent]\nn_step = 3\n")
    whole = (path / name).read_bytes()
    for position in range(0, len(whole), max(1, len(whole) // 97)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        (path / name).write_bytes(bytes(damaged))
        with pytest.raises(CheckpointError) as caught:
            checkpoints.load(path)
        # A changed checksum in the first line of state.json accuses the file that it is of.
        assert caught.value.path == path / name or name == "state.json"
    (path / name).write_bytes(whole[:-3])
    with pytest.raises(CheckpointError, match=r"is damaged") as caught:
        checkpoints.load(path)
    assert caught.value.path == path / name
    (path / name).unlink()
    with pytest.raises(CheckpointError, match=r"cannot be read: No such file") as caught:
        checkpoints.load(checkpoint_files.all_in(tmp_path)[-1])
    assert caught.value.path == path / name


def test_the_newest_two_stay_and_are_found_by_the_runs_folder_or_their_own(tmp_path):
    saved = [checkpoints.save(tmp_path / "checkpoints", step, {"step": step}, "") for step in (5, 90, 1_000_000)]
    checkpoint_files.remove_outdated(tmp_path / "checkpoints")
    assert [path.exists() for path in saved] == [False, True, True]
    assert checkpoints.find(tmp_path) == saved[2]
    assert checkpoints.find(saved[1]) == saved[1]
    with pytest.raises(
        CheckpointError, match=f"this folder has checkpoints, and is in that of their run, {tmp_path}; "
    ):
        checkpoints.find(tmp_path / "checkpoints")
    with pytest.raises(CheckpointError, match="is missing: there is no such folder; name a run's folder"):
        checkpoints.find(tmp_path / "nowhere")


def test_a_folder_without_a_checkpoint_is_reported_with_what_it_is(tmp_path):
    def reason(folder):
        with pytest.raises(CheckpointError) as caught:
            checkpoints.find(folder)
        return caught.value.reason.partition(": ")[2].partition("; ")[0]

    (tmp_path / "empty").mkdir()
    (tmp_path / "text").mkdir()
    (tmp_path / "text/notes.txt").write_text("lr")
    for name in ("empty", "text"):
        assert reason(tmp_path / name) == "this folder is not a run: it has neither log.jsonl nor checkpoints/"
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun/log.jsonl").write_text("{}")
    (tmp_path / "early/checkpoints").mkdir(parents=True)
    for name in ("begun", "early"):
        assert reason(tmp_path / name) == "the run in this folder has not written one yet"
    for seed in range(2):
        checkpoints.save(tmp_path / f"sweep/seed-{seed}/checkpoints", 5, {"step": 5}, "")
    assert reason(tmp_path / "sweep") == "this folder is not a run, and has those of seed-0, seed-1"


def test_a_half_written_checkpoint_is_never_found_and_is_removed_by_the_next(tmp_path):
    whole = checkpoints.save(tmp_path, 5, {"step": 5}, "")
    for word in ("draft", "removed"):
        (tmp_path / f".{word}-000000000006").mkdir()
        (tmp_path / f".{word}-000000000006" / "state.json").write_text("half")
    assert checkpoint_files.all_in(tmp_path)[-1] == whole
    checkpoints.save(tmp_path, 7, {"step": 7}, "")
    checkpoint_files.remove_outdated(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000000005", "000000000007"]


@pytest.mark.parametrize("failing", range(3))
def test_a_full_disk_loses_nothing_already_saved(tmp_path, monkeypatch, failing):
    first = checkpoints.save(tmp_path, 5, {"step": 5}, "old")
    write, calls = checkpoint_files._write, []

    def full(path, data):
        calls.append(path)
        if len(calls) == failing + 1:
            path.write_bytes(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, data)

    monkeypatch.setattr(checkpoint_files, "_write", full)
    for step in (5, 6):
        calls.clear()
        with pytest.raises(OSError, match="No space left"):
            checkpoints.save(tmp_path, step, {"step": step}, "new")
        assert checkpoint_files.all_in(tmp_path)[-1] == first
        assert checkpoints.load(first) == {"step": 5}
        assert [path.name for path in tmp_path.iterdir()] == [first.name]


@pytest.mark.parametrize("failing", range(2))
def test_a_checkpoint_that_cannot_be_replaced_stays(tmp_path, monkeypatch, failing):
    first = checkpoints.save(tmp_path, 5, {"step": 5}, "old")
    rename, calls = Path.rename, []

    def broken(path, target):
        calls.append(path)
        if len(calls) == failing + 1:
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", broken)
    with pytest.raises(OSError, match="Input/output"):
        checkpoints.save(tmp_path, 5, {"step": 5}, "new")
    assert [path.name for path in tmp_path.iterdir()] == [first.name]
    assert (first / "preset.toml").read_text() == "old"


@pytest.mark.parametrize("earlier", [True, False])
def test_a_checkpoint_that_is_not_flushed_is_not_saved(tmp_path, monkeypatch, earlier):
    if earlier:
        checkpoints.save(tmp_path, 5, {"step": 5}, "old")

    def broken(folder):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(checkpoint_files, "_flush_folder", broken)
    with pytest.raises(OSError, match="Input/output"):
        checkpoints.save(tmp_path, 5, {"step": 5}, "new")
    found = checkpoint_files.all_in(tmp_path)
    assert [(path / "preset.toml").read_text() for path in found] == ["old"] * earlier
    assert list(tmp_path.iterdir()) == found


def test_the_names_of_a_checkpoint_are_on_the_disk_before_it_has_its_own_and_before_others_are_removed(
    tmp_path, monkeypatch
):
    folder, order = tmp_path / "run" / "checkpoints", []
    flush, rename, delete = checkpoint_files._flush_folder, Path.rename, checkpoint_files._delete

    def flushed(path):
        order.append(("flushed", path.name))
        flush(path)

    def renamed(path, target):
        order.append(("renamed", path.name))
        return rename(path, target)

    def deleted(path):
        if path.exists():
            order.append(("deleted", path.name))
        delete(path)

    monkeypatch.setattr(checkpoint_files, "_flush_folder", flushed)
    monkeypatch.setattr(Path, "rename", renamed)
    monkeypatch.setattr(checkpoint_files, "_delete", deleted)
    first = checkpoints.save(folder, 5, {"step": 5}, "one").name
    made = [("flushed", name) for name in (f".draft-{first}", "run", tmp_path.name)]
    assert order == [*made, ("renamed", f".draft-{first}"), ("flushed", "checkpoints")]
    order.clear()
    second = checkpoints.save(folder, 6, {"step": 6}, "two").name
    assert order[:2] == [("flushed", f".draft-{second}"), ("renamed", f".draft-{second}")]
    order.clear()
    checkpoint_files.remove([folder / first])
    assert order == [("renamed", first), ("flushed", "checkpoints"), ("deleted", f".removed-{first}")]


@pytest.mark.parametrize(("code", "saved"), [(errno.EINVAL, True), (errno.ENOTSUP, True), (errno.EIO, False)])
def test_a_file_system_that_flushes_no_folder_has_checkpoints(tmp_path, monkeypatch, code, saved):
    fsync = os.fsync

    def refusing(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(code, os.strerror(code))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", refusing)
    with contextlib.nullcontext() if saved else pytest.raises(OSError, match="Input/output"):
        checkpoints.save(tmp_path, 5, {"step": 5}, "new")
    assert len(checkpoint_files.all_in(tmp_path)) == saved


def test_a_checkpoint_that_a_kill_left_set_aside_is_found_and_restored(tmp_path, monkeypatch):
    for step in (5, 90):
        checkpoints.save(tmp_path, step, {"step": step, checkpoints.REPLAY: []}, f"old {step}")

    class Kill(BaseException):
        pass

    rename = Path.rename

    def killed(path, target):
        if path.name.startswith(".draft-"):
            raise Kill
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", killed)
        with pytest.raises(Kill):
            checkpoints.save(tmp_path, 90, {"step": 90}, "new")
    newest = checkpoint_files.all_in(tmp_path)[-1]
    assert checkpoints.load(newest)["step"] == 90
    assert [checkpoints.env_steps_of(one) for one in checkpoint_files.all_in(tmp_path)] == [5, 90]
    assert "the earlier checkpoint 000000000005 is intact" in checkpoints.fallback_hint(newest)
    checkpoint_files.remove_outdated(tmp_path)
    assert checkpoint_files.all_in(tmp_path)[-1] == newest
    checkpoints.save(tmp_path, 1_000, {"step": 1_000}, "")
    checkpoint_files.remove_outdated(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000000090", "000000001000"]
    assert (tmp_path / "000000000090" / "preset.toml").read_text() == "old 90"


def test_one_folder_that_cannot_be_removed_keeps_no_other_one(tmp_path, monkeypatch):
    paths = [checkpoints.save(tmp_path, step, {"step": step}, "") for step in (1, 2, 3, 4)]
    rmtree = shutil.rmtree

    def refusing(path, **options):
        if path.name.endswith("1") and not options:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        rmtree(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", refusing)
        with pytest.raises(PermissionError):
            checkpoint_files.remove_outdated(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".removed-000000000001",
        *(one.name for one in paths[2:]),
    ]
    assert checkpoint_files.all_in(tmp_path) == paths[2:]
    checkpoint_files.remove_outdated(tmp_path)
    assert sorted(tmp_path.iterdir()) == paths[2:]


def test_the_link_to_a_folder_that_was_moved_elsewhere_is_removed(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "table").write_text("items")
    link = tmp_path / "run" / "replay-1"
    link.parent.mkdir()
    link.symlink_to(elsewhere)
    checkpoint_files.remove([link])
    assert not list(link.parent.iterdir())
    assert (elsewhere / "table").read_text() == "items"


def test_a_preset_that_was_written_reads_as_it_was(tmp_path):
    for name in agents.BUILT_IN:
        agent = agents.find(name)
        for path in agent.presets.glob("*.toml"):
            preset = agent.load_preset(preset_choice.environment_of(path))
            (tmp_path / "again.toml").write_text(presets.dump(preset))
            again = agent.load_preset(preset_choice.environment_of(path), tmp_path / "again.toml")
            assert (again.config, again.run) == (preset.config, preset.run)


def test_the_policy_of_a_run_without_a_checkpoint_is_named_where_a_policy_is_to_be_loaded(tmp_path):
    def reason(load):
        with pytest.raises(CheckpointError) as caught:
            load()
        return caught.value.reason

    (tmp_path / "checkpoints").mkdir()
    assert "best.safetensors" not in reason(lambda: reverie.load_policy(tmp_path))
    (tmp_path / "best.safetensors").touch()
    assert reason(lambda: reverie.load_policy(tmp_path)) == (
        "is missing: the run in this folder has not written one yet; the policy of its best evaluation is"
        f" {tmp_path / 'best.safetensors'}: name that file"
    )
    assert "best.safetensors" not in reason(lambda: checkpoints.find(tmp_path))
