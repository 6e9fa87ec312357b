"""Environments that do not follow Gymnasium's interface are refused at their first reset or step."""

import copy
import dataclasses
import pickle

import gymnasium
import numpy as np
import pytest

pytest.importorskip("torch")

from reverie import agents
from reverie.agents.env_settings import EnvSettings
from reverie.agents.environments import UnsupportedEnvironmentError, describe, make_one, make_vector
from reverie.runners import EnvironmentRestarted, Evaluator, train

GOOD = np.zeros(2, np.float32)


class Played(gymnasium.Env):
    """Returns `first` from a reset, and `then` from a step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    first: object = (GOOD, {})
    then: object = (GOOD, 1.0, False, False, {})
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.first

    def step(self, action):
        type(self).steps += 1
        return self.then


class OldReset(Played):
    def reset(self):
        return GOOD


class Nested(Played):
    observation_space = gymnasium.spaces.Dict(a=gymnasium.spaces.Box(-1, 1, (2,)), b=gymnasium.spaces.Discrete(3))


@pytest.fixture
def played():
    """Registers a kind of environment, with changed results; returns its id."""
    made = []

    def register(kind=Played, limit=None, **changes):
        own = type("Own", (kind,), changes)
        env_id = f"ReverieFirstStep{len(made)}-v0"
        gymnasium.register(env_id, lambda: own(), max_episode_steps=limit)
        made.append(env_id)
        return env_id

    yield register
    for env_id in made:
        del gymnasium.registry[env_id]


RESETS = [
    ({"first": GOOD}, r"reset of \S+ returns a ndarray, and must return \(observation, info\)"),
    ({"first": (GOOD, {}, 1)}, r"returns 3 values, and must return \(observation, info\)"),
    ({"first": (GOOD, None)}, r"returns info as None, and must return \(observation, info\), info as a dict"),
    ({"first": (np.zeros(3, np.float32), {})}, r"of shape \(3,\), and its observation_space has \(2,\): make them equ"),
    ({"first": (np.array(["a", "b"]), {})}, r"an observation of dtype <U1, and it must consist of numbers"),
    (
        {"kind": OldReset},
        r"reset of \S+ takes no seed and options, .* define reset\(self, \*, seed=None, ",
    ),
    ({"kind": Nested, "first": ({"a": GOOD}, {})}, r"as an observation, and its space has b"),
    ({"kind": Nested, "first": ({"a": GOOD[:1], "b": 0}, {})}, r"whose a is of shape \(1,\), and its .* has \(2,\)"),
]
PICTURE = gymnasium.spaces.Box(0, 255, (4, 4, 3), np.uint8)
SHADES = np.full((4, 4, 3), 0.25, np.float32)
RESETS += [
    (
        {"observation_space": PICTURE, "first": (SHADES, {})},
        r"an observation of float32 with 0\.25, and its observation_space has uint8: make them equal",
    ),
    (
        {"observation_space": PICTURE, "first": (np.full((4, 4, 3), 300), {})},
        r"an observation of int64 with 300, and its observation_space has uint8: make them equal",
    ),
    (
        {
            "observation_space": gymnasium.spaces.Dict(eye=PICTURE, arm=PICTURE),
            "first": ({"eye": SHADES, "arm": 0}, {}),
        },
        r"an observation whose eye is of float32 with 0\.25, and its observation_space has uint8",
    ),
    ({"observation_space": gymnasium.spaces.Discrete(3), "first": (1.7, {})}, r"of float64 with 1\.7, and its .* int"),
    ({"observation_space": gymnasium.spaces.MultiBinary(1), "first": ([np.nan], {})}, r"of float64 with nan, and its "),
    (
        {"kind": Nested, "first": ({"a": np.zeros((99, 99), np.float32)}, {})},
        r"whose a is of shape \(99, 99\)",
    ),
    (
        {"kind": Nested, "first": ({"c": np.zeros((99, 99), np.float32), "a": GOOD}, {})},
        r"returns a dict with c and a as an observation, and its space has b: make them equal",
    ),
]
STEPS = [
    ({"then": (GOOD, 1.0, False, {})}, r"step of \S+ returns 4 values, and must return \(observation, reward, termina"),
    ({"then": (np.zeros(3, np.float32), 1.0, False, False, {})}, r"step of \S+ returns .* of shape \(3,\)"),
    ({"then": (GOOD, np.zeros(2), False, False, {})}, r"the reward a ndarray of shape \(2,\), and it must be a number"),
    ({"then": (GOOD, None, False, False, {})}, r"the reward None, and it must be a number"),
    ({"then": (GOOD, 1.0, False, {}, {})}, r"truncated as {}, and it must be true or false"),
]


@pytest.mark.parametrize("limit", [None, 9])
@pytest.mark.parametrize(("changes", "reason"), RESETS)
def test_a_first_reset_of_another_form_is_refused_in_one_sentence(played, changes, reason, limit):
    env_id = played(limit=limit, **changes)
    for made in (make_one(env_id), make_vector(env_id, 2)):
        with pytest.raises(UnsupportedEnvironmentError, match=reason) as caught:
            made.reset(seed=1)
        assert env_id in str(caught.value)


@pytest.mark.parametrize("limit", [None, 9])
@pytest.mark.parametrize(("changes", "reason"), STEPS)
def test_a_first_step_of_another_form_is_refused_in_one_sentence(played, changes, reason, limit):
    env_id = played(limit=limit, **changes)
    for made, action in ((make_one(env_id), 0), (make_vector(env_id, 2), np.zeros(2, np.int64))):
        made.reset(seed=1)
        with pytest.raises(UnsupportedEnvironmentError, match=reason):
            made.step(action)


@pytest.mark.parametrize("make", [make_one, lambda env_id: make_vector(env_id, 1)], ids=["one", "vector"])
@pytest.mark.parametrize("given", [np.full((4, 4, 3), 9), np.full((4, 4, 3), 9.0), [[[9] * 3] * 4] * 4])
def test_numbers_that_the_dtype_of_the_space_can_hold_are_converted(played, given, make):
    made = make(played(observation_space=PICTURE, first=(given, {}), then=(given, 1.0, False, False, {})))
    for observation in (made.reset(seed=1)[0], made.step(made.action_space.sample())[0]):
        assert observation.dtype == np.uint8
        assert (observation == 9).all()


@pytest.mark.parametrize("reward", [1, 1.5, True, np.float32(1), np.array(2.0)])
def test_numbers_of_any_library_are_rewards(played, reward):
    made = make_one(played(then=(GOOD, reward, np.bool_(False), 0, {})))
    made.reset(seed=1)
    assert made.step(0)[1] == reward


def test_errors_of_the_environment_itself_pass_as_they_are(played):
    def broken(self, action):
        raise ValueError("no such joint")

    made = make_one(played(step=broken))
    made.reset(seed=1)
    with pytest.raises(ValueError, match=r"^no such joint$"):
        made.step(0)


class Copying(Played):
    """Keeps a copy of itself at each reset and step, as a search does, and is pickled in between."""

    def reset(self, *, seed=None, options=None):
        self.seed_of_reset = seed
        self.start = copy.deepcopy(self)
        self.pickled = pickle.dumps(self)
        return super().reset(seed=seed)

    def step(self, action):
        self.model = copy.deepcopy(self)
        return super().step(action)


def test_copies_that_an_environment_makes_of_itself_in_its_first_calls_are_independent():
    gymnasium.register("ReverieCopying-v0", Copying)
    try:
        made = make_one("ReverieCopying-v0")
    finally:
        del gymnasium.registry["ReverieCopying-v0"]
    own = made.unwrapped
    made.reset(seed=1)
    made.step(0)
    for copied in (own.start, own.model, pickle.loads(own.pickled)):
        copied.reset(seed=2)
        assert (copied.seed_of_reset, own.seed_of_reset) == (2, 1)
    assert pickle.loads(pickle.dumps(made)).unwrapped.seed_of_reset == 1


def small_run(agent, **changes):
    preset = agent.load_preset("CartPole-v1")
    run = dataclasses.replace(preset.run, max_env_steps=60, evaluate_every=60, screening_episodes=1, target_return=None)
    return {"preset": preset.path, "run": run, **changes}


def test_a_run_ends_at_a_mistake_of_the_environment_without_a_restart(played):
    events, dqn = [], agents.find("dqn")
    env_id = played(then=(GOOD, None, False, False, {}))
    with pytest.raises(UnsupportedEnvironmentError, match="the reward None"):
        train(dqn, env_id, on_event=events.append, **small_run(dqn))
    assert not any(isinstance(event, EnvironmentRestarted) for event in events)


@pytest.mark.parametrize("changes", [{"kind": OldReset}, {"then": (GOOD, None, False, False, {})}])
def test_an_evaluation_does_not_take_a_mistake_of_the_environment_for_a_crash(played, changes):
    evaluator = Evaluator(played(**changes), 2)
    with pytest.raises(UnsupportedEnvironmentError):
        evaluator.evaluate(lambda observations: np.zeros(len(observations), np.int64), [1, 2])


@pytest.mark.parametrize("lacks", ["observation_space", "action_space"])
def test_an_environment_without_a_space_is_refused_by_the_name_of_the_space(lacks):
    bare = type("Bare", (gymnasium.Env,), {key: value for key, value in vars(Played).items() if key != lacks})
    gymnasium.register("ReverieBare-v0", lambda: bare())
    try:
        with pytest.raises(
            UnsupportedEnvironmentError, match=rf"ReverieBare-v0 has no {lacks}: set it in its class or"
        ):
            describe("ReverieBare-v0")
    finally:
        del gymnasium.registry["ReverieBare-v0"]


def test_a_description_takes_no_step(played):
    env_id = played()
    describe(env_id, EnvSettings())
    assert gymnasium.make(env_id).unwrapped.steps == 0
