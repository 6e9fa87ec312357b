"""Files and processes that a killed run with a journal leaves, and how a resumed run continues."""

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from journal_runs import CONFIG, DQN, RUN, killed_at, read_journal, train_here

import reverie
from reverie import agents
from reverie.agents.environments import describe
from reverie.runners import Progress, RoleRestarted, StoppedError, checkpoints, process, train
from reverie.runners.checkpoints import actor_counts
from reverie.runners.links.messages import RoleReady, ShardReport
from reverie.runners.reports import logs

# Some start processes, whose fork server is one for all of a worker.
pytestmark = pytest.mark.xdist_group("processes")

HERE = Path(__file__).parent
SETTINGS = ["learning_starts=200", "samples_per_insert=8", "checkpoint_every=400", "evaluate_every=1000000000"]
SETTINGS += ["target_return=1000", "screening_episodes=1", "confirmation_episodes=1", "compile=off", "batch_size=32"]


def recorded(folder):
    """The observations whose items were acknowledged, as bytes; the last may have been written in part."""
    whole = [file.read_bytes() for file in sorted(folder.glob("actor-*"))]
    return {one[start : start + 16] for one in whole for start in range(0, len(one) - 15, 16)}


def command(out, *more):
    flags = [flag for setting in SETTINGS for flag in ("--set", setting)]
    return [
        *(sys.executable, "-m", "reverie", "train", "recording:agent", "--env", "CartPole-v1", "--out", str(out)),
        *(
            "--config",
            str(DQN.presets / "CartPole-v1.toml"),
            "--no-tensorboard",
            "--no-check-memory",
            "-q",
            *flags,
            *more,
        ),
    ]


@pytest.mark.long
@pytest.mark.parametrize(
    ("runner", "disk"), [("local", ()), ("process", ()), ("process", ("--disk", "spill", "--memory", "128KiB"))]
)
def test_a_run_whose_processes_are_all_killed_continues_with_what_was_acknowledged(tmp_path, until, runner, disk):
    out, notes = tmp_path / "run", tmp_path / "recorded"
    disk = [str(tmp_path / flag) if flag == "spill" else flag for flag in disk]
    notes.mkdir()
    environment = {**os.environ, "RECORDED": str(notes)}

    def events(kind):
        return [line for line in logs._lines(out / logs.LOG) if line["event"] == kind] if out.exists() else []

    def far_enough():
        """Acknowledged steps that no checkpoint has, of which the file of counts has some."""
        assert child.poll() is None, (tmp_path / "first.log").read_text()
        found = checkpoints.checkpoint_files.all_in(out / "checkpoints")
        # The tier has files of its own only while chunks move that a checkpoint does not have in one piece.
        if not found or int(found[-1].name) < 400 or (disk and not spilled()):
            return False
        counts = actor_counts.load(out / "checkpoints" / "replay-1") or []
        return sum(one["env_steps"] for one in counts) > int(found[-1].name) + 40

    def stopped_far_enough():
        """The same, with all processes stopped, so that no later checkpoint takes in these steps before the kill."""
        if not far_enough():
            return False
        os.killpg(child.pid, signal.SIGSTOP)
        until(lambda: states() <= {"T"})
        if far_enough():
            return True
        os.killpg(child.pid, signal.SIGCONT)
        return False

    def spilled():
        return list((tmp_path / "spill").rglob("*.chunks"))

    def states():
        """The states of the run's processes, "T" for one that is stopped, without those that have ended."""
        found = set()
        for file in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                state, _, group = file.read_text().rpartition(")")[2].split()[:3]
                found |= {state} if int(group) == child.pid and state != "Z" else set()
        return found

    # A checkpoint takes over what the tier had written: rarer, so that there is time to see its files.
    # The memory holds the index of chunks on the disk, too: 4 bytes an item, in a run that may go on for 8,000 of them.
    disk += ["--set", "checkpoint_every=2000"] if disk else []
    options = ["--runner", runner, "--max-steps", "1000000000", "--journal", *disk]
    with (tmp_path / "first.log").open("w") as log:
        child = subprocess.Popen(
            command(out, *options), cwd=HERE, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            until(stopped_far_enough)
        finally:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            print(  # noqa: T201
                *events("progress")[-1:], (tmp_path / "first.log").read_text()[-2000:], sep="\n"
            )  # shown if this fails
    saved = int(checkpoints.checkpoint_files.all_in(out / "checkpoints")[-1].name)
    acknowledged = recorded(notes)
    info, stored = read_journal(out / "checkpoints" / "replay-1", tmp_path / "copy")
    # The tier's own files: chunks that a checkpoint has in one piece are read from there.
    assert bool(spilled()) == bool(disk)
    assert len(acknowledged) > saved
    assert acknowledged <= stored
    assert info.num_inserts == info.current_size >= len(acknowledged)

    goal = info.num_inserts + 600
    done = subprocess.run(
        command(out, "--runner", runner, "--max-steps", str(goal), "--journal", "--resume", *disk),
        cwd=HERE,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 1, done.stderr  # no CartPole has that return
    first, second = events("started")
    assert first["env_steps"] == 0
    assert saved + 40 < second["env_steps"] <= info.num_inserts + 8  # the steps after the checkpoint count
    after, stored_after = read_journal(out / "checkpoints" / "replay-1", tmp_path / "copy of the end")
    assert acknowledged | recorded(notes) <= stored_after
    assert stored <= stored_after
    assert after.num_inserts >= goal - 16  # items of the last steps, and of steps that an episode's end left out
    state = checkpoints.load(checkpoints.find(out))
    assert state["env_steps"] >= goal
    (draws,) = state["replay_draws"]
    given = state["learner"]["draws"]["given"]
    assert draws["lost"]["replay"] > 0
    if runner == "local":  # elsewhere the learner answers a little before the shard
        assert draws["samples"]["replay"] - draws["lost"]["replay"] == given
    # The learner made the updates again that were lost: it has the ratio of all inserts.
    assert given >= 8 * (after.num_inserts - 200) - 8 * 200
    assert [path.name for path in (out / "checkpoints").glob("replay-*")] == ["replay-1"]


@pytest.mark.long
@pytest.mark.parametrize("num_shards", [1, 2])
def test_a_server_that_is_killed_alone_comes_back_with_what_it_had(tmp_path, monkeypatch, num_shards):
    listen, served, began = process.Processes.listen, [], []

    def listening(processes, timeout):
        reports = listen(processes, timeout)
        for name, report in reports:
            if str(name) == "shard 0" and isinstance(report, ShardReport):
                served.append(int(report.figures["inserts"]))
            if str(name) == "shard 0" and isinstance(report, RoleReady):
                began.append(report)
        return reports

    events, dead, finished = [], [], []

    def on_event(event):
        events.append(event)
        if not isinstance(event, Progress):
            return
        if not dead and served and served[-1] > 300 and event.updates > 10:
            dead.append((served[-1], event.updates))
            (one,) = [child for child in multiprocessing.active_children() if child.name == "reverie shard 0"]
            os.kill(one.pid, signal.SIGKILL)
        elif len(began) > 1 and served[-1] > began[1].items + 100 and event.updates > dead[0][1] + 10:
            finished.append(event)

    monkeypatch.setattr(process.Processes, "listen", listening)
    with pytest.raises(StoppedError, match="saved as"):
        train(
            agents.find("apex-dqn"),
            "CartPole-v1",
            runner="process",
            num_shards=num_shards,
            config=dataclasses.replace(
                agents.find("apex-dqn").load_preset("CartPole-v1").config, learning_starts=200, samples_per_insert=8.0
            ),
            run=dataclasses.replace(RUN, max_env_steps=10**9),
            folder=tmp_path,
            on_event=on_event,
            should_stop=lambda: bool(finished),
        )
    restarted = [event for event in events if isinstance(event, RoleRestarted) and event.role == "shard 0"]
    assert [event.resumed_from for event in restarted] == ["its journal"]
    assert began[0].items == 0
    assert began[1].items >= dead[0][0]  # its only checkpoint, of the start, has next to none


@pytest.mark.long
def test_a_killed_run_continues_with_the_steps_of_its_journal_and_makes_the_lost_updates_again(tmp_path, monkeypatch):
    run = dataclasses.replace(RUN, checkpoint_every=250)
    steps, updates = killed_at(tmp_path / "run", 400, monkeypatch, run=run)
    newest = checkpoints.find(tmp_path / "run")
    before = checkpoints.load(newest)
    assert before["env_steps"] < 300 < steps
    info, _ = read_journal(tmp_path / "run" / "checkpoints" / "replay-1", tmp_path / "copy")
    assert info.num_inserts > before["env_steps"]  # more than the checkpoint's tables
    began = []
    result = train_here(tmp_path / "run", run=run, resume=True, on_event=began.append)
    assert began[0].env_steps == steps
    assert result.env_steps < 600 + 8
    state = checkpoints.load(checkpoints.find(tmp_path / "run"))
    (draws,) = state["replay_draws"]
    lost = updates - before["updates"]
    # The journal counts draws every interval: the last of them may be missing.
    assert 0 < draws["lost"]["replay"] <= lost * CONFIG.batch_size
    assert state["learner"]["draws"]["given"] == draws["samples"]["replay"] - draws["lost"]["replay"]
    acts = before["actors"][0]["acts"]
    assert state["actors"][0]["acts"] > acts + (600 - before["env_steps"]) // 8 - 8


@pytest.mark.long
def test_a_killed_run_whose_replay_is_partly_on_the_disk_continues_with_every_item(tmp_path, monkeypatch):
    seen = []
    stop = reverie.Server.stop

    def stopped(self):
        seen.append(self.client().info().disk)
        stop(self)

    # More than the open chunks of eight environments, and much less than the replay.
    disk = {"replay_disk": str(tmp_path / "spill"), "replay_memory": 64 << 10}
    run = dataclasses.replace(RUN, max_env_steps=2200, **disk)
    with monkeypatch.context() as patch:
        patch.setattr(reverie.Server, "stop", stopped)
        steps, _ = killed_at(tmp_path / "run", 2000, patch, run=run)
    assert seen[0].num_moved > 10
    assert seen[0].num_chunks > 5
    info, stored = read_journal(tmp_path / "run" / "checkpoints" / "replay-1", tmp_path / "copy")
    assert info.num_inserts == info.current_size >= steps - 16
    began = []
    train_here(tmp_path / "run", run=run, resume=True, on_event=began.append)
    assert began[0].env_steps == steps
    after, stored_after = read_journal(tmp_path / "run" / "checkpoints" / "replay-1", tmp_path / "copy of the end")
    assert stored <= stored_after
    assert after.num_inserts > info.num_inserts


@pytest.mark.long
def test_a_second_kill_adds_to_the_draws_that_were_lost(tmp_path, monkeypatch):
    run = dataclasses.replace(RUN, checkpoint_every=250)
    killed_at(tmp_path / "run", 400, monkeypatch, run=run)
    run = dataclasses.replace(run, checkpoint_every=10**9)
    killed_at(tmp_path / "run", 500, monkeypatch, run=run, resume=True)
    train_here(tmp_path / "run", run=run, resume=True)
    state = checkpoints.load(checkpoints.find(tmp_path / "run"))
    (draws,) = state["replay_draws"]
    assert state["learner"]["draws"]["given"] == draws["samples"]["replay"] - draws["lost"]["replay"]
    limits = CONFIG.samples_per_insert * (draws["samples"]["replay"] - draws["lost"]["replay"])
    assert limits > 0
    # Without the journal, from the tables of that checkpoint, the lost draws stay allowed.
    longer = dataclasses.replace(run, max_env_steps=700, replay_journal="off")
    train_here(tmp_path / "run", run=longer, resume=True)
    state = checkpoints.load(checkpoints.find(tmp_path / "run"))
    assert state["replay_draws"][0]["lost"] == draws["lost"]
    assert state["learner"]["draws"]["given"] == state["replay_draws"][0]["samples"]["replay"] - draws["lost"]["replay"]
    assert not state["journal"]


@pytest.mark.long
def test_a_run_that_was_killed_before_its_first_regular_checkpoint_continues_too(tmp_path, monkeypatch):
    steps, _ = killed_at(tmp_path / "run", 300, monkeypatch)
    assert checkpoints.find(tmp_path / "run").name == "000000000000"
    began = []
    train_here(tmp_path / "run", resume="must", on_event=began.append)
    assert began[0].env_steps == steps >= 300


@pytest.mark.long
def test_the_steps_of_a_run_that_was_killed_at_its_end_leave_one_for_the_updates_that_were_lost(tmp_path, monkeypatch):
    run = dataclasses.replace(RUN, checkpoint_every=300)
    killed_at(tmp_path / "run", 595, monkeypatch, run=run)
    began = []
    train_here(tmp_path / "run", run=dataclasses.replace(run, max_env_steps=595), resume=True, on_event=began.append)
    assert began[0].env_steps == 594
    state = checkpoints.load(checkpoints.find(tmp_path / "run"))
    info, _ = read_journal(tmp_path / "run" / "checkpoints" / "replay-1", tmp_path / "copy")
    (table,) = DQN.make_tables(describe("CartPole-v1"), CONFIG, seed=0)
    limiter = table.rate_limiter
    owed = limiter.samples_per_insert * info.num_inserts - limiter.max_diff  # what the limiter asks for at least
    assert state["learner"]["draws"]["given"] >= owed - limiter.samples_per_insert * 2 * CONFIG.envs_per_actor
