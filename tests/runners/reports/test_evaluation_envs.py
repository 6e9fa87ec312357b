"""The environments of evaluators may differ from those of actors, in everything but their spaces."""

import gymnasium
import numpy as np
import pytest

pytest.importorskip("torch")

import reverie
from reverie.agents.env_settings import EnvSettings
from reverie.agents.environments import UnknownEnvironmentError, UnsupportedEnvironmentError, describe
from reverie.runners import Evaluator


class Paid(gymnasium.Env):
    """Episodes of five steps, with the same reward for each."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, reward=1.0, size=2, actions=2):
        self.reward, self.observation_space = reward, gymnasium.spaces.Box(-1, 1, (size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(actions)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 5
        return self.observation_space.sample() * 0, {}

    def step(self, action):
        self.left -= 1
        return self.observation_space.sample() * 0, self.reward, self.left == 0, False, {}


class Shaped(gymnasium.Wrapper):
    """Adds ten to each reward."""

    def step(self, action):
        obs, reward, *rest = self.env.step(action)
        return obs, reward + 10.0, *rest


def paid_vector(num_envs):
    """A vector of `Paid`, whose rewards are 4."""
    return gymnasium.vector.SyncVectorEnv([lambda: Paid(4.0)] * num_envs)


gymnasium.register("ReveriePaid-v0", Paid)
gymnasium.register("ReveriePaidForEvaluations-v0", Paid, kwargs={"reward": 3.0}, reward_threshold=15.0)

SHORT = {"max_env_steps": 120, "evaluate_every": 60, "learning_starts": 40, "hidden": (8,), "screening_episodes": 1}


def train(**changes):
    """A short run of DQN; returns its result, and the returns of its actors' episodes."""
    events = []
    result = reverie.train("dqn", "ReveriePaid-v0", on_event=events.append, confirmation_episodes=2, **SHORT, **changes)
    return result, {event.training_return for event in events if getattr(event, "training_return", None) is not None}


@pytest.mark.parametrize(
    ("changes", "actors", "evaluations"),
    [
        ({}, 5.0, 5.0),
        ({"evaluation_env": "ReveriePaidForEvaluations-v0", "target_return": 1e9}, 5.0, 15.0),
        ({"evaluation_env": "ReveriePaid-v0(reward=2.0)"}, 5.0, 10.0),
        ({"evaluation_env": paid_vector}, 5.0, 20.0),
        ({"wrappers": [Shaped]}, 55.0, 55.0),
        ({"wrappers": [Shaped], "evaluation_wrappers": []}, 55.0, 5.0),
        ({"evaluation_wrappers": [Shaped, Shaped]}, 5.0, 105.0),
        ({"evaluation_env": "ReveriePaid-v0(reward=2.0)", "evaluation_wrappers": (Shaped,)}, 5.0, 60.0),
    ],
)
def test_evaluators_play_their_own_environment_and_actors_that_of_the_run(changes, actors, evaluations):
    result, returns = train(**changes)
    assert returns == {actors}
    assert {point.mean_return for point in result.curve} == {result.evaluation.mean_return} == {evaluations}
    evaluator = Evaluator(result.policy.spec, 1)
    assert evaluator.evaluate(result.policy, [1]).mean_return == evaluations
    evaluator.close()


def test_the_target_is_the_threshold_of_the_environment_for_evaluations():
    found = describe("ReveriePaid-v0", EnvSettings(evaluation_env="ReveriePaidForEvaluations-v0"))
    assert (found.env_id, found.reward_threshold) == ("ReveriePaid-v0", 15.0)
    result, _ = train(evaluation_env="ReveriePaidForEvaluations-v0")
    assert result.topology.run.target_return == 15.0
    assert result.confirmed


def test_a_policy_takes_its_environment_for_evaluations_along(tmp_path):
    result, _ = train(evaluation_env="ReveriePaid-v0(reward=2.0)", evaluation_wrappers=[], folder=tmp_path / "run")
    loaded = reverie.load_policy(result.policy.save(tmp_path / "paid.safetensors"))
    assert loaded.spec.for_evaluation().env_id == "ReveriePaid-v0(reward=2.0)"
    assert loaded.spec.settings.evaluation_wrappers == ()
    resumed = reverie.train("dqn", "ReveriePaid-v0", folder=tmp_path / "run", resume="must", max_env_steps=180)
    assert resumed.evaluation.mean_return == 10.0


@pytest.mark.parametrize(
    ("evaluation", "what"),
    [
        ("ReveriePaid-v0(size=3)", r"obs_shape of ReveriePaid-v0\(size=3\) for evaluations is \(3,\), and \(2,\)"),
        ("ReveriePaid-v0(actions=3)", r"num_actions of .* is 3, and 2 in ReveriePaid-v0, where actors learn"),
        ("Pendulum-v1", "obs_shape of Pendulum-v1"),
    ],
)
def test_an_environment_for_evaluations_with_other_spaces_is_refused(evaluation, what):
    with pytest.raises(UnsupportedEnvironmentError, match=what):
        describe("ReveriePaid-v0", EnvSettings(evaluation_env=evaluation))


def test_names_that_cannot_be_found_are_refused_before_anything_starts():
    with pytest.raises(UnknownEnvironmentError, match="ReveriePaidForEvaluations-v0"):
        describe("ReveriePaid-v0", EnvSettings(evaluation_env="ReveriePaidForEvaluation-v0"))
    with pytest.raises(ValueError, match="evaluation_wrappers is 'Shaped', and must be a list"):
        EnvSettings(evaluation_wrappers="Shaped")
    with pytest.raises(ValueError, match=r"evaluation_env: .* is a lambda or defined within a function"):
        EnvSettings(evaluation_env=lambda num_envs: None)
