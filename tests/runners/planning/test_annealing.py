"""Notes about learning rates that stop falling long before a run ends, or still rise at its end."""

import dataclasses
import re

import pytest

pytest.importorskip("torch")

from reverie import agents
from reverie.agents import preset_choice
from reverie.runners import plan
from reverie.runners.planning.annealing import annealing_note


def note(name, max_env_steps, env_id="CartPole-v1", **changes):
    agent = agents.find(name)
    preset = agent.load_preset(env_id)
    config = dataclasses.replace(preset.config, **changes)
    run = dataclasses.replace(preset.run, max_env_steps=max_env_steps)
    topology = plan(agent, env_id, config=config, run=run)
    assert topology.describe().endswith(f"note: {topology.note}" if topology.note else str(preset.path))
    return topology.note


def test_a_rate_that_falls_early_in_a_longer_run_is_noted_with_the_value_that_fits():
    assert note("ppo", 1_000_000) == (
        "the learning rate falls to 0.05 of 0.001 within 99,840 of 1,000,000 environment steps and stays there:"
        " anneal_updates is 390, and 3,906 would let it fall until the last step"
    )
    assert note("ppo", 1_000_000, anneal_updates=3_906) == ""
    assert note("ppo", 1_000_000, anneal_updates=0) == ""
    assert (note("ppo", 199_680), note("ppo", 199_681) != "") == ("", True)


def test_updates_of_unrolls_and_of_transitions_are_counted_by_their_own_settings():
    impala = agents.find("impala").load_preset("CartPole-v1").config
    steps = impala.batch_size * impala.unroll_length
    assert f"within {10 * steps:,} of 1,000,000 " in note("impala", 1_000_000, anneal_updates=10)
    settings = {"anneal_updates": 100, "batch_size": 64, "samples_per_insert": 16.0, "learning_starts": 1_000}
    text = note("apex-dqn", 100_000, **settings)
    assert "within 1,400 of 100,000 " in text
    assert "24,750 would let it fall" in text


def test_rates_of_several_optimisers_are_noted_together():
    text = note("td3", 1_000_000, "Pendulum-v1", anneal_updates=100)
    assert text.startswith("the learning rates fall to 0.05 of their values within ")
    assert "environment steps and stay there: anneal_updates is 100, and " in text
    assert text.endswith(" would let them fall until the last step")


def test_without_a_known_number_of_steps_for_an_update_there_is_no_note():
    assert note("r2d2", 10_000_000, anneal_updates=10) == ""


def test_a_warm_up_that_is_longer_than_the_run_is_noted_with_the_share_that_it_reaches():
    settings = {"batch_size": 64, "samples_per_insert": 16.0, "learning_starts": 1_000}
    assert note("apex-dqn", 5_000, warmup_updates=2_000, **settings) == (
        "the learning rate rises to 0.5 of 0.006 only: warmup_updates is 2,000, and the run makes about 1,000 updates"
        " in 5,000 environment steps"
    )
    assert note("apex-dqn", 5_000, warmup_updates=1_000, **settings) == ""
    assert note("r2d2", 5_000, warmup_updates=10**6) == "", "its updates have no known number of steps"
    text = note("td3", 10_000, "Pendulum-v1", warmup_updates=10**6, anneal_updates=10)
    assert text.startswith("the learning rates rise to 0.0")
    assert "; the learning rates fall to 0.05 of their values within " in text


def test_a_run_without_an_update_has_no_notes_about_its_rates():
    text = note("dqn", 100, warmup_updates=10, anneal_updates=10)
    assert text.startswith("the run may end without an update")
    assert "learning rate" not in text


FALLS = re.compile(r"^anneal_updates = [1-9]", re.MULTILINE)
PRESETS = [(name, path) for name in agents.BUILT_IN for path in sorted(agents.find(name).presets.glob("*.toml"))]


@pytest.mark.parametrize(("name", "path"), [(name, path) for name, path in PRESETS if FALLS.search(path.read_text())])
def test_no_preset_has_a_note_and_a_run_of_ten_times_its_steps_has_one(name, path):
    env_id = preset_choice.environment_of(path)
    agent = agents.find(name)
    preset = agent.load_preset(env_id, path)
    needs = agent.needs(preset.config)
    assert annealing_note(preset.config, needs, preset.run) == ""
    longer = dataclasses.replace(preset.run, max_env_steps=10 * preset.run.max_env_steps)
    assert "anneal_updates is" in annealing_note(preset.config, needs, longer)
