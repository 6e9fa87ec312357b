"""Notes about settings that change nothing with the others as they are."""

import dataclasses

import gymnasium
import numpy as np
import pytest

pytest.importorskip("torch")

import reverie
from reverie import agents
from reverie.agents import presets
from reverie.agents.environments import describe
from reverie.agents.presets import changed
from reverie.runners import plan
from reverie.runners.planning.effects import no_effect_note

PRESETS = [(name, path) for name in agents.BUILT_IN for path in sorted(agents.find(name).presets.rglob("*.toml"))]


def env_of(name):
    return "Pendulum-v1" if agents.find(name).actions == "continuous" else "CartPole-v1"


def note(name, **changes):
    env_id = env_of(name)
    return no_effect_note(changed(agents.find(name).load_preset(env_id), changes).config, describe(env_id))


ONE = {"num_actors": 1, "envs_per_actor": 1}
LESS = {"anneal_to": 1.0}
CASES = [
    ("ppo", {}, {"noise_theta_steps": 500}, "noise_theta is 1", {"noise_theta": 0.1}),
    (
        "sac",
        {},
        {"priority_exponent": 0.7, "importance_anneal_updates": 9},
        "prioritized is false",
        {"prioritized": True},
    ),
    ("td3", {}, {"anneal_to": 0.5, "anneal_shape": "cosine"}, "anneal_updates is 0", {"anneal_updates": 5}),
    ("td3", LESS, {"anneal_updates": 9, "anneal_shape": "cosine"}, "anneal_to is 1", {"anneal_to": 0.5}),
    ("dqn", {}, {"munchausen_clip": -2.0}, "munchausen is 0", {"munchausen": 0.9}),
    ("dqn", {}, {"her_k": 8}, "her is empty", {"her": "future"}),
    (
        "dqn",
        {"epsilon_start": 0.0, "epsilon_end": 0.0},
        {"random_hold": 4.0},
        "epsilon_start and epsilon_end are 0",
        {"epsilon_start": 1.0},
    ),
    (
        "rainbow",
        {},
        {"random_hold": 4.0, "epsilon_start": 0.9, "epsilon_end": 0.2, "epsilon_steps": 9},
        "noisy is true",
        {"noisy": False, "noisy_sigma": 0.5},
    ),
    ("rainbow", {"noisy": False}, {"noisy_sigma": 0.2}, "noisy is false", {"noisy": True}),
    (
        "rainbow",
        {"noisy": False, "noisy_sigma": 0.5, "epsilon_start": 0.3, "epsilon_end": 0.3},
        {"epsilon_steps": 9},
        "epsilon_start and epsilon_end are equal",
        {"epsilon_end": 0.1},
    ),
    (
        "rainbow",
        {},
        {"num_quantiles": 16, "huber_delta": 2.0},
        'head is "categorical"',
        {"head": "quantile", "v_max": 0.0},
    ),
    (
        "cql-sac",
        {},
        {"conservative_learning_rate": 0.5},
        "conservative_threshold is not set",
        {"conservative_threshold": 1.0},
    ),
    (
        "cql-sac",
        {"conservative_weight": 0.0},
        {"sampled_actions": 5},
        "conservative_weight is 0",
        {"conservative_weight": 1},
    ),
    ("iql", {}, {"dataset_rename": ("a=b",)}, "dataset is empty", {"dataset": "file"}),
    ("iql", {"advantage_scale": 0.0}, {"advantage_clip": 50.0}, "advantage_scale is 0", {"advantage_scale": 1.0}),
    ("iql", {"advantage_scale": 0.0}, {"advantage_clip": 50.0}, "advantage_scale is 0", {"advantage_clip": 0.5}),
    ("apex-dqn", {}, {"single_env_decay_steps": 7}, "there are several environments", ONE),
    ("r2d2", {}, {"single_env_decay_steps": 7}, "there are several environments", ONE),
    (
        "apex-dqn",
        {"epsilon_base": 0.0},
        {"random_hold": 4.0, "epsilon_alpha": 2.0},
        "epsilon_base is 0",
        {"epsilon_base": 0.3},
    ),
    ("r2d2", {"epsilon_base": 1.0}, {"epsilon_alpha": 2.0}, "epsilon_base is 1", {"epsilon_base": 0.3}),
    (
        "r2d2",
        {**ONE, "epsilon_alpha": 0.0},
        {"single_env_decay_steps": 7},
        "epsilon_alpha is 0",
        {"epsilon_alpha": 2.0},
    ),
    (
        "apex-dqn",
        {"priority_exponent": 0.0},
        {"priority_clip": 5.0, "first_priority": "max"},
        "priority_exponent is 0",
        {"priority_exponent": 0.5},
    ),
    (
        "r2d2",
        {"priority_exponent": 0.0},
        {"priority_clip": 5.0, "importance_anneal_updates": 9, "priority_eta": 0.5},
        "priority_exponent is 0",
        {"priority_exponent": 0.5},
    ),
    (
        "apex-dpg",
        {"priority_exponent": 0.0, "eviction_exponent": 0.0},
        {"priority_clip": 5.0},
        "priority_exponent is 0",
        {"eviction_exponent": -0.4},
    ),
    (
        "sac",
        {"prioritized": True, "importance_exponent": 1.0},
        {"importance_anneal_updates": 9},
        "importance_exponent is 1",
        {"importance_exponent": 0.5},
    ),
    (
        "sac",
        {"prioritized": True, "importance_exponent": 0.0},
        {"importance_normalise": "table"},
        "importance_exponent is 0",
        {"importance_anneal_updates": 9},
    ),
    (
        "sac",
        {"num_critics": 1},
        {"target_critics": 1, "policy_critics": "mean"},
        "num_critics is 1",
        {"num_critics": 2},
    ),
    ("apex-dpg", {"noise_sigma": 0.0}, {"noise_theta": 0.5}, "noise_sigma is 0", {"noise_sigma": 0.1}),
    (
        "ddpg",
        {"noise_sigma": 0.0, "random_steps": 0},
        {"noise_theta": 0.5, "noise_theta_steps": 9},
        "noise_sigma and random_steps are 0",
        {"random_steps": 9},
    ),
    ("ppo", {"lstm_units": 8}, {"shared_layers": True}, "lstm_units is above 0", {"lstm_units": 0}),
    ("impala", {"lstm_units": 8}, {"shared_layers": True}, "lstm_units is above 0", {"lstm_units": 0}),
    ("ppo", {"anneal_updates": 0}, {"anneal_clip": False}, "anneal_updates is 0", {"anneal_updates": 5}),
    (
        "ppo",
        LESS,
        {"anneal_updates": 9, "anneal_shape": "cosine", "anneal_clip": False},
        "anneal_to is 1",
        {"anneal_to": 0.5},
    ),
    ("ppo", {"value_coefficient": 0.0}, {"value_clip": 0.1}, "value_coefficient is 0", {"value_coefficient": 0.5}),
    (
        "ppo",
        {"epochs": 1, "minibatch_size": 10**6},
        {"anneal_clip": False, "value_clip": 0.1, "target_kl": 0.1},
        "an update is one gradient step",
        {"epochs": 2, "anneal_updates": 9},
    ),
    ("ppo", {}, {"initial_sigma": 0.5}, "actions are discrete", {"initial_sigma": 1.0}),
]


@pytest.mark.parametrize(
    ("name", "switch", "idle", "reason", "used"), CASES, ids=lambda one: one if isinstance(one, str) else ""
)
def test_a_setting_that_changes_nothing_is_noted_with_the_reason_and_without_it_is_not(
    name, switch, idle, reason, used
):
    *first, last = [f"{key} ({value})" for key, value in idle.items()]
    names = f"{', '.join(first)} and {last} have" if first else f"{last} has"
    assert note(name, **switch, **idle) == f"{names} no effect while {reason}"
    assert note(name, **{**switch, **idle, **used}) == ""


def test_settings_without_effect_for_several_reasons_are_all_noted():
    text = note("sac", noise_theta_steps=500, prioritized=False, priority_clip=1.0, her_k=9)
    assert text.count(" has no effect while ") == 3


def test_every_setting_that_may_have_no_effect_is_one_of_its_agent_and_switches_are_not():
    for name in agents.BUILT_IN:
        config = agents.find(name).load_preset(env_of(name)).config
        assert set(config.without_effect_in(describe(env_of(name)))) <= {one.name for one in dataclasses.fields(config)}


@pytest.mark.parametrize(("name", "path"), PRESETS)
def test_no_preset_has_a_setting_without_effect(name, path):
    config = presets.load(path, agents.find(name).config).config
    for_epsilon = {"epsilon_steps (100000) has no effect while noisy is true"}  # a number for runs with noisy=false
    assert no_effect_note(config, describe(env_of(name))) in {"", *(for_epsilon if name == "rainbow" else ())}


def test_the_plan_has_the_note_and_python_logs_it(caplog):
    agent = agents.find("dqn")
    preset = changed(agent.load_preset("CartPole-v1"), {"her_k": 9})
    assert plan(agent, "CartPole-v1", preset=preset).note == "her_k (9) has no effect while her is empty"
    with caplog.at_level("WARNING", "reverie"):
        small = {"max_env_steps": 20, "learning_starts": 8, "batch_size": 4, "hidden": [4], "epsilon_steps": 9}
        reverie.train("dqn", "CartPole-v1", her_k=9, **small)
    assert "her_k (9) has no effect while her is empty" in caplog.messages


@pytest.mark.parametrize(
    ("name", "env_id", "switched_off", "idle"),
    [
        ("d4pg", "MountainCarContinuous-v0", {"noise_theta": 1.0}, {"noise_theta_steps": 77}),
        ("d4pg", "Pendulum-v1", {"target_rate": 0.5}, {"target_period": 77}),
        ("apex-dpg", "Pendulum-v1", {"target_rate": 0.5}, {"target_period": 77}),
        ("apex-dqn", "CartPole-v1", {"target_rate": 0.5}, {"target_period": 77}),
        ("rainbow", "CartPole-v1", {"target_rate": 0.5}, {"target_period": 77}),
        ("sac", "Pendulum-v1", {"temperature_learning_rate": 0.0}, {"entropy_per_action": -0.5}),
        ("cql-sac", "Pendulum-v1", {"temperature_learning_rate": 0.0}, {"entropy_per_action": -0.5}),
        ("td3", "Pendulum-v1", {"smoothing_sigma": 0.0}, {"smoothing_clip": 0.77}),
        ("td3", "Pendulum-v1", {"smoothing_clip": 0.0}, {"smoothing_sigma": 0.77}),
        ("impala", "CartPole-v1", {"trace_lambda": 0.0}, {"c_bar": 0.77}),
        ("ppo", "CartPole-v1", {"epochs": 1, "minibatch_size": 10**6}, {"clip": 0.77}),
        ("gorila", "CartPole-v1", {"num_learners": 1, "num_actors": 1}, {"max_staleness": 77}),
        ("dqn", "CartPole-v1", {"epsilon_start": 0.1, "epsilon_end": 0.1}, {"epsilon_steps": 77}),
        ("r2d2", "CartPole-v1", {"priority_exponent": 0.0}, {"importance_exponent": 0.77}),
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
    ("name", "env_id", "path", "setting"),
    [
        ("d4pg", "MountainCarContinuous-v0", "Pendulum-v1", {"target_period": 77}),
        ("rainbow", "CartPole-v1", "MinAtar_Breakout-v0", {"epsilon_steps": 77}),
    ],
)
def test_a_number_of_another_preset_of_the_agent_is_not_noted(name, env_id, path, setting):
    agent = agents.find(name)
    preset = agent.load_preset(env_id, path)
    assert plan(agent, env_id, preset=preset).note == ""
    assert f"{next(iter(setting))} (77) has no effect" in plan(agent, env_id, preset=changed(preset, setting)).note


def test_the_deviation_of_continuous_actions_is_noted_where_actions_are_discrete_only():
    agent = agents.find("ppo")
    notes = {
        env_id: plan(agent, env_id, preset=changed(agent.load_preset(env_id), {"initial_sigma": 0.3})).note
        for env_id in ("CartPole-v1", "Pendulum-v1")
    }
    assert notes == {
        "CartPole-v1": "initial_sigma (0.3) has no effect while actions are discrete",
        "Pendulum-v1": "",
    }


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
    assert plan(agent, env_id, preset=preset, check_files=False).note == ""
    named = {f"{key} ({value})" for key, value in exploration.items()}
    note = plan(agent, env_id, preset=changed(preset, exploration), check_files=False).note
    assert set(note.removesuffix(" have no effect while a dataset is read").split(" and ")) == named
    assert plan(agent, env_id, preset=changed(preset, {**exploration, "dataset": ""}), check_files=False).note == ""


class Odd(gymnasium.Env):
    """An environment whose observations are text, which agents refuse, until a wrapper makes numbers of them."""

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
        time_limit=5, epsilon_steps=9,
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

    assert no_effect_note(Own(1.0), describe("CartPole-v1")) == ""
