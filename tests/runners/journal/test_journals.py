"""The journals of runs: which runs have one, where it is, and which are refused."""

import dataclasses
import shutil

import pytest

pytest.importorskip("torch")

from journal_runs import CONFIG, DQN, RUN, killed_at, read_journal, train_here

import reverie
from reverie import _native, agents
from reverie.runners import CheckpointError, StoppedError, checkpoints, train
from reverie.runners.checkpoints import actor_counts

# Their fork server is one for all of a worker.
pytestmark = pytest.mark.xdist_group("processes")


@pytest.mark.parametrize("name", ["ppo", "impala", "gorila"])
def test_agents_with_a_queue_or_several_learners_keep_a_journal(tmp_path, name):
    agent = agents.find(name)
    config = agent.load_preset("CartPole-v1").config
    config = dataclasses.replace(
        config, **({"learning_starts": 64, "samples_per_insert": 4.0} if name == "gorila" else {})
    )
    stopped, events = [], []

    def on_event(event):
        events.append(event)
        if getattr(event, "updates", 0) >= 3:
            stopped.append(event)

    with pytest.raises(StoppedError):
        train(
            agent,
            "CartPole-v1",
            run=dataclasses.replace(RUN, max_env_steps=10**6),
            config=config,
            folder=tmp_path,
            on_event=on_event,
            should_stop=lambda: bool(stopped),
        )
    state = checkpoints.load(checkpoints.find(tmp_path))
    assert state["journal"]
    assert state["updates"] >= 3


@pytest.mark.long
def test_a_checkpoint_of_a_run_with_a_journal_writes_no_chunk_twice(tmp_path):
    sizes = {}
    for journal in (None, "run"):
        folder = tmp_path / str(journal)
        train_here(folder, run=dataclasses.replace(RUN, replay_journal=journal, checkpoint_every=100))
        sizes[journal] = sum(file.stat().st_size for file in folder.glob("checkpoints/replay-1/*.segment"))
    # The records of commits are next to the chunks, so a journal has more; a second copy of them would double it.
    assert len(list((tmp_path / "run" / "checkpoints" / "replay-1").glob("*.checkpoint"))) == 3
    assert sizes["run"] < 2 * sizes[None]


@pytest.mark.long
def test_a_journal_in_a_folder_of_its_own_is_the_runs_and_is_continued_there(tmp_path, monkeypatch):
    run = dataclasses.replace(RUN, replay_journal=str(tmp_path / "fast"))
    steps, _ = killed_at(tmp_path / "one", 250, monkeypatch, run=run)
    killed_at(tmp_path / "two", 250, monkeypatch, run=run)
    parts = [path.name for path in (tmp_path / "fast").iterdir()]
    assert len(parts) == 2
    assert all(name.startswith("dqn-CartPole-v1-seed-0-") for name in parts)
    assert not list((tmp_path / "one/checkpoints").glob("replay-*"))
    # Another place is refused, the place to which the journal was moved is not.
    elsewhere = dataclasses.replace(run, replay_journal=str(tmp_path / "slow"))
    with pytest.raises(CheckpointError, match=r"has its journal in .*fast.* and this run looks for it in .*slow"):
        train_here(tmp_path / "one", run=elsewhere, resume=True)
    (tmp_path / "fast").rename(tmp_path / "slow")
    began = []
    train_here(tmp_path / "one", run=elsewhere, resume=True, on_event=began.append)
    assert began[0].env_steps == steps
    shutil.rmtree(tmp_path / "slow")
    longer = dataclasses.replace(elsewhere, max_env_steps=700)
    with pytest.raises(CheckpointError, match=r"has its journal in .*slow.* has none: move it there"):
        train_here(tmp_path / "one", run=longer, resume=True)


def test_a_new_run_never_starts_with_the_journal_of_another_and_a_replaced_one_is_removed(tmp_path, monkeypatch):
    run = dataclasses.replace(RUN, replay_journal=str(tmp_path / "fast"))
    killed_at(tmp_path / "run", 250, monkeypatch, run=run)
    (own,) = (tmp_path / "fast").iterdir()
    assert [path.name for path in own.iterdir()] == ["replay-1"]
    train_here(tmp_path / "run", run=dataclasses.replace(run, max_env_steps=100), overwrite=True)
    assert [path.name for path in own.iterdir()] == ["replay-2"]
    info, _ = read_journal(own / "replay-2", tmp_path / "copy")
    assert info.num_inserts < 120


@pytest.mark.long
def test_an_older_checkpoint_and_another_folder_take_the_tables_of_the_checkpoint(tmp_path, monkeypatch):
    run = dataclasses.replace(RUN, checkpoint_every=200)
    killed_at(tmp_path / "run", 500, monkeypatch, run=run)
    older, newest = checkpoints.checkpoint_files.all_in(tmp_path / "run/checkpoints")
    counted = [checkpoints.load(path)["replay_draws"][0]["samples"]["replay"] for path in (older, newest)]
    for source, draws in zip((older, newest), counted, strict=True):
        folder = tmp_path / f"from-{source.name}"
        killed_at(folder, int(source.name) + 1, monkeypatch, run=run, resume=source)
        began = checkpoints.load(checkpoints.find(folder))
        assert began["env_steps"] == int(source.name)
        assert began["replay_draws"][0]["samples"]["replay"] == draws
    # The run that they began from has its own.
    (replay,) = (tmp_path / "run/checkpoints").glob("replay-*")
    info, _ = read_journal(replay, tmp_path / "copy")
    assert info.num_inserts > int(newest.name)
    # In its own folder an older checkpoint begins a folder of its own, too.
    killed_at(tmp_path / "run", int(older.name) + 1, monkeypatch, run=run, resume=older)
    assert (tmp_path / "run" / "checkpoints" / "replay-2").is_dir()


def test_journals_that_cannot_work_are_refused_before_anything_starts(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="replay_journal is 'run', and there is no folder for the checkpoints"):
        train(DQN, "CartPole-v1", run=RUN, config=CONFIG)
    with pytest.raises(ValueError, match="replay_journal_sync is always and there is no replay_journal"):
        dataclasses.replace(RUN, replay_journal=None, replay_journal_sync="always")
    with pytest.raises(
        ValueError, match=r'replay_journal_sync is \'never\', and must be "os" or "interval" or "always"'
    ):
        dataclasses.replace(RUN, replay_journal_sync="never")
    with pytest.raises(ValueError, match="replay_journal is empty"):
        dataclasses.replace(RUN, replay_journal="")
    killed_at(tmp_path / "run", 250, monkeypatch)
    without_one = dataclasses.replace(RUN, replay_journal=None)
    with pytest.raises(CheckpointError, match=r"has its tables in a journal.*--journal.*\"off\""):
        train_here(tmp_path / "run", run=without_one, resume=True)
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "replay-1")
    with pytest.raises(CheckpointError, match=r"has its journal in .*replay-1 has none"):
        train_here(tmp_path / "run", resume=True)


@pytest.mark.long
def test_a_damaged_journal_is_refused_and_continues_once_it_is_repaired(tmp_path, monkeypatch):
    steps, _ = killed_at(tmp_path / "run", 300, monkeypatch)
    folder = tmp_path / "run" / "checkpoints" / "replay-1"
    segment = max(folder.glob("*.segment"), key=lambda path: path.stat().st_size)
    whole = bytearray(segment.read_bytes())
    whole[len(whole) // 4] ^= 0xFF
    segment.write_bytes(bytes(whole))
    with pytest.raises(reverie.DamagedError):
        train_here(tmp_path / "run", resume=True)
    hint = checkpoints.journal_hint(checkpoints.find(tmp_path / "run"))
    assert hint.startswith("reverie checkpoint repair FOLDER --to NEW")
    assert str(folder) in hint
    _native.repair_checkpoint(str(folder), str(tmp_path / "new"))
    shutil.copy(folder / actor_counts.FILE, tmp_path / "new")
    shutil.rmtree(folder)
    (tmp_path / "new").rename(folder)
    began = []
    train_here(tmp_path / "run", resume=True, on_event=began.append)
    assert began[0].env_steps == steps
    without_one = dataclasses.replace(RUN, replay_journal=None)
    train_here(tmp_path / "plain", run=without_one)
    assert checkpoints.journal_hint(checkpoints.find(tmp_path / "plain")) == ""
