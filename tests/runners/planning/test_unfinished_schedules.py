"""Notes about schedules that are longer than the run."""

import dataclasses

import pytest

pytest.importorskip("torch")

from reverie import agents
from reverie.agents import preset_choice
from reverie.agents.environments import describe
from reverie.agents.presets import changed
from reverie.runners import plan
from reverie.runners.planning.unfinished_schedules import unfinished_note

UPDATES = {"batch_size": 64, "samples_per_insert": 16.0, "learning_starts": 1_000}


def note(name, max_env_steps, env_id="CartPole-v1", **changes):
    agent = agents.find(name)
    preset = changed(agent.load_preset(env_id), {"max_env_steps": max_env_steps, **changes})
    return plan(agent, env_id, preset=preset).note


EPSILON = {"epsilon_start": 1.0, "epsilon_end": 0.1, "epsilon_steps": 10_000}
RISES = {"noisy": False, "noisy_sigma": 0.5, "epsilon_start": 0.0, "epsilon_end": 0.1, "epsilon_steps": 10_000}
ALONE = {"num_actors": 1, "envs_per_actor": 1, "epsilon_base": 0.4, "epsilon_alpha": 7.0}
BETA = {"importance_exponent": 0.4, "importance_anneal_updates": 2_000, **UPDATES}
CASES = [
    (
        *("dqn", EPSILON),
        "epsilon falls from 1 to 0.55 only, since epsilon_steps is 10,000 and the run has 5,000 environment steps:"
        " lower epsilon_steps",
    ),
    ("rainbow", RISES, "epsilon rises from 0 to 0.05 only, since epsilon_steps is 10,000 and the run"),
    (
        *("r2d2", {**ALONE, "single_env_decay_steps": 10_000}),
        f"epsilon falls from 0.4 to {0.4**4.5:.2g} only, since single_env_decay_steps is 10,000 and the run",
    ),
    (
        *("dqn", {"epsilon_steps": 10, "anneal_updates": 2_000, **UPDATES}),
        "the learning rate falls to 0.5 of 0.001 only, since anneal_updates is 2,000 and the run makes about 1,000"
        " updates: lower anneal_updates",
    ),
    (
        *("rainbow", BETA),
        "importance_exponent rises from 0.4 to 0.7 only, since importance_anneal_updates is 2,000 and the run makes",
    ),
]


@pytest.mark.parametrize(("name", "changes", "text"), CASES)
def test_a_schedule_that_is_longer_than_the_run_is_noted_with_the_value_that_it_reaches(name, changes, text):
    changes = {"learning_rate": 0.001, **changes}
    assert note(name, 5_000, **changes).startswith(text)
    assert note(name, 10_000, **changes) == ""


def test_rates_of_several_optimisers_and_stages_at_the_start_are_noted():
    settings = {"anneal_updates": 2_000, "random_steps": 10_000, "noise_theta": 0.5, "noise_theta_steps": 5_001}
    text = note("td3", 5_000, "Pendulum-v1", **settings, **UPDATES)
    assert "the learning rates fall to 0.5 of their values only, since anneal_updates is 2,000 and" in text
    assert "all actions of the actors are uniform, since random_steps is 10,000 and the run has 5,000 env" in text
    assert "actions are correlated in the whole run, since noise_theta_steps is 5,001 and the run" in text
    text = note("td3", 5_001, "Pendulum-v1", **{**settings, "random_steps": 5_001}, **UPDATES)
    assert "random_steps" not in text
    assert "noise_theta_steps" not in text
    text = note("cql-sac", 5_000, "Pendulum-v1", imitation_updates=2_000, **UPDATES)
    assert text.startswith("the policy learns the actions of the data only, since imitation_updates is 2,000 and the")


def test_a_schedule_that_almost_ends_and_one_without_effect_have_no_note():
    assert note("dqn", 9_000, epsilon_steps=10_000) == ""
    assert note("dqn", 8_999, epsilon_steps=10_000) != ""
    assert "since epsilon_steps" not in note("dqn", 5_000, epsilon_start=0.1, epsilon_end=0.1, epsilon_steps=10_000)
    assert "importance" not in note("r2d2", 5_000, importance_anneal_updates=10**6), "its updates are not known"


PRESETS = [(name, path) for name in agents.BUILT_IN for path in sorted(agents.find(name).presets.rglob("*.toml"))]


@pytest.mark.parametrize(("name", "path"), PRESETS, ids=[f"{name}-{path.stem}" for name, path in PRESETS])
def test_no_preset_has_a_schedule_that_is_longer_than_its_run(name, path):
    agent = agents.find(name)
    preset = agent.load_preset(preset_choice.environment_of(path), path)
    env = describe("Pendulum-v1" if agent.actions == "continuous" else "CartPole-v1")
    assert unfinished_note(preset.config, env, agent.needs(preset.config), preset.run) == ""
    assert dataclasses.is_dataclass(preset.config)
