"""Flags of `reverie train` that are short for settings."""

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("typer")


def test_short_flags_are_the_settings_that_they_stand_for(reverie):
    flags = ["--max-steps", 1234, "--batch-size", 16, "--learning-rate", 0.25, "--precision", "bfloat16"]
    flags += ["--envs-per-actor", 3, "--threads", 2, "--device", "cpu", "--num-actors", 5, "--compile", "off"]
    planned = reverie("train", "apex-dqn", "--env", "CartPole-v1", "--dry-run", "--json", *flags)
    assert planned.exit_code == 0, planned.stderr
    plan = json.loads(planned.stdout)
    settings = {**plan["settings"]["agent"], **plan["settings"]["run"]}
    expected = {
        "max_env_steps": 1234,
        "batch_size": 16,
        "learning_rate": 0.25,
        "precision": "bfloat16",
        "envs_per_actor": 3,
        "threads": 2,
        "device": "cpu",
        "num_actors": 5,
        "compile": "off",
    }
    assert {name: settings[name] for name in expected} == expected
    other = reverie("train", "apex-dqn", "--env", "CartPole-v1", "--dry-run", "--total-timesteps", 77)
    assert "at most 77 environment steps" in other.stdout
    shorter = reverie("train", "apex-dqn", "--env", "CartPole-v1", "--dry-run", "--json", "--lr", 0.5)
    assert json.loads(shorter.stdout)["settings"]["agent"]["learning_rate"] == 0.5


@pytest.mark.parametrize(
    ("name", "setting"),
    [("lr", "learning_rate"), ("gamma", "discount"), ("buffer_size", "capacity"), ("max_steps", "max_env_steps")],
)
def test_a_setting_by_the_name_that_other_libraries_have_is_refused_with_its_own(reverie, name, setting):
    result = reverie("train", "dqn", "--env", "CartPole-v1", "--dry-run", "--set", f"{name}=1")
    assert result.exit_code == 2
    assert f"has no setting '{name}'; did you mean {setting}?" in result.stderr


@pytest.mark.parametrize(
    ("command", "flags", "words"),
    [
        ("train", ["r2d2", "--burn-in", 4], "there is no option --burn-in: give --set burn_in=4"),
        ("train", ["dqn", "--burn_in=4"], "there is no option --burn_in, and other agents have it: r2d2"),
        ("train", ["ppo", "--num-steps=64"], "there is no option --num-steps: give --set unroll_length=64"),
        (
            "train",
            ["dqn", "--epsilon-end", "--quiet"],
            "there is no option --epsilon-end: give --set epsilon_end=VALUE",
        ),
        ("train", ["dqn", "--max-env-steps", 9], "there is no option --max-env-steps: give --max-steps 9"),
        ("train", ["dqn", "--frame-stack", 4], "there is no option --frame-stack: give --set frame_stack=4"),
        ("train", ["sac", "--alpha", 0.2], "there is no option --alpha: the temperature is learnt"),
        ("train", ["rainbow", "--alpha", 0.2], "there is no option --alpha: priority_exponent is the alpha of"),
        ("train", ["sac", "--utd", 4], "samples_per_insert is the number of draws for each step"),
        ("search", ["dqn", "--learning-rate", 0.1], "there is no option --learning-rate: give --set learning_rate=0.1"),
        ("search", ["dqn", "--gamma", 0.9], "there is no option --gamma: give --set discount=0.9"),
    ],
)
def test_a_setting_that_is_given_as_a_flag_is_refused_with_the_way_to_give_it(reverie, command, flags, words):
    agent, *rest = flags
    result = reverie(command, agent, "--env", "CartPole-v1", *rest)
    assert result.exit_code == 2
    assert words in result.stderr


def test_an_option_that_means_nothing_is_refused_with_those_of_a_similar_name(reverie):
    for agent, flag in (("dqn", "--learning-rat"), ("nothing", "--burn-in")):
        result = reverie("train", agent, "--env", "CartPole-v1", flag, 4)
        assert result.exit_code == 2
        assert f"No such option: {flag}" in result.stderr


def test_an_option_of_the_environment_is_refused_with_the_id_that_has_it(reverie):
    result = reverie("train", "dqn", "--env", "FrozenLake-v1", "--set", "is_slippery=False")
    assert result.exit_code == 2
    assert "it is an option of the environment, so give the id FrozenLake-v1(is_slippery=False)" in result.stderr


def test_a_setting_without_a_value_is_refused_with_the_agent_and_the_form(reverie):
    result = reverie("train", "dqn", "--env", "CartPole-v1", "--set", "learning_rate")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == (
        "reverie: settings of dqn: learning_rate has no value: write learning_rate=VALUE"
    )


def test_short_flags_of_settings_that_an_agent_does_not_have_are_refused(reverie):
    for arguments, words in (
        (["sac", "--env", "Pendulum-v1", "--learning-rate", 0.1], "it has policy_learning_rate, critic_learning_rate"),
        (["ppo", "--env", "CartPole-v1", "--precision", "bfloat16"], "ppo has no setting precision: leave it out"),
        (["dqn", "--env", "CartPole-v1", "--precision", "int8"], "precision is 'int8'"),
        (["dqn", "--env", "CartPole-v1", "--max-steps", 0], "--max-steps"),
        (["dqn", "--env", "CartPole-v1", "--device", "gpu"], "device is 'gpu', and must be"),
        (["dqn", "--env", "CartPole-v1", "--device", "auto", "--runner", "ray"], "choose cpu or cuda"),
        (["ppo", "--env", "CartPole-v1", "--device", "cuda"], "is not supported by ppo, which runs on cpu"),
    ):
        result = reverie("train", *arguments, "--dry-run")
        assert result.exit_code == 2, arguments
        assert words in result.stderr
