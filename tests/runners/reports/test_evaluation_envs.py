"""The environments of evaluators may differ from those of actors, in everything but their spaces."""

import re

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
        (
            "ReveriePaid-v0(size=3)",
            r"^obs_shape is \(3,\) in .*size=3\) for evaluations, and is \(2,\) in ReveriePaid-v0,",
        ),
        ("ReveriePaid-v0(actions=3)", r"^num_actions is 3 in .*, and is 2 in ReveriePaid-v0, where actors learn"),
        ("Pendulum-v1", r"^obs_shape is \(3,\) in Pendulum-v1"),
    ],
)
def test_an_environment_for_evaluations_with_other_spaces_is_refused(evaluation, what):
    with pytest.raises(UnsupportedEnvironmentError, match=what):
        describe("ReveriePaid-v0", EnvSettings(evaluation_env=evaluation))


BOX, IMAGE = gymnasium.spaces.Box(-1, 1, (2,), np.float32), gymnasium.spaces.Box(0, 255, (8, 8, 3), np.uint8)
POS = gymnasium.spaces.Discrete(8)
CUTS = gymnasium.spaces.MultiDiscrete([3] * 40)


def nest(**parts):
    return gymnasium.spaces.Dict(parts)


class Spaces(Paid):
    """Other spaces than those of `Paid`."""

    def __init__(self, observations, actions=None):
        self.observation_space, self.action_space = observations, actions or gymnasium.spaces.Discrete(2)


def bounded(high, size=2):
    return gymnasium.spaces.Box(-1, np.array([1.0] * (size - 1) + [high], np.float32), dtype=np.float32)


@pytest.mark.parametrize(
    ("learnt", "played", "words"),
    [
        (
            nest(pos=POS),
            nest(pos=gymnasium.spaces.Discrete(6)),
            "the part pos of observations has 6 values|has 8 values",
        ),
        (nest(pos=POS, v=BOX), nest(pos=POS), "the part v of observations is missing|exists"),
        (nest(pos=POS), nest(pos=POS, v=BOX), "the part v of observations exists|is missing"),
        (
            nest(a=nest(v=BOX), pos=POS),
            nest(a=nest(v=gymnasium.spaces.Box(-1, 1, (3,), np.float32)), pos=POS),
            "the part a/v of observations has the shape (3,)|has the shape (2,)",
        ),
        (nest(v=BOX), nest(v=POS), "the part v of observations is read as categories|is read as numbers"),
        (nest(v=BOX), BOX, "the observation is one array|has the part v"),
        (BOX, nest(v=BOX, pos=POS), "the observation has the parts pos, v|is one array"),
        (
            gymnasium.spaces.Dict([("pos", POS), ("v", BOX)]),
            gymnasium.spaces.Dict([("v", BOX), ("pos", POS)]),
            "the observation has the parts v, pos|has the parts pos, v",
        ),
        (POS, gymnasium.spaces.Discrete(8, start=1), "the observation counts from 1|counts from 0"),
        (CUTS, gymnasium.spaces.MultiDiscrete([3] * 39 + [4]), "the observation has 4 values at 39|has 3 values at 39"),
        (IMAGE, gymnasium.spaces.Box(0, 200, (8, 8, 3), np.uint8), "the observation has values up to 200|up to 255"),
    ],
)
def test_the_first_part_of_observations_that_differs_in_evaluations_is_named_with_what_differs(
    learnt, played, words, monkeypatch
):
    there, here = words.split("|")
    with pytest.raises(UnsupportedEnvironmentError) as refused:
        evaluated_in(monkeypatch, Spaces(learnt), Spaces(played))
    text = str(refused.value)
    assert text.startswith(f"{there} in ReverieSpaces-v0(played=True) for evaluations, and ")
    assert f"{here} in ReverieSpaces-v0, where actors learn: change " in text
    assert len(text) < 300


@pytest.mark.parametrize(
    ("learnt", "played", "words"),
    [
        (bounded(1.0), bounded(2.0), "action_high[1] is 2.0|is 1.0"),
        (bounded(1.0), bounded(1.0, 3), "action_low has 3 numbers|has 2 numbers"),
        (
            gymnasium.spaces.MultiDiscrete([2, 3]),
            gymnasium.spaces.MultiDiscrete([3, 2]),
            "action_sizes[0] is 3|is 2",
        ),
    ],
)
def test_the_first_number_of_actions_that_differs_in_evaluations_is_named(learnt, played, words, monkeypatch):
    there, here = words.split("|")
    expected = f"{there} in ReverieSpaces-v0(played=True) for evaluations, and {here} in ReverieSpaces-v0, where"
    with pytest.raises(UnsupportedEnvironmentError, match=f"^{re.escape(expected)}"):
        evaluated_in(monkeypatch, Spaces(BOX, learnt), Spaces(BOX, played))


def evaluated_in(monkeypatch, learnt, played):
    """The description of an environment whose evaluations play another one."""
    spec = gymnasium.envs.registration.EnvSpec(
        "ReverieSpaces-v0", entry_point=lambda played=False, of=(learnt, played): of[played], disable_env_checker=True
    )
    monkeypatch.setitem(gymnasium.registry, "ReverieSpaces-v0", spec)
    return describe("ReverieSpaces-v0", EnvSettings(evaluation_env="ReverieSpaces-v0(played=True)"))


def test_names_that_cannot_be_found_are_refused_before_anything_starts():
    with pytest.raises(UnknownEnvironmentError, match="ReveriePaidForEvaluations-v0"):
        describe("ReveriePaid-v0", EnvSettings(evaluation_env="ReveriePaidForEvaluation-v0"))
    with pytest.raises(ValueError, match="evaluation_wrappers is 'Shaped', and must be a list"):
        EnvSettings(evaluation_wrappers="Shaped")
    with pytest.raises(ValueError, match=r"evaluation_env: .* is a lambda or defined within a function"):
        EnvSettings(evaluation_env=lambda num_envs: None)
