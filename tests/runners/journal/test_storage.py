"""The folder of a run's journal, how a server continues it, and the counts that are kept next to it."""

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import reverie  # noqa: E402
from reverie import agents  # noqa: E402
from reverie.agents.core import RunSettings  # noqa: E402
from reverie.runners import checkpoints, plan  # noqa: E402
from reverie.runners.checkpoints import actor_counts  # noqa: E402
from reverie.runners.links.replay_storage import (  # noqa: E402
    JournalMissingError,
    ReplayStorage,
    allow_again,
    samples_at,
    without,
)

DQN = agents.find("dqn")
RUN = RunSettings(target_return=None, max_env_steps=600, evaluate_every=10**9, replay_journal="run")


def test_the_sync_of_a_runs_journal_is_that_of_its_settings(tmp_path):
    for sync, expected in ((None, "interval"), ("os", "os"), ("always", "always")):
        topology = plan(DQN, "CartPole-v1", run=dataclasses.replace(RUN, replay_journal_sync=sync))
        (storage,) = checkpoints.place_replays(tmp_path, None, topology, None).storages
        assert storage.journal.sync == expected
        assert storage.journal.path == storage.checkpointer.path == str(tmp_path / "replay-1")
        assert f"a journal with its checkpoints, sync {expected}" in topology.describe()
    off = plan(DQN, "CartPole-v1", run=dataclasses.replace(RUN, replay_journal="off"))
    (storage,) = checkpoints.place_replays(tmp_path, None, off, None).storages
    assert storage.journal is None
    assert "journal" not in off.describe()


def test_folders_of_a_run_are_those_of_the_working_directory_where_they_were_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = dataclasses.replace(RUN, replay_journal="fast", replay_disk="spill")
    for runner in ("local", "process", "ray"):
        found = plan(DQN, "CartPole-v1", run=run, runner=runner).run
        assert (found.replay_journal, found.replay_disk) == (str(tmp_path / "fast"), str(tmp_path / "spill"))
        for kept in ("run", "off", None):
            other = dataclasses.replace(run, replay_journal=kept)
            assert plan(DQN, "CartPole-v1", run=other, runner=runner).run.replay_journal == kept


def test_a_server_that_must_continue_a_journal_does_not_start_empty(tmp_path):
    storage = ReplayStorage(journal=reverie.Journal(tmp_path / "gone"), continues=True)
    with pytest.raises(
        JournalMissingError, match=r"gone is missing on this machine: keep it in a folder that every node"
    ):
        storage.server_options()
    assert dataclasses.replace(storage, continues=False).server_options()["journal"] is storage.journal


def test_lost_draws_are_allowed_again_except_from_tables_that_delete_what_is_sampled():
    limiter = reverie.rate_limiters.SampleToInsertRatio(2.0, 10, 8.0)
    assert without(limiter, 5).min_diff == limiter.min_diff - 5
    assert without(limiter, 5).max_diff == limiter.max_diff - 5
    kept = reverie.Table(
        "kept",
        rate_limiter=limiter,
        sampler=reverie.selectors.Uniform(),
        remover=reverie.selectors.Fifo(),
        max_size=100,
    )
    queue = reverie.Table.queue("queue", 10)
    with reverie.Server([kept, queue], listen=False) as server:
        client = server.client()
        client.insert_batch("kept", {"x": np.zeros(10, np.float32)})
        client.sample_batch("kept", 8)
        assert not client.can_sample("kept", 4)
        storage = ReplayStorage(samples={"kept": 3}, lost={"kept": 1, "queue": 4})
        lost = storage.lost_draws(client)
        assert lost == {"kept": 6, "queue": 4}
        allow_again(server.tables, lost)
        assert client.can_sample("kept", 6)
        assert queue.info.rate_limiter_info.min_diff == queue.rate_limiter.min_diff


@pytest.mark.parametrize("made", [60, 100, 140])
def test_counts_that_servers_report_before_or_after_the_learners_state_become_those_at_that_state(made):
    draws = {"table": "kept", "made": made}
    (one,) = samples_at(draws, [{"kept": 120, "other": 7}], [{"kept": 20}])
    assert one == {"kept": made + 20, "other": 7}
    # Two servers have drawn three and one quarter of all.
    first, second = samples_at(draws, [{"kept": 90}, {"kept": 30}], [{"kept": 15, "other": 1}, {"kept": 5}])
    assert first["kept"] + second["kept"] == made + 20
    assert abs(first["kept"] - 3 * second["kept"]) < 4
    assert samples_at({"table": "kept", "made": 0}, [{"kept": 0}] * 2, [{}, {}]) == [{"kept": 0}] * 2


def test_a_damaged_file_of_counts_is_reported_and_the_checkpoints_counts_apply(tmp_path, caplog):
    actor_counts.save(tmp_path, [{"env_steps": 30, "noise": np.arange(3.0)}, {"env_steps": 12}])
    state = {"env_steps": 20, "actors": [{"env_steps": 10}, {"env_steps": 10}]}
    newer = actor_counts.with_newer_counts(state, tmp_path, 100)
    assert newer["env_steps"] == 42
    assert newer["actors"][0]["noise"].tolist() == [0.0, 1.0, 2.0]
    assert actor_counts.with_newer_counts(state, tmp_path, 35)["env_steps"] == 34
    older = {"env_steps": 42, "actors": state["actors"]}
    assert actor_counts.with_newer_counts(older, tmp_path, 100) is older
    file = tmp_path / actor_counts.FILE
    whole = file.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", whole.replace(b"env_steps", b"env_stepz")):
        caplog.clear()
        file.write_bytes(damaged)
        assert actor_counts.with_newer_counts(state, tmp_path, 100) is state
        assert "actors continue with the counts of the checkpoint" in caplog.text
    file.unlink()
    caplog.clear()
    assert actor_counts.with_newer_counts(state, tmp_path, 100) is state
    assert caplog.text == ""
