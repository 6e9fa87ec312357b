"""Roles of a run that are killed: they restart, and the run continues."""

import dataclasses

import pytest

pytest.importorskip("torch")

from process_runs import ENDLESS, continue_, kill, of_kind, small, stop, train

import reverie
from reverie import agents
from reverie.agents.environments import describe
from reverie.runners import (
    Progress,
    RoleRestarted,
    Saved,
    ShardMoved,
    StoppedError,
    checkpoints,
    local,
    process,
)
from reverie.runners import train as train_run
from reverie.runners.links.messages import ActorReport, RoleReady, ShardReport
from reverie.runners.reports import logs

# In one worker: the fork server, which imports PyTorch, is one for all of them.
pytestmark = pytest.mark.xdist_group("processes")


@pytest.mark.long
@pytest.mark.parametrize("num_shards", [1, 2])
def test_a_run_survives_killed_actor_learner_evaluator_and_shard(tmp_path, num_shards):
    victims = ["actor 1", "learner", "shard 0", "evaluator"]
    marks, events, finished = [], [], []
    log = logs.JsonLines(tmp_path / logs.LOG)

    def on_event(event):
        log(event)
        events.append(event)
        restarted = {one.role for one in of_kind(events, RoleRestarted)}
        if not isinstance(event, Progress) or len(restarted) < 4 - len(victims):
            return
        # The next thing happens once the run has acted and learnt since the last.
        if marks and (event.env_steps < marks[-1].env_steps + 50 or event.updates <= marks[-1].updates):
            return
        if event.updates == 0 or not of_kind(events, Saved):
            return
        if victims:
            marks.append(event)
            kill(victims.pop(0))
        else:
            finished.append(event)

    run = dataclasses.replace(ENDLESS, evaluate_every=100, checkpoint_every=300)
    with pytest.raises(StoppedError, match="saved as") as caught:
        train(
            "apex-dqn",
            config=small(),
            run=run,
            num_shards=num_shards,
            on_event=on_event,
            folder=tmp_path / "run",
            should_stop=lambda: bool(finished),
        )
    log.close()
    # A role that is begun while its shard is away may end once more for that: the first end of each is ours.
    restarted = {event.role: event for event in reversed(of_kind(events, RoleRestarted))}
    assert set(restarted) == {"actor 1", "learner", "shard 0", "evaluator"}
    assert {event.reason for event in restarted.values()} == {"killed by SIGKILL"}
    assert "with a new seed" in restarted["actor 1"].resumed_from
    assert restarted["learner"].resumed_from.startswith("update ")
    assert restarted["shard 0"].resumed_from.startswith("its checkpoint")
    steps = [event.env_steps for event in of_kind(events, Progress)]
    assert steps == sorted(steps)
    state = checkpoints.load(caught.value.checkpoint)
    assert state["env_steps"] == caught.value.env_steps >= finished[0].env_steps
    assert state["updates"] >= finished[0].updates
    assert len(state[checkpoints.REPLAY]) == num_shards
    lines = [line for line in logs._lines(tmp_path / logs.LOG) if line["event"] == "role restarted"]
    assert {line["role"] for line in lines} == set(restarted)


@pytest.mark.parametrize("num_shards", [1, 2])
def test_a_shard_whose_port_was_taken_restarts_at_another_and_all_roles_follow(tmp_path, monkeypatch, num_shards):
    """The port is taken by a shard of another run, which would accept these writes."""
    strangers, began, figures = [], [], []
    serving, listen, other = process.Processes.serving, process.Processes.listen, process.Processes()

    def as_another_takes_its_port(processes, name, storage, before):
        given = serving(processes, name, storage, before)
        if before is not None:
            table = agents.find("apex-dqn").make_tables(describe("CartPole-v1"), small(), seed=0)
            token = serving(other, name, None, None).token
            assert token not in (None, given.token)
            strangers.append(reverie.Server(table, given.port, token=token))
        return given

    def listening(processes, timeout):
        reported = listen(processes, timeout)
        began.extend(report for name, report in reported if isinstance(report, RoleReady) and str(name) == "shard 0")
        for name, report in reported:
            if isinstance(report, ShardReport) and str(name) == "shard 0" and len(began) > 1:
                figures.append(report.figures)
        return reported

    def on_event(event):
        events.append(event)
        if isinstance(event, Saved) and not killed:
            killed.append(event)
            kill("shard 0")
        elif isinstance(event, Progress) and figures and not finished:
            # It takes in more than it began with, and learners draw from it.
            more = figures[-1]["inserts"] - figures[0]["inserts"] > 200
            if more and figures[-1]["samples"] > figures[0]["samples"] and event.updates > killed_at() + 10:
                finished.append(event)

    def killed_at():
        return max(one.updates for one in of_kind(events, Progress) if one.env_steps <= killed[0].env_steps)

    monkeypatch.setattr(process.Processes, "serving", as_another_takes_its_port)
    monkeypatch.setattr(process.Processes, "listen", listening)
    events, killed, finished = [], [], []
    run = dataclasses.replace(ENDLESS, checkpoint_every=300)
    log = logs.JsonLines(tmp_path / logs.LOG)
    with pytest.raises(StoppedError, match="saved as") as caught:
        train(
            "apex-dqn",
            config=small(),
            run=run,
            num_shards=num_shards,
            on_event=lambda event: (log(event), on_event(event)),
            folder=tmp_path / "run",
            should_stop=lambda: bool(finished),
        )
    log.close()
    (stranger,) = strangers
    assert stranger.client().info().tables["replay"].num_inserts == 0
    stranger.stop()
    other.close()
    (moved,) = of_kind(events, ShardMoved)
    assert (moved.role, moved.before, moved.now) == ("shard 0", began[0].address, began[1].address)
    assert moved.before == f"127.0.0.1:{stranger.port}" != moved.now
    # With two shards the second has its own actor, which need not move. A role that has ended meanwhile follows
    # without a notice.
    assert set(moved.followed_by) <= {"learner", "actor 0", *(["actor 1"] if num_shards == 1 else [])}
    assert began[1].items > 0
    (line,) = [line for line in logs._lines(tmp_path / logs.LOG) if line["event"] == "shard moved"]
    assert (line["role"], line["now"]) == ("shard 0", moved.now)
    assert len(checkpoints.load(caught.value.checkpoint)[checkpoints.REPLAY]) == num_shards


def test_a_shard_without_a_checkpoint_restarts_empty_and_the_run_continues(monkeypatch):
    listen = process.Processes.listen

    def listening(processes, timeout):
        reported = listen(processes, timeout)
        inserts.extend(report.figures["inserts"] for _, report in reported if isinstance(report, ShardReport))
        return reported

    def on_event(event):
        events.append(event)
        if isinstance(event, RoleRestarted):
            inserts.clear()
        if not isinstance(event, Progress):
            return
        if max(inserts, default=0) > 400 and not dead:
            dead.append(event)
            kill("shard 0")
        # It has filled again, and the learner learns from it.
        if of_kind(events, RoleRestarted) and max(inserts, default=0) > 200 and event.updates > dead[0].updates + 10:
            finished.append(event)

    events, dead, finished, inserts = [], [], [], []
    monkeypatch.setattr(process.Processes, "listen", listening)
    run = dataclasses.replace(ENDLESS, checkpoint_every=10**9)
    with pytest.raises(StoppedError, match="nothing was saved") as stopped:
        train("dqn", config=small("dqn"), run=run, on_event=on_event, should_stop=lambda: bool(finished))
    (restarted,) = of_kind(events, RoleRestarted)
    assert (restarted.role, restarted.resumed_from) == ("shard 0", "nothing")
    assert finished[0].env_steps > dead[0].env_steps
    # It restarted its count: its last figure lacks the steps before the restart,
    # except those that the actors had not confirmed and sent again.
    assert 200 < inserts[-1] < stopped.value.env_steps - 200


def test_actors_of_ppo_act_again_if_the_unrolls_that_they_await_weights_for_were_lost(monkeypatch):
    """The learner stands still until both actors wait; then the shard loses the batch that it has not drawn."""
    events, acted, sizes, done = [], {}, [], []
    listen = process.Processes.listen

    def listening(processes, timeout):
        reported = listen(processes, timeout)
        acted.update({name.index: report for name, report in reported if isinstance(report, ActorReport)})
        sizes.extend(report.figures["size"] for _, report in reported if isinstance(report, ShardReport))
        return reported

    def on_event(event):
        events.append(event)
        if not isinstance(event, Progress):
            return
        if event.updates >= 2 and not done:
            stop("learner")
            done.append(event.updates)
        waiting = [one.awaits_weights for one in acted.values()] == [True, True]
        if len(done) == 1 and waiting and sizes[-1] == 0:
            done.clear()  # it had drawn the batch before it stood still: once more
            continue_("learner")
        if len(done) == 1 and waiting and sizes[-1] == config.batch_size:
            done.append(event.updates)
            kill("shard 0")
        if len(done) == 2 and of_kind(events, RoleRestarted):
            done.append(event.updates)
            continue_("learner")

    def learnt_again():
        return len(done) == 3 and of_kind(events, Progress)[-1].updates > done[-1] + 1

    monkeypatch.setattr(process.Processes, "listen", listening)
    config = dataclasses.replace(agents.find("ppo").load_preset("CartPole-v1").config, num_actors=2)
    run = dataclasses.replace(ENDLESS, checkpoint_every=10**9)
    with pytest.raises(StoppedError):
        train("ppo", config=config, run=run, on_event=on_event, should_stop=learnt_again)
    assert [one.role for one in of_kind(events, RoleRestarted)] == ["shard 0"]


@pytest.mark.long
def test_unrolls_of_a_checkpoint_and_of_resumed_actors_make_no_later_batch_older(tmp_path, monkeypatch):
    """The queue of the checkpoint has two or four of six unrolls, each actor begins another, and updates take long."""
    preset = agents.find("ppo").load_preset("CartPole-v1").config
    config = dataclasses.replace(preset, num_actors=3, envs_per_actor=2, unroll_length=32, epochs=100)
    at = {"config": config, "run": dataclasses.replace(ENDLESS, compile="off"), "folder": tmp_path}
    loops, ages = [], []
    begin = local._Loop.__post_init__
    monkeypatch.setattr(local._Loop, "__post_init__", lambda loop: (begin(loop), loops.append(loop)))

    def is_partial():
        size = loops[0].client.info().tables["unrolls"].current_size
        return loops[0].account.updates >= 2 and 0 < size < config.batch_size

    def on_event(event):
        if isinstance(event, Progress) and event.learner.get("age_in_updates") is not None:
            ages.append((event.updates, event.learner["age_in_updates"]))

    with pytest.raises(StoppedError):
        train_run(agents.find("ppo"), "CartPole-v1", should_stop=is_partial, **at)
    with pytest.raises(StoppedError):
        train("ppo", on_event=on_event, should_stop=lambda: bool(ages) and ages[-1][0] >= 9, resume=True, **at)
    assert {age for _, age in ages} == {0}
