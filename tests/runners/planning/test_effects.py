"""Notes about settings that change nothing with the others as they are."""

import dataclasses

import gymnasium
import numpy as np
import pytest

pytest.importorskip("torch")

import reverie
from reverie import agents
from reverie.agents import presets
from reverie.agents.presets import changed
from reverie.runners import plan
from reverie.runners.planning.effects import no_effect_note

PRESETS = [(name, path) for name in agents.BUILT_IN for path in sorted(agents.find(name).presets.rglob("*.toml"))]


def note(name, **changes):
    agent = agents.find(name)
    preset = agent.load_preset("Pendulum-v1" if agent.actions == "continuous" else "CartPole-v1")
    return no_effect_note(changed(preset, changes).config)


CASES = [
    ("ppo", {"noise_theta_steps": 500}, "noise_theta is 1", {"noise_theta": 0.1}),
    ("sac", {"priority_exponent": 0.7, "importance_anneal_updates": 9}, "prioritized is false", {"prioritized": True}),
    ("td3", {"anneal_to": 0.5, "anneal_shape": "cosine"}, "anneal_updates is 0", {"anneal_updates": 5}),
    ("dqn", {"munchausen_clip": -2.0}, "munchausen is 0", {"munchausen": 0.9}),
    ("dqn", {"her_k": 8}, "her is empty", {"her": "future"}),
    ("rainbow", {"epsilon_start": 0.9, "epsilon_end": 0.2}, "noisy is true", {"noisy": False, "noisy_sigma": 0.5}),
    ("rainbow", {"noisy": False, "noisy_sigma": 0.2}, "noisy is false", {"noisy": True}),
    ("rainbow", {"num_quantiles": 16, "huber_delta": 2.0}, 'head is "categorical"', {"head": "quantile", "v_max": 0.0}),
    (
        "cql-sac",
        {"conservative_learning_rate": 0.5},
        "conservative_threshold is not set",
        {"conservative_threshold": 1.0},
    ),
    (
        "cql-sac",
        {"conservative_weight": 0.0, "sampled_actions": 5},
        "conservative_weight is 0",
        {"conservative_weight": 1},
    ),
    ("iql", {"dataset_rename": ("a=b",)}, "dataset is empty", {"dataset": "file"}),
    (
        "apex-dqn",
        {"single_env_decay_steps": 7},
        "there are several environments",
        {"num_actors": 1, "envs_per_actor": 1},
    ),
    ("r2d2", {"single_env_decay_steps": 7}, "there are several environments", {"num_actors": 1, "envs_per_actor": 1}),
]
SWITCHES = {"noisy", "conservative_weight"}


@pytest.mark.parametrize(("name", "idle", "reason", "used"), CASES, ids=lambda one: one if isinstance(one, str) else "")
def test_a_setting_that_changes_nothing_is_noted_with_the_reason_and_without_it_is_not(name, idle, reason, used):
    named = [f"{key} ({value})" for key, value in idle.items() if key not in SWITCHES]
    assert (
        note(name, **idle) == f"{' and '.join(named)} {'has' if len(named) == 1 else 'have'} no effect while {reason}"
    )
    assert note(name, **{**idle, **used}) == ""


def test_settings_without_effect_for_several_reasons_are_all_noted():
    text = note("sac", noise_theta_steps=500, prioritized=False, priority_clip=1.0, her_k=9)
    assert text.count(" has no effect while ") == 3


def test_every_setting_that_may_have_no_effect_is_one_of_its_agent_and_switches_are_not():
    for name in agents.BUILT_IN:
        config = agents.find(name).load_preset("Pendulum-v1" if name == "ddpg" else _env_of(name)).config
        assert set(config.without_effect()) <= {one.name for one in dataclasses.fields(config)}


def _env_of(name):
    return "Pendulum-v1" if agents.find(name).actions == "continuous" else "CartPole-v1"


@pytest.mark.parametrize(("name", "path"), PRESETS)
def test_no_preset_has_a_setting_without_effect(name, path):
    agent = agents.find(name)
    assert no_effect_note(presets.load(path, agent.config).config) == ""


def test_the_plan_has_the_note_and_python_logs_it(caplog):
    agent = agents.find("dqn")
    preset = changed(agent.load_preset("CartPole-v1"), {"her_k": 9})
    assert plan(agent, "CartPole-v1", preset=preset).note == "her_k (9) has no effect while her is empty"
    with caplog.at_level("WARNING", "reverie"):
        reverie.train("dqn", "CartPole-v1", her_k=9, max_env_steps=20, learning_starts=8, batch_size=4, hidden=[4])
    assert "her_k (9) has no effect while her is empty" in caplog.messages


@pytest.mark.parametrize(
    ("name", "env_id", "switched_off", "idle"),
    [
        ("d4pg", "MountainCarContinuous-v0", {"noise_theta": 1.0}, {"noise_theta_steps": 77}),
        ("rainbow", "CartPole-v1", {"head": "quantile"}, {"v_max": 77.0}),
        ("rainbow", "CartPole-v1", {"noisy": False}, {"noisy_sigma": 0.77}),
    ],
)
def test_a_number_of_the_preset_for_a_part_that_is_switched_off_is_not_noted(name, env_id, switched_off, idle):
    agent = agents.find(name)
    preset = agent.load_preset(env_id)
    assert plan(agent, env_id, preset=changed(preset, switched_off)).note == ""
    ((setting, value),) = idle.items()
    wanted = f"{setting} ({value}) has no effect while "
    assert wanted in plan(agent, env_id, preset=changed(preset, {**switched_off, **idle})).note


@pytest.mark.parametrize(
    ("name", "env_id", "exploration"),
    [
        ("cql", "CartPole-v1", {"random_hold": 3.0, "epsilon_steps": 77}),
        ("cql-sac", "Pendulum-v1", {"noise_theta": 0.5, "random_steps": 77}),
    ],
)
def test_settings_of_exploration_have_no_effect_while_a_data_set_is_read(name, env_id, exploration):
    agent = agents.find(name)
    reads = {"dataset": "rows.parquet", "num_actors": 1, "envs_per_actor": 1}
    preset = changed(agent.load_preset(env_id), reads)
    assert plan(agent, env_id, preset=preset).note == ""
    named = {f"{key} ({value})" for key, value in exploration.items()}
    note = plan(agent, env_id, preset=changed(preset, exploration)).note
    assert set(note.removesuffix(" have no effect while a dataset is read").split(" and ")) == named
    assert plan(agent, env_id, preset=changed(preset, {**exploration, "dataset": ""})).note == ""


class Odd(gymnasium.Env):
    """Its observations are text, which agents refuse, until a wrapper makes numbers of them."""

    observation_space = gymnasium.spaces.Text(3)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return "abc", {}

    def step(self, action):
        return "abc", 0.0, False, False, {}


def readable(env):
    """Numbers in place of text."""
    space = gymnasium.spaces.Box(0.0, 1.0, (3,), np.float32)
    return gymnasium.wrappers.TransformObservation(env, lambda text: np.ones(3, np.float32), space)


def test_an_environment_that_agents_take_with_wrappers_only_has_notes_too():
    agent = agents.find("dqn")
    result = reverie.train(
        agent, Odd, wrappers=[readable], her_k=9, max_env_steps=20, learning_starts=8, batch_size=4, hidden=[4],
        time_limit=5,
    )  # fmt: skip
    assert result.topology.note == "her_k (9) has no effect while her is empty"


def test_without_presets_of_the_agent_every_setting_without_effect_is_noted(tmp_path):
    agent = agents.find("dqn")
    preset = changed(agent.load_preset("CartPole-v1"), {"her_k": 9})
    own = dataclasses.replace(agent, presets=tmp_path)
    assert plan(own, "CartPole-v1", preset=preset).note == "her_k (9) has no effect while her is empty"


def test_settings_of_another_kind_have_no_note():
    @dataclasses.dataclass
    class Own:
        rate: float = 0.5

    assert no_effect_note(Own(1.0)) == ""
