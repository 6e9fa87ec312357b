"""Policies of tiny agents: trained for some steps, or made without training."""

import dataclasses

import numpy as np
import pytest

safetensors = pytest.importorskip("safetensors")

from reverie import agents  # noqa: E402
from reverie.agents import environments  # noqa: E402
from reverie.agents.environments import EnvSpec  # noqa: E402
from reverie.agents.policies import TrainedPolicy  # noqa: E402
from reverie.agents.policy_records import TrainingRun  # noqa: E402
from reverie.runners import train  # noqa: E402

ENVIRONMENTS = {"discrete": "CartPole-v1", "continuous": "Pendulum-v1", "any": "CartPole-v1"}
SMALL = {
    "num_actors": 1,
    "num_learners": 1,
    "envs_per_actor": 2,
    "learning_starts": 64,
    "batch_size": 8,
    "samples_per_insert": 8.0,
    "epochs": 2,
    "hidden": (8,),
    "policy_hidden": (8,),
    "critic_hidden": (8,),
    "random_steps": 16,
    "epsilon_base": 0.9,
    "unroll_length": 8,
    "sequence_length": 4,
    "sequence_period": 1,
    "burn_in": 2,
    "queue_capacity": 16,
    "steps_per_iteration": 16,
}
FRAMES = EnvSpec("ALE/Pong-v5", (4, 84, 84), "uint8", 6, "Discrete(6)", None, frame_stack=4, reward_bound=1.0)


def trained(name, folder, **changes):
    """A short run of a tiny agent into `folder`; returns its result and the evaluator's policy."""
    agent = agents.find(name)
    preset = agent.load_preset(ENVIRONMENTS[agent.actions])
    known = {one.name for one in dataclasses.fields(preset.config)}
    config = dataclasses.replace(preset.config, **{k: v for k, v in {**SMALL, **changes}.items() if k in known})
    run = dataclasses.replace(
        preset.run, max_env_steps=160, evaluate_every=160, screening_episodes=1, confirmation_episodes=1, threads=1
    )
    made = []

    def make_policy(spec, config):
        made.append(agent.make_policy(spec, config))
        return made[-1]

    watched = dataclasses.replace(agent, make_policy=make_policy)
    result = train(watched, ENVIRONMENTS[agent.actions], config=config, run=run, seed=3, folder=folder)
    return result, made[1]  # the first is only checked


def observations(spec, count, seed=0):
    return np.random.default_rng(seed).standard_normal((count, *spec.obs_shape)).astype(spec.obs_dtype)


def untrained(name="dqn", spec=None, seed=0, **changes):
    agent = agents.find(name)
    spec = spec or environments.describe(ENVIRONMENTS[agent.actions])
    preset = agent.load_preset(spec.env_id)
    known = {one.name for one in dataclasses.fields(preset.config)}
    config = dataclasses.replace(preset.config, **{k: v for k, v in {**SMALL, **changes}.items() if k in known})
    rng = np.random.default_rng(seed)
    run = TrainingRun(1, 2, 3, 4.0)
    return TrainedPolicy(agent, name, spec, config, run, agent.make_policy(spec, config), None, rng)


def first(policy, obs, **options):
    """The policy's actions at the first step of episodes."""
    if not policy.recurrent:
        return policy(obs, **options)
    count = None if obs.shape == policy.spec.obs_shape else len(obs)
    return policy.step(obs, policy.initial_state(count), **options)[0]
