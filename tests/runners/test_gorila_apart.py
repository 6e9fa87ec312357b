"""Gorila in processes: learners, parameter shards and bundles, and the effects when one is killed."""

import dataclasses
import multiprocessing
import os
import signal
from itertools import pairwise

import pytest

pytest.importorskip("torch")

from reverie.agents.core import RunSettings
from reverie.agents.gorila import agent as gorila
from reverie.runners import CheckpointError, Progress, RoleRestarted, Saved, StoppedError, checkpoints
from reverie.runners import train as train

# With the other tests of roles in processes: one fork server for all of them.
pytestmark = pytest.mark.xdist_group("processes")

CONFIG = dataclasses.replace(
    gorila.load_preset("CartPole-v1").config,
    hidden=(16, 16),
    batch_size=32,
    learning_starts=200,
    samples_per_insert=8.0,
    envs_per_actor=2,
)
ENDLESS = RunSettings(
    target_return=10_000.0,  # more than there is: a slow machine must not solve it before the test is over
    max_env_steps=10**9,
    evaluate_every=10**9,
    checkpoint_every=300,
    screening_episodes=1,
    confirmation_episodes=1,
)


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    yield
    assert [one for one in multiprocessing.active_children() if one.name.startswith("reverie")] == []


def trained(victims, folder, **options):
    """A run in which one role after the other is killed once it has learnt and saved since the one before was.

    Its events, and the `StoppedError` that ends it once that holds for the last one too.
    """
    events, marks, finished = [], [], []
    victims = list(victims)

    def on_event(event):
        events.append(event)
        restarted = {one.role for one in events if isinstance(one, RoleRestarted)}
        if not isinstance(event, Progress) or not restarted >= {mark[0] for mark in marks}:
            return
        since = events[events.index(marks[-1][1]) :] if marks else events
        begun = max((i for i, one in enumerate(since) if isinstance(one, RoleRestarted)), default=0)
        seen = [one for one in since[begun:] if isinstance(one, Progress)]
        if not any(isinstance(one, Saved) for one in since[begun:]) or event.learner["gradients"] < 1:
            return
        # Both act and learn: counts rise from one look to the next.
        if event.env_steps <= seen[0].env_steps or not any(a.updates < b.updates for a, b in pairwise(seen)):
            return
        if victims:
            marks.append((victims.pop(0), event))
            (one,) = [child for child in multiprocessing.active_children() if child.name == f"reverie {marks[-1][0]}"]
            os.kill(one.pid, signal.SIGKILL)
        else:
            finished.append(event)

    with pytest.raises(StoppedError, match="saved as") as caught:
        train(
            gorila,
            "CartPole-v1",
            runner="process",
            run=ENDLESS,
            folder=folder,
            on_event=on_event,
            should_stop=lambda: bool(finished),
            **options,
        )
    return events, caught.value


def of_kind(events, kind):
    return [event for event in events if isinstance(event, kind)]


@pytest.mark.long
def test_a_run_survives_a_killed_learner_and_parameter_shard_and_resumes_in_one_process(tmp_path):
    events, stopped = trained(["learner 1", "parameter shard 0"], tmp_path, config=CONFIG)
    restarted = {event.role: event for event in reversed(of_kind(events, RoleRestarted))}
    assert set(restarted) == {"learner 1", "parameter shard 0", "parameter shard 1"}
    assert restarted["learner 1"].reason == restarted["parameter shard 0"].reason == "killed by SIGKILL"
    # Ranges of different times are of no network: the other goes back with it, to the same checkpoint.
    together = "parameter shard 0 ended, and all parameter shards restart together"
    assert restarted["parameter shard 1"].reason == together
    went_on = {restarted[f"parameter shard {i}"].resumed_from for i in range(2)}
    assert all(one.startswith("version ") for one in went_on)
    last = of_kind(events, Progress)[-1].learner
    assert last["gradients"] > last["gradients_dropped"]
    # Shards, learners and actors are in the checkpoint as if one process had had them all.
    state = checkpoints.load(stopped.checkpoint)
    shards = state["learner"]["server"]["shards"]
    # One shard may have taken what another dropped, which counts as no version of all.
    assert min(one["version"] for one in shards) == state["learner"]["version"] == state["weights"]["version"]
    server = state["learner"]["server"]["parameters"]
    assert all((one == server[name]).all() for name, one in state["weights"]["parameters"].items())
    for index in range(2):
        online = state["learner"]["networks"][f"online-{index}"]
        assert all((one == server[name]).all() for name, one in online.items())
    run = dataclasses.replace(ENDLESS, max_env_steps=state["env_steps"] + 100)
    here = [train(gorila, "CartPole-v1", config=CONFIG, run=run, resume=stopped.checkpoint) for _ in range(2)]
    assert here[0].env_steps >= run.max_env_steps
    assert here[0].learner["updates"] > state["learner"]["version"]
    assert (here[0].weights.flat == here[1].weights.flat).all()


@pytest.mark.long
def test_bundles_learn_from_their_own_tables_and_a_killed_one_is_restarted(tmp_path):
    config = dataclasses.replace(CONFIG, bundled=True)
    events, stopped = trained(["bundle 1"], tmp_path, config=config)
    (restarted,) = of_kind(events, RoleRestarted)
    assert (restarted.role, restarted.reason) == ("bundle 1", "killed by SIGKILL")
    assert restarted.resumed_from.endswith("with a new seed, and the table of its checkpoint")
    state = checkpoints.load(stopped.checkpoint)
    assert len(state[checkpoints.REPLAY]) == 2
    assert all(actor["env_steps"] > 0 for actor in state["actors"])
    with pytest.raises(CheckpointError, match="resume bundles with the runner 'local' if it wrote the checkpoint"):
        train(gorila, "CartPole-v1", config=config, run=ENDLESS, resume=stopped.checkpoint)
    run = dataclasses.replace(ENDLESS, max_env_steps=state["env_steps"] + 200)
    result = train(gorila, "CartPole-v1", runner="process", config=config, run=run, resume=stopped.checkpoint)
    assert result.env_steps >= run.max_env_steps
    assert result.learner["updates"] > state["learner"]["version"]
    # The tables went on too, each held to its own ratio.
    assert result.replay["inserts"] >= 0.9 * result.env_steps - 400
    assert result.replay["samples"] == pytest.approx(
        config.samples_per_insert * (result.replay["inserts"] - 2 * config.learning_starts),
        abs=2 * (config.error_buffer + config.batch_size),
    )


@pytest.mark.long
def test_several_learners_draw_from_several_shards_as_from_one_table_and_keep_its_ratio():
    run = dataclasses.replace(ENDLESS, max_env_steps=1_500)
    events = []
    result = train(
        gorila, "CartPole-v1", runner="process", config=CONFIG, run=run, num_shards=2, on_event=events.append
    )
    assert of_kind(events, RoleRestarted) == []
    # Every learner learnt, from the inserts of both shards, and not faster than the limits of them all.
    replay, gradients = result.replay, result.learner["gradients"]
    assert replay["inserts"] > 1_200
    assert gradients * CONFIG.batch_size <= replay["samples"]
    assert replay["samples"] <= CONFIG.samples_per_insert * replay["inserts"] + CONFIG.error_buffer
    assert replay["samples"] >= CONFIG.samples_per_insert * (replay["inserts"] - CONFIG.learning_starts) / 2
    # A version is of one gradient: no gradient that counts as taken was dropped by a shard.
    assert 0 < gradients - result.learner["gradients_dropped"] <= result.learner["updates"]
