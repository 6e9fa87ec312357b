"""A run whose roles are processes: its result, and its reaction to the end of any role."""

import contextlib
import dataclasses
import errno
import inspect
import json
import multiprocessing
import multiprocessing.connection
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import urllib.request
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import reverie
from reverie import agents
from reverie.agents.core import RunSettings
from reverie.agents.environments import describe
from reverie.runners import (
    Evaluated,
    Finished,
    PageOpened,
    Progress,
    RoleAwaited,
    RoleError,
    RoleRestarted,
    Saved,
    ShardMoved,
    Started,
    StoppedError,
    checkpoints,
    process,
)
from reverie.runners import train as train_run
from reverie.runners.links.messages import Ready, Served
from reverie.runners.reports import logs
from reverie.runners.supervision import absences, role_group, supervisor

# In one worker: the fork server, which imports PyTorch, is one for all of them.
pytestmark = pytest.mark.xdist_group("processes")

SHORT = RunSettings(
    target_return=10_000.0,  # more than there is: a slow machine must not solve it before the test is over
    max_env_steps=1_600,
    evaluate_every=400,
    checkpoint_every=700,
    screening_episodes=2,
    confirmation_episodes=3,
)
WATCHDOG = 600.0
# For what ends by what happens in it: however far the actors are by then, it is not over.
ENDLESS = dataclasses.replace(SHORT, max_env_steps=10**9)


def left_by(supervisor):
    """Folders of weights of a supervisor's runs."""
    return [
        path
        for place in ("/dev/shm", tempfile.gettempdir())
        for path in Path(place).glob(f"reverie-run-{supervisor}-*")
    ]


@pytest.fixture(autouse=True)
def roles_may_take_their_time_to_end(monkeypatch):
    """And tell their last figures, which a role that is killed does not."""
    monkeypatch.setattr(supervisor, "END_SECONDS", 100.0)


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    yield
    # A run that ends before the fork server has begun leaves the thread that begins it: it forks once, and would meet
    # what the next test replaces.
    for thread in threading.enumerate():
        if thread.name == "fork server":
            thread.join(WATCHDOG)
            assert not thread.is_alive(), f"the fork server has not begun within {WATCHDOG:g} s"
    assert [one for one in multiprocessing.active_children() if one.name.startswith("reverie")] == []
    assert left_by(os.getpid()) == []


def train(name="dqn", *, run=SHORT, config=None, **options):
    events = []
    heard = options.pop("on_event", lambda event: None)
    agent = agents.find(name)
    if config is None:
        config = dataclasses.replace(agent.load_preset("CartPole-v1").config)

    def on_event(event):
        events.append(event)
        heard(event)

    return train_run(
        agent, "CartPole-v1", runner="process", run=run, config=config, on_event=on_event, **options
    ), events


def small(name="apex-dqn", **changes):
    """Starts to learn early, so that short runs see all of it."""
    config = agents.find(name).load_preset("CartPole-v1").config
    return dataclasses.replace(config, **{"learning_starts": 200, "samples_per_insert": 8.0, **changes})


def kill(role):
    """End a role's process, as the kernel would."""
    (one,) = [child for child in multiprocessing.active_children() if child.name == f"reverie {role}"]
    os.kill(one.pid, signal.SIGKILL)


def of_kind(events, kind):
    return [event for event in events if isinstance(event, kind)]


@pytest.mark.long
def test_a_run_in_processes_has_the_result_of_one_process_and_either_resumes_the_other(tmp_path, monkeypatch):
    killed = []
    kill_role = process.Processes.kill
    monkeypatch.setattr(process.Processes, "kill", lambda stage, name: (killed.append(name), kill_role(stage, name)))
    result, events = train("apex-dqn", config=small(), checkpoint_folder=tmp_path, seed=5)
    assert isinstance(events[0], Started)
    assert events[-1] == Finished(result)
    config = result.topology.config
    # How far beyond is a matter of how soon the actors hear of it; they do, and every role ends by itself.
    assert result.env_steps >= 1_600
    assert killed == []
    assert tuple(event.point for event in of_kind(events, Evaluated)) == result.curve
    # Training goes on while the evaluator plays: on a busy machine it may all be over by the first point.
    points = [point.env_steps for point in result.curve]
    assert points == sorted(points) != []
    assert len(result.evaluation.returns) == 3
    # Actors and learner kept to the table's ratio, within its error buffer and what was on its way at the end.
    replay = result.replay
    middle = config.samples_per_insert * (replay["inserts"] - config.learning_starts)
    assert abs(replay["samples"] - middle) <= config.error_buffer + config.batch_size
    # What was drawn ahead and not learnt from is named in the last checkpoint, and every other draw was learnt from.
    assert result.topology.prefetch == 2
    ahead = checkpoints.load(checkpoints.find(tmp_path))["learner"]["draws"]["ahead"]
    drawn_ahead = sum(len(draws["info"]["key"]) for draws in ahead)
    assert result.learner["draws"] + drawn_ahead == replay["samples"]
    assert result.learner["updates"] * config.batch_size <= result.learner["draws"]
    assert replay["priorities_updated"] == result.learner["priorities_applied"] > 0
    assert {"act", "env step", "append", "sample", "learn", "update", "evaluate"} <= set(result.activities)
    last = of_kind(events, Progress)[-1]
    assert last.env_steps == result.env_steps
    assert 0 <= last.policy_lag <= result.learner["updates"]
    assert of_kind(events, RoleRestarted) == []
    # The last checkpoint holds the last weights, counts and tables.
    state = checkpoints.load(checkpoints.find(tmp_path))
    assert state["env_steps"] == result.env_steps == sum(one["env_steps"] for one in state["actors"])
    parameters = [one.ravel() for one in state["weights"]["parameters"].values()]
    assert (np.concatenate(parameters) == result.weights.flat).all()
    options = {"seed": 5, "config": config, "resume": checkpoints.find(tmp_path)}
    longer = dataclasses.replace(SHORT, max_env_steps=result.env_steps + 400)
    again, events = train("apex-dqn", run=longer, **options)
    here = train_run(agents.find("apex-dqn"), "CartPole-v1", run=longer, **options)
    for one in (again, here):
        assert one.curve[: len(result.curve)] == result.curve
        assert one.env_steps >= result.env_steps + 400
        assert one.learner["updates"] > result.learner["updates"]
        assert one.replay["inserts"] > replay["inserts"]
        assert one.learner["draws_lost"] == 0
    # Drawn ahead there, learnt from here, and counted once.
    assert here.learner["draws"] == here.replay["samples"]
    assert events[0].env_steps == result.env_steps


@pytest.mark.parametrize("name", ["ppo", "impala"])
def test_agents_of_a_queue_use_every_unroll_once(name):
    result, events = train(name, run=dataclasses.replace(SHORT, max_env_steps=3_000))
    batch = result.topology.needs.batch_size
    assert result.replay["samples"] == result.learner["updates"] * batch > 0
    # What is left is what the queue holds.
    assert (
        0
        <= result.replay["inserts"] - result.replay["samples"]
        <= getattr(result.topology.config, "queue_capacity", batch)
    )
    if name == "ppo":
        # One batch is in the queue and one in the actor's hands when the weights that made it are published.
        assert max(event.learner.get("age_in_updates", 0) for event in of_kind(events, Progress)) <= 2


def test_a_confirmed_run_ends_with_the_weights_that_were_confirmed():
    result, events = train("dqn", run=dataclasses.replace(ENDLESS, target_return=1.0))
    assert result.confirmed
    (evaluated,) = of_kind(events, Evaluated)
    assert evaluated.confirmation == result.evaluation
    policy = agents.find("dqn").make_policy(result.topology.env, result.topology.config)
    policy.load(result.weights)
    from reverie.runners.reports.evaluation import Evaluator

    evaluator = Evaluator("CartPole-v1", 3)
    assert evaluator.evaluate(policy, result.evaluation.seeds) == result.evaluation
    evaluator.close()


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
            checkpoint_folder=tmp_path / "checkpoints",
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
    """Its port is taken by a shard of another run, which would accept these writes."""
    strangers, began, figures = [], [], []
    serving, listen, other = process.Processes.serving, process.Processes.listen, process.Processes()

    def as_another_takes_its_port(stage, name, storage, before):
        given = serving(stage, name, storage, before)
        if before is not None:
            table = agents.find("apex-dqn").make_tables(describe("CartPole-v1"), small(), seed=0)
            token = serving(other, name, None, None).token
            assert token not in (None, given.token)
            strangers.append(reverie.Server(table, given.port, token=token))
        return given

    def listening(stage, timeout):
        told = listen(stage, timeout)
        began.extend(report for name, report in told if isinstance(report, Ready) and str(name) == "shard 0")
        for name, report in told:
            if isinstance(report, Served) and str(name) == "shard 0" and len(began) > 1:
                figures.append(report.figures)
        return told

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
            checkpoint_folder=tmp_path / "checkpoints",
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
    # Of two shards the second has an actor of its own, which need not move. One that has ended meanwhile follows
    # without being told.
    assert set(moved.followed_by) <= {"learner", "actor 0", *(["actor 1"] if num_shards == 1 else [])}
    assert began[1].items > 0
    (line,) = [line for line in logs._lines(tmp_path / logs.LOG) if line["event"] == "shard moved"]
    assert (line["role"], line["now"]) == ("shard 0", moved.now)
    assert len(checkpoints.load(caught.value.checkpoint)[checkpoints.REPLAY]) == num_shards


def test_a_shard_without_a_checkpoint_restarts_empty_and_the_run_continues(monkeypatch):
    listen = process.Processes.listen

    def listening(stage, timeout):
        told = listen(stage, timeout)
        inserts.extend(report.figures["inserts"] for _, report in told if isinstance(report, Served))
        return told

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


def test_the_processes_of_a_run_have_titles(monkeypatch):
    pytest.importorskip("setproctitle")
    titles = {}

    def listening(stage, timeout):
        reports = listen(stage, timeout)
        for name, report in reports:
            if isinstance(report, Ready):
                cmdline = Path(f"/proc/{report.pid}/cmdline").read_bytes()
                titles[str(name)] = cmdline.rstrip(b"\0 ").decode()
        return reports

    listen = process.Processes.listen
    monkeypatch.setattr(process.Processes, "listen", listening)
    with pytest.raises(StoppedError):
        train(run=ENDLESS, config=small("dqn"), should_stop=lambda: len(titles) >= 4)
    assert titles == {name: f"reverie: {name} of dqn on CartPole-v1" for name in titles}
    assert {"shard 0", "learner", "evaluator", "actor 0"} <= set(titles)


def test_a_request_to_stop_saves_and_leaves_nothing_running(tmp_path):
    seen = []
    with pytest.raises(StoppedError, match="saved as") as caught:
        train(
            "apex-dqn",
            config=small(),
            run=ENDLESS,
            checkpoint_folder=tmp_path,
            on_event=seen.append,
            should_stop=lambda: any(event.env_steps > 300 for event in of_kind(seen, Progress)),
        )
    state = checkpoints.load(caught.value.checkpoint)
    assert state["env_steps"] == caught.value.env_steps > 300


def test_an_exception_in_a_callback_ends_every_process():
    def interrupt(event):
        if isinstance(event, Evaluated):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train("dqn", config=small("dqn"), on_event=interrupt)


AGENT = """
import dataclasses
import os
from reverie.agents.dqn import agent as dqn

def make_actor(spec, config, client, weights, *, index, seed, watch):
    actor = dqn.make_actor(spec, config, client, weights, index=index, seed=seed, watch=watch)
    def broken():
        {body}
    actor.act = broken
    return actor

agent = dataclasses.replace(dqn, make_actor=make_actor)
"""


@pytest.fixture
def broken_agent(tmp_path, monkeypatch):
    """A function that makes an agent of DQN whose actors do something else than to act."""

    def make(name, body):
        (tmp_path / f"{name}.py").write_text(AGENT.format(body=body))
        monkeypatch.syspath_prepend(tmp_path)
        return __import__(name).agent

    return make


def test_a_role_that_keeps_failing_ends_the_run_with_its_error(broken_agent, monkeypatch):
    monkeypatch.setattr(role_group, "SHORT_LIFE_SECONDS", 3000.0)  # of which a slow start is a part
    agent = broken_agent("agent_that_exits", "os._exit(3)")
    with pytest.raises(RoleError, match=r"actor 0: it ended 5 times within 3000 s .*: it ended with exit code 3"):
        train_run(agent, "CartPole-v1", runner="process", run=SHORT)


def test_the_end_of_a_role_is_reported_even_if_a_child_holds_its_pipe(broken_agent, monkeypatch, tmp_path):
    """Such a child, as of environments in separate processes, is a copy with every file open."""
    monkeypatch.setattr(role_group, "SHORT_LIVES", 1)
    gone = tmp_path / "gone"
    outlives = f"while not os.path.exists({str(gone)!r}): __import__('time').sleep(0.01)"
    body = f"""if os.fork():
            os._exit(3)
        {outlives}
        os._exit(0)"""
    agent = broken_agent("agent_with_a_child", body)
    try:
        with pytest.raises(RoleError, match=r"actor 0: .*: it ended with exit code 3"):
            train_run(agent, "CartPole-v1", runner="process", run=ENDLESS)
    finally:
        gone.touch()


def test_signals_to_the_process_group_or_terminal_end_no_role_and_lose_no_update(tmp_path):
    """Roles receive the signal with their supervisor, which must save their state."""
    seen, told = [], []

    def on_event(event):
        seen.append(event)
        if isinstance(event, Saved) and not told:
            told.append(event)
            for child in multiprocessing.active_children():
                for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                    os.kill(child.pid, number)

    def stop():
        return bool(told) and seen[-1].env_steps > told[0].env_steps + 200

    run = dataclasses.replace(ENDLESS, evaluate_every=10**9, checkpoint_every=300)
    with pytest.raises(StoppedError, match="saved as"):
        train("dqn", config=small("dqn"), run=run, on_event=on_event, checkpoint_folder=tmp_path, should_stop=stop)
    assert told
    assert of_kind(seen, RoleRestarted) == []


def test_an_error_in_a_role_ends_the_run_at_once_with_its_traceback(broken_agent):
    agent = broken_agent("agent_with_a_defect", "raise ValueError('no such thing')")
    events = []
    with pytest.raises(RoleError, match=r"actor 0: ValueError: no such thing") as caught:
        train_run(agent, "CartPole-v1", runner="process", run=SHORT, on_event=events.append)
    assert (caught.value.role, caught.value.error) == ("actor 0", "ValueError")
    assert inspect.getfile(agent.make_actor) in caught.value.traceback
    assert of_kind(events, RoleRestarted) == []


def test_a_role_that_stalls_within_a_message_is_named_and_blocks_no_other(broken_agent, tmp_path):
    body = """from reverie.runners.links import message_sockets
        import signal
        def half(end, message):
            end._socket.sendall(message_sockets._LENGTH.pack(100) + b"half")
            os.kill(os.getpid(), signal.SIGSTOP)
        message_sockets.RoleSocket.send = half
        return 0"""
    agent = broken_agent("agent_that_stands_still", body)
    log = logs.JsonLines(tmp_path / logs.LOG)
    seen = []

    def on_event(event):
        log(event)
        seen.append(event)

    with pytest.raises(StoppedError, match="after 0 environment steps; nothing was saved"):
        train_run(
            agent,
            "CartPole-v1",
            runner="process",
            run=ENDLESS,
            on_event=on_event,
            checkpoint_folder=tmp_path,
            should_stop=lambda: bool(of_kind(seen, RoleAwaited)),
        )
    log.close()
    awaited = of_kind(seen, RoleAwaited)[-1]
    assert (awaited.role, awaited.begun) == ("actor 0", True)
    assert re.fullmatch(r"is stopped \(kill -CONT \d+ resumes it\)", awaited.reason)
    (line,) = [line for line in logs._lines(tmp_path / logs.LOG) if line["event"] == "role awaited"]
    assert (line["role"], line["reason"], line["begun"]) == ("actor 0", awaited.reason, True)


def test_a_run_reports_and_can_be_stopped_while_the_fork_server_starts(monkeypatch):
    """Its imports take seconds, and on a busy machine minutes."""
    go, seen = threading.Event(), []
    begin = process.Processes._start_fork_server
    monkeypatch.setattr(process.Processes, "_start_fork_server", lambda stage: (go.wait(), begin(stage)))
    monkeypatch.setattr(absences, "SLOW_SECONDS", 0.0)
    try:
        with pytest.raises(StoppedError, match="nothing was saved"):
            train(on_event=seen.append, should_stop=lambda: bool(of_kind(seen, RoleAwaited)))
    finally:
        go.set()
    assert {event.role for event in of_kind(seen, RoleAwaited)} == {"shard 0"}


def test_an_error_of_the_fork_server_ends_the_run(monkeypatch):
    def fails(process):
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(process.ForkServerProcess, "start", fails)
    with pytest.raises(OSError, match="temporarily unavailable"):
        train()


def test_an_agent_that_others_cannot_import_is_refused_before_anything_starts():
    agent = dataclasses.replace(agents.find("dqn"), make_policy=lambda spec, config: None)
    with pytest.raises(TypeError, match=r"agent dqn cannot be sent to other processes .*: define its functions"):
        train_run(agent, "CartPole-v1", runner="process")


@pytest.mark.long
def test_killing_the_supervisor_ends_every_process(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(
        textwrap.dedent("""
        import multiprocessing
        from reverie.agents.dqn import agent as dqn
        from reverie.runners import Evaluated, train

        def on_event(event):
            if isinstance(event, Evaluated):
                pids = [one.pid for one in multiprocessing.active_children()]
                print(*pids, flush=True)
                multiprocessing.connection.wait([], 1000)

        if __name__ == "__main__":
            run = dqn.load_preset("CartPole-v1").run
            train(dqn, "CartPole-v1", runner="process", run=type(run)(10_000.0, 10**9, 50), on_event=on_event)
        """).replace("multiprocessing.connection.wait([], 1000)", "__import__('threading').Event().wait()")
    )
    child = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    pids = [int(pid) for pid in child.stdout.readline().split()]
    assert len(pids) == 5 - 1  # DQN has one actor: with learner, evaluator and shard
    living = {os.pidfd_open(pid) for pid in pids}
    child.kill()
    child.wait()
    while living:
        ended = multiprocessing.connection.wait(living, 200)
        assert ended, f"{len(living)} of {pids} outlive their supervisor"
        for one in ended:
            living.discard(one)
            os.close(one)
    assert left_by(child.pid) == []


@pytest.mark.slow
def test_no_role_grows_once_the_table_is_full():
    """Resident memory of every process, between a third of a long run and its end."""
    sizes = []

    def on_event(event):
        if isinstance(event, Evaluated):
            sizes.append({one.name: resident(one.pid) for one in multiprocessing.active_children()})

    steps = 60_000
    run = dataclasses.replace(SHORT, target_return=10_000.0, max_env_steps=steps, evaluate_every=steps // 12)
    train("apex-dqn", config=small(capacity=2_000), run=run, on_event=on_event)
    early, late = sizes[3], sizes[-4]  # the last ones are of a run whose actors have ended
    assert (
        set(early)
        == set(late)
        == {f"reverie {role}" for role in ("shard 0", "learner", "evaluator", "actor 0", "actor 1")}
    )
    grown = {name: (late[name] - early[name]) / 2**20 for name in early}
    assert max(grown.values()) < 8.0, grown


def resident(pid):
    """Bytes of memory that a process has for itself."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "role", "config"),
    [("apex-dqn", "shard 0", {}), ("gorila", "bundle 0", {"bundled": True, "num_actors": 2, "num_learners": 2})],
)
def test_the_page_of_a_run_survives_the_role_that_serves_it(name, role, config):
    def on_event(event):
        events.append(event)
        if not isinstance(event, Progress) or not of_kind(events, PageOpened):
            return
        with contextlib.suppress(OSError):  # nothing listens there during a restart
            shown = json.loads(read(of_kind(events, PageOpened)[-1].url + "api/run"))
            if shown is None or shown["updates"] == 0:
                return
            if not pages:
                pages.append((shown, read(of_kind(events, PageOpened)[-1].url + "metrics")))
                kill(role)
            elif len(pages) == 1 and of_kind(events, RoleRestarted) and shown["updates"] > pages[0][0]["updates"]:
                pages.append(shown)

    events, pages = [], []
    with pytest.raises(StoppedError):
        train(
            name,
            config=small(name, **config),
            run=ENDLESS,
            http=0,
            on_event=on_event,
            should_stop=lambda: len(pages) > 1,
        )
    assert [event.role for event in of_kind(events, RoleRestarted)] == [role]
    # It asks for its old port, which is free again unless another program has taken it.
    assert all(event.url.startswith("http://127.0.0.1:") for event in of_kind(events, PageOpened))
    (before, metrics), after = pages
    assert (before["agent"], before["runner"]) == (name, "process")
    assert before["env_steps"] <= after["env_steps"]
    assert before["policy_age_updates"] is not None
    assert "reverie_updates_total" in metrics
    assert "reverie_table_items" in metrics


@pytest.mark.long
def test_the_page_of_a_run_with_several_shards_shows_the_chance_and_the_health_of_each():
    def on_event(event):
        if isinstance(event, PageOpened):
            urls.append(event.url)
        if isinstance(event, Progress) and event.updates and urls:
            run = json.loads(read(urls[0] + "api/run"))
            if run and run["shards"] and all(shard["items"] for shard in run["shards"]):
                shown.append(run)

    urls, shown = [], []
    with pytest.raises(StoppedError):
        train(
            "apex-dqn", config=small(), run=ENDLESS, num_shards=2, http=0, on_event=on_event, should_stop=lambda: shown
        )
    shards = shown[0]["shards"]
    assert [shard["present"] for shard in shards] == [True, True]
    assert len({shard["address"] for shard in shards}) == 2
    assert sum(shard["chances"]["replay"] for shard in shards) == pytest.approx(1.0)
    assert {(shard["problem"], shard["restarts"]) for shard in shards} == {(None, 0)}


def read(url):
    with urllib.request.urlopen(url, timeout=WATCHDOG) as response:
        return response.read().decode()
