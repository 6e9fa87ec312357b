"""Notes about runs that end before their first update."""

import dataclasses
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from reverie import agents
from reverie.runners import plan, train
from reverie.runners.planning.first_update import steps_before_update

SMALL = {"screening_episodes": 1, "confirmation_episodes": 1, "target_return": None}


def note(name, env_id, max_env_steps, **changes):
    agent = agents.find(name)
    preset = agent.load_preset(env_id)
    config = dataclasses.replace(preset.config, **changes)
    run = dataclasses.replace(preset.run, max_env_steps=max_env_steps)
    return plan(agent, env_id, config=config, run=run).note


def test_a_run_that_ends_before_its_first_update_is_noted_with_the_settings_to_change():
    assert note("sac", "Pendulum-v1", 900, learning_starts=1_000) == (
        "the run may end without an update: the first one comes after about 1,000 environment steps (learning_starts is"
        " 1,000), and max_env_steps is 900: raise it, or lower learning_starts"
    )
    assert "after about 256 " in note("impala", "CartPole-v1", 256, unroll_length=16, batch_size=16, queue_capacity=32)
    assert note("r2d2", "CartPole-v1", 300) == "", "an episode's end makes a sequence"


def test_hindsight_counts_its_items():
    config = SimpleNamespace(her="future", her_k=4, learning_starts=500)
    assert steps_before_update(config, None) == (100, "learning_starts is 500")


CASES = [
    ("dqn", "CartPole-v1", {"learning_starts": 200}, 200),
    ("sac", "Pendulum-v1", {"learning_starts": 200}, 200),
    ("ppo", "CartPole-v1", {"unroll_length": 16, "num_actors": 1, "envs_per_actor": 4}, 64),
]


@pytest.mark.parametrize(("name", "env_id", "changes", "before"), CASES)
def test_the_note_is_there_where_no_update_is_made_and_a_warning_at_the_end_too(name, env_id, changes, before, caplog):
    def updates(steps):
        caplog.clear()
        result = train(name, env_id, max_env_steps=steps, evaluate_every=10_000, **changes, **SMALL)
        assert bool(result.topology.note.startswith("the run may end without an update")) == (steps <= before)
        assert ("may end without an update: " in caplog.text) == (steps <= before)
        return result.learner["updates"]

    assert updates(before) == 0
    assert "the run has made no update: its weights are those that it began with" in caplog.text
    assert updates(before + 40) > 0
    assert "the run has made no update" not in caplog.text
