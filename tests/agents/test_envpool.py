"""Tasks of EnvPool, as `envpool:TASK`."""

import dataclasses

import numpy as np
import pytest

pytest.importorskip("torch")

from reverie import agents
from reverie.agents.env_settings import EnvSettings
from reverie.agents.environments import (
    UnknownEnvironmentError,
    UnsupportedEnvironmentError,
    describe,
    make_one,
    make_vector,
)
from reverie.runners import train

try:
    import envpool
except ImportError:
    envpool = None
needs_envpool = pytest.mark.skipif(envpool is None, reason="envpool is not among the packages that tests install")


@pytest.mark.skipif(envpool is not None, reason="envpool is installed")
def test_without_envpool_its_tasks_are_refused_with_what_to_install():
    with pytest.raises(UnsupportedEnvironmentError, match=r'pip install "reverie\[envpool\]"'):
        describe("envpool:CartPole-v1")


@needs_envpool
def test_a_task_has_the_spaces_and_the_target_of_envpool_and_settings_of_its_namesake():
    own, same = describe("envpool:CartPole-v1"), describe("CartPole-v1")
    assert dataclasses.replace(own, env_id="", action_space="") == dataclasses.replace(same, env_id="", action_space="")
    preset = agents.find("dqn").load_preset("envpool:CartPole-v1")
    assert preset.config == agents.find("dqn").load_preset("CartPole-v1").config
    assert preset.run.target_return == 475.0


@needs_envpool
def test_a_reset_with_a_seed_repeats_its_episodes_although_envpool_ignores_it():
    vector = make_vector("envpool:CartPole-v1", 3)
    one, other, again = (vector.reset(seed=seed)[0] for seed in (2**32 - 1, 12, 2**32 - 1))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    assert np.array_equal(make_one("envpool:CartPole-v1").reset(seed=13)[0], other[1]), "environment i has seed + i"


@needs_envpool
def test_an_episode_ends_in_its_true_last_observation_and_the_next_step_is_a_reset():
    vector = make_vector(describe("envpool:CartPole-v1", EnvSettings(time_limit=3)), 2)
    vector.reset(seed=1)
    steps = [vector.step(np.array([0, 1])) for _ in range(4)]
    assert not vector.same_step
    assert steps[2][3].all(), "truncated"
    assert not steps[2][2].any()
    assert np.abs(steps[2][0][:, 1]).min() > 0.4, "three pushes: it moves fast"
    assert np.abs(steps[3][0][:, 1]).max() < 0.1, "a first observation"
    assert steps[3][1].tolist() == [0, 0]


@needs_envpool
def test_options_of_a_task_are_literals_and_those_of_the_run_are_refused():
    assert describe("envpool:Pong-v5(stack_num=2)").obs_shape == (2, 84, 84)
    with pytest.raises(UnsupportedEnvironmentError, match="sets num_envs, seed, which the run sets"):
        describe("envpool:CartPole-v1(seed=3, num_envs=2)")
    with pytest.raises(UnknownEnvironmentError, match="EnvPool has no such task; did you mean envpool:CartPole-v1"):
        describe("envpool:CartPol-v1")


def raw(num_envs):
    return envpool.make("CartPole-v1", env_type="gymnasium", num_envs=num_envs)


@needs_envpool
def test_a_factory_of_envpool_without_a_seed_is_refused():
    with pytest.raises(UnsupportedEnvironmentError, match="has no parameter seed: add it and pass it on"):
        describe(raw)


@needs_envpool
@pytest.mark.parametrize(("name", "task"), [("dqn", "CartPole-v1"), ("ppo", "CartPole-v1"), ("sac", "Pendulum-v1")])
def test_agents_train_on_tasks_of_envpool(name, task):
    agent = agents.find(name)
    preset = agent.load_preset(f"envpool:{task}")
    changes = {} if name == "ppo" else {"learning_starts": 200}
    run = dataclasses.replace(preset.run, max_env_steps=2500, evaluate_every=2500, screening_episodes=2)
    config = dataclasses.replace(preset.config, **changes)
    result = train(agent, f"envpool:{task}", config=config, run=run)
    assert result.learner["updates"] > 0
