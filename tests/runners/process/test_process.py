"""A run whose roles are processes: its result."""

import dataclasses
import multiprocessing
import multiprocessing.connection
import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from process_runs import ENDLESS, SHORT, of_kind, small, train

from reverie import agents
from reverie.runners import (
    Evaluated,
    Finished,
    Progress,
    RoleRestarted,
    Started,
    StoppedError,
    checkpoints,
    process,
)
from reverie.runners import train as train_run
from reverie.runners.links.messages import RoleReady

# In one worker: the fork server, which imports PyTorch, is one for all of them.
pytestmark = pytest.mark.xdist_group("processes")


@pytest.mark.long
def test_a_run_in_processes_has_the_result_of_one_process_and_either_resumes_the_other(tmp_path, monkeypatch):
    killed = []
    kill_role = process.Processes.kill
    monkeypatch.setattr(
        process.Processes, "kill", lambda processes, name: (killed.append(name), kill_role(processes, name))
    )
    result, events = train("apex-dqn", config=small(), folder=tmp_path, seed=5)
    assert isinstance(events[0], Started)
    assert events[-1] == Finished(result)
    config = result.topology.config
    # How far beyond is a matter of how soon the actors receive it; they do, and every role ends by itself.
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
    # Draws ahead that were not learnt from are named in the last checkpoint; every other draw was learnt from.
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
    result, _ = train(name, run=dataclasses.replace(SHORT, max_env_steps=3_000))
    batch = result.topology.needs.batch_size
    assert result.replay["samples"] == result.learner["updates"] * batch > 0
    # The others are at most those that the queue holds.
    assert (
        0
        <= result.replay["inserts"] - result.replay["samples"]
        <= getattr(result.topology.config, "queue_capacity", batch)
    )


@pytest.mark.parametrize("num_actors", [1, 3])
def test_actors_of_ppo_make_every_unroll_with_the_newest_weights(num_actors):
    """Actors run while the learner learns, and could make the next unrolls meanwhile, but do not."""
    config = dataclasses.replace(agents.find("ppo").load_preset("CartPole-v1").config, num_actors=num_actors)
    result, events = train("ppo", config=config, run=dataclasses.replace(SHORT, max_env_steps=4_000 * num_actors))
    ages = [event.learner["age_in_updates"] for event in of_kind(events, Progress) if event.updates]
    assert result.learner["updates"] >= 3
    assert set(ages) == {0}


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


def test_the_processes_of_a_run_have_titles(monkeypatch):
    pytest.importorskip("setproctitle")
    titles = {}

    def listening(processes, timeout):
        reports = listen(processes, timeout)
        for name, report in reports:
            if isinstance(report, RoleReady):
                cmdline = Path(f"/proc/{report.pid}/cmdline").read_bytes()
                titles[str(name)] = cmdline.rstrip(b"\0 ").decode()
        return reports

    listen = process.Processes.listen
    monkeypatch.setattr(process.Processes, "listen", listening)
    with pytest.raises(StoppedError):
        train(run=ENDLESS, config=small("dqn"), should_stop=lambda: len(titles) >= 4)
    assert titles == {name: f"reverie: {name} of dqn on CartPole-v1" for name in titles}
    assert {"shard 0", "learner", "evaluator", "actor 0"} <= set(titles)


@pytest.mark.slow
def test_no_role_grows_once_the_table_is_full():
    """Resident memory of every process, between a third of a long run and its end, without a compiler."""
    sizes = []

    def on_event(event):
        if isinstance(event, Evaluated):
            sizes.append({one.name: resident(one.pid) for one in multiprocessing.active_children()})

    steps = 60_000
    often = steps // 12
    run = dataclasses.replace(SHORT, target_return=10_000.0, max_env_steps=steps, evaluate_every=often, compile="off")
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
