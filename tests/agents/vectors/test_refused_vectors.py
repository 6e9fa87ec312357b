"""Vectors that cannot be stepped as asked, and those that return other than they promise: each has its message."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from vector_envs import Counting, Nested, next_step

from reverie.agents.env_settings import EnvSettings
from reverie.agents.environments import UnsupportedEnvironmentError, describe, make_vector
from reverie.agents.wrappers import FlatActions


def wrong_number(num_envs):
    return Counting(num_envs + 1, "NEXT_STEP")


def single(num_envs):
    return Nested()


def silent(num_envs):
    envs = Counting(num_envs, "NEXT_STEP")
    envs.metadata = {}
    return envs


def to_number(envs):
    return 3


@pytest.mark.parametrize(
    ("env", "settings", "words"),
    [
        (next_step, {"wrappers": ("gymnasium.wrappers:TimeAwareObservation",)}, "is for single environments"),
        (next_step, {"wrappers": (to_number,)}, "returns a int.*must return a gymnasium.vector.VectorEnv"),
        (next_step, {"time_limit": 5}, "time_limit is 5.*no parameter max_episode_steps"),
        (next_step, {"frame_stack": 4}, "let it stack frames itself"),
        (wrong_number, {}, "has 2 environments, and was called with num_envs=1"),
        (single, {}, r"returns a Nested, and must return a gymnasium.vector.VectorEnv, since it takes num_envs"),
        (silent, {}, "autoreset_mode.*None.*needs one of AutoresetMode.NEXT_STEP"),
    ],
)
def test_vectors_that_cannot_be_stepped_as_asked_are_refused(env, settings, words):
    with pytest.raises(UnsupportedEnvironmentError, match=words):
        describe(env, EnvSettings(**settings))


class Refused(Nested):
    def __init__(self, observations=spaces.Discrete(2), actions=spaces.Discrete(2)):  # noqa: B008
        self.observation_space, self.action_space = observations, actions

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {"action_mask": np.ones(2, np.int8)}

    def step(self, action):
        assert self.action_space.contains(action)
        return self.observation_space.sample(), 0.0, False, False, {}


def of_text(num_envs):
    return SyncVectorEnv([lambda: Refused(spaces.Dict(x=spaces.Text(3)))] * num_envs)


def of_graphs(num_envs):
    return SyncVectorEnv([lambda: Refused(spaces.Graph(spaces.Box(-1, 1, (2,)), None))] * num_envs)


PAIR = spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3, start=1)))


def of_pairs(num_envs):
    return SyncVectorEnv([lambda: Refused(actions=PAIR)] * num_envs)


def of_flat_pairs(num_envs):
    return SyncVectorEnv([lambda: FlatActions(Refused(actions=PAIR))] * num_envs)


def shifted(num_envs):
    return SyncVectorEnv([lambda: Refused(actions=spaces.Discrete(2, start=1))] * num_envs)


def mixed(num_envs):
    actions = spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1)))
    return SyncVectorEnv([lambda: Refused(actions=actions)] * num_envs)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (of_text, "name gymnasium.wrappers.vector:FlattenObservation in wrappers"),
        (of_graphs, r"gymnasium.wrappers.vector.TransformObservation\(envs, function, space, single_space\)"),
        (of_pairs, "let the factory of the vector wrap each environment in reverie.agents.wrappers.FlatActions, which"),
        (shifted, "let the factory of the vector wrap each environment in reverie.agents.wrappers.ActionsFromZero"),
        (mixed, r"gymnasium.wrappers.vector.TransformAction\(envs, function, space, single_space\)"),
    ],
)
def test_spaces_of_vectors_that_are_refused_are_named_with_what_converts_them_in_a_vector(env, words):
    with pytest.raises(UnsupportedEnvironmentError, match=words):
        describe(env)


def test_a_vector_is_played_with_the_wrappers_that_its_errors_name():
    flat = EnvSettings(wrappers=("gymnasium.wrappers.vector:FlattenObservation",))
    spec = describe(of_text, flat)
    assert make_vector(spec, 2).reset(seed=0)[0].shape == (2, *spec.obs_shape)
    envs = make_vector(describe(of_flat_pairs), 2)
    envs.reset(seed=0)
    envs.step(np.array([[0, 2], [1, 0]]))


def with_masks(num_envs):
    return SyncVectorEnv([Refused] * num_envs)


def test_a_mask_of_actions_in_a_vector_is_reported_once(caplog):
    envs = make_vector(describe(with_masks), 2)
    for _ in range(2):
        envs.reset(seed=0)
    reported = [record.getMessage() for record in caplog.records if "action_mask" in record.getMessage()]
    assert [one.partition(", which")[0] for one in reported] == [f"{__name__}:with_masks has an action_mask"]


class MasksOfSteps(Refused):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], {}

    def step(self, action):
        return (*super().step(action)[:4], {"action_mask": np.ones(2, np.int8)})


def with_masks_of_steps(num_envs):
    return SyncVectorEnv([MasksOfSteps] * num_envs)


def test_a_mask_that_only_steps_of_a_vector_have_is_reported_once(caplog):
    envs = make_vector(describe(with_masks_of_steps), 2)
    envs.reset(seed=0)
    assert caplog.messages == []
    for _ in range(2):
        envs.step(np.array([0, 1]))
    assert [one.partition(", which")[0] for one in caplog.messages] == [
        f"{__name__}:with_masks_of_steps has an action_mask"
    ]


class Forgetful(Counting):
    def step(self, actions):
        return (*super().step(actions)[:4], {})


def forgetful(num_envs):
    return Forgetful(num_envs, "SAME_STEP")


def test_a_last_observation_that_is_lost_is_reported():
    envs = make_vector(describe(forgetful), 1)
    envs.reset(seed=0)
    envs.step(np.zeros(1, int))
    with pytest.raises(ValueError, match=r"ended without info\['final_obs'\]"):
        envs.step(np.zeros(1, int))


class Malformed(Counting):
    """Returns `wrong` in one place of a reset or a step."""

    def __init__(self, num_envs, place, wrong, dtype="float32"):
        super().__init__(num_envs, "NEXT_STEP")
        self.place, self.wrong = place, np.array(wrong)
        self.single_observation_space = spaces.Box(0, 100, (2,), np.dtype(dtype))

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        return (self.wrong if self.place == "first" else obs * 0), info

    def step(self, actions):
        found = dict(zip(("obs", "reward", "terminated", "truncated", "info"), super().step(actions), strict=True))
        found["obs"] = found["obs"] * 0
        return (*({**found, self.place: self.wrong} if self.place != "first" else found).values(),)


MALFORMED = [
    (
        "place='first', wrong=[[0.5, 0]], dtype='uint8'",
        r"observation of float64 with 0\.5 in .*, and its single_obs\w+ has uint8: make",
    ),
    (
        "place='obs', wrong=[[0, 300]], dtype='uint8'",
        r"observation of int64 with 300 in .*, and its single_observation_space has uint8",
    ),
    ("place='first', wrong=[[0, 0], [0, 0]]", r"reset of .* returns 2 observations, and it has 1 environment"),
    ("place='obs', wrong=[[0, 0], [0, 0]]", r"step of .* returns 2 observations, and it has 1 environment"),
    (
        "place='reward', wrong=[[1]]",
        r"step of .* returns the reward as an array of shape \(1, 1\), and must return \(1,\): one for",
    ),
    (
        "place='terminated', wrong=False",
        r"step of .* returns terminated as an array of shape \(\), and must return \(1,\): one for",
    ),
    (
        "place='truncated', wrong=[True, True]",
        r"returns truncated as an array of shape \(2,\), and must return \(1,\): one for each",
    ),
]


@pytest.mark.parametrize(("options", "words"), MALFORMED)
def test_a_vector_that_returns_another_form_than_its_spaces_is_refused_in_one_sentence(options, words):
    made = make_vector(f"{__name__}:Malformed({options})", 1)
    with pytest.raises(UnsupportedEnvironmentError, match=words):
        made.step(np.zeros(len(made.reset(seed=1)[0]), np.int64))
