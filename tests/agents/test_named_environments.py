"""Environments that are named by their class, or by a function that makes them: as arguments and as `module:name`."""

import multiprocessing.spawn
import sys
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

pytest.importorskip("torch")

import reverie
from reverie import agents
from reverie.agents.env_ids import id_of
from reverie.agents.env_settings import EnvSettings
from reverie.agents.environments import (
    UnknownEnvironmentError,
    UnsupportedEnvironmentError,
    describe,
    make_one,
    make_vector,
)
from reverie.runners import plan

SHORT = {"max_env_steps": 60, "learning_starts": 20, "evaluate_every": 60, "target_return": None, "compile": "off"}


class Walk(gymnasium.Env):
    """A place on a line. The return of an episode without a limit is `size`."""

    def __init__(self, size=5, render_mode=None):
        self.size, self.render_mode = size, render_mode
        self.observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.place += 1
        return np.full(1, self.place, np.float32), 1.0, self.place >= self.size, False, {}

    def render(self):
        return np.full((4, 4, 3), self.place, np.uint8)


def wrapped_walk(size=4):
    return gymnasium.wrappers.TransformReward(Walk(size), lambda reward: 2 * reward)


def limited_walk(max_episode_steps=2):
    return gymnasium.wrappers.TimeLimit(Walk(), max_episode_steps)


def registered():
    return gymnasium.make("CartPole-v1")


def number():
    return 3


def vector():
    return gymnasium.make_vec("CartPole-v1", 1)


def takes_any(**options):
    return Walk(**options)


class OfSize(Walk):
    """An environment with an argument that has no default."""

    def __init__(self, length):
        super().__init__()


def walk_of_none():
    """Raises a TypeError of its own."""
    return Walk(size=None + 1)


class WithOptions(Walk):
    """A class that takes any options, and so a number of environments, too."""

    def __init__(self, **options):
        super().__init__(**options)


def anonymous(size=5):
    return Walk(size)


by_number = lambda: Walk()  # noqa: E731
replaced = anonymous


def anonymous(size=6):
    return Walk(size)


def length_of(env):
    """Steps of an episode."""
    env.reset(seed=0)
    return next(i for i in range(1, 1000) if any(env.step(0)[2:4]))


@pytest.mark.parametrize(
    ("env", "env_id", "steps"),
    [
        (Walk, f"{__name__}:Walk", 5),
        (f"{__name__}:Walk(size=3)", f"{__name__}:Walk(size=3)", 3),
        (f"{__name__}:Walk(3)", f"{__name__}:Walk(3)", 3),
        (WithOptions, f"{__name__}:WithOptions", 5),
        (f"{__name__}:WithOptions(size=2)", f"{__name__}:WithOptions(size=2)", 2),
        (wrapped_walk, f"{__name__}:wrapped_walk", 4),
        (CartPoleEnv, "gymnasium.envs.classic_control.cartpole:CartPoleEnv", 11),
    ],
)
def test_a_class_or_function_makes_the_environment_and_is_kept_by_its_name(env, env_id, steps):
    spec = describe(env)
    assert spec.env_id == env_id
    assert length_of(make_one(spec)) == steps
    envs = make_vector(spec, 3)
    assert envs.reset(seed=1)[0].shape == (3, *spec.obs_shape)
    envs.close()


def test_a_time_limit_is_passed_to_its_parameter_or_is_a_wrapper():
    assert length_of(make_one(describe(Walk, EnvSettings(time_limit=2)))) == 2
    assert length_of(make_one(describe(limited_walk, EnvSettings(time_limit=4)))) == 4
    assert length_of(make_one(describe(registered, EnvSettings(time_limit=7)))) == 7
    with pytest.raises(UnsupportedEnvironmentError, match=r"time_limit is 501, .* has a limit of 500 steps of its own"):
        describe(registered, EnvSettings(time_limit=501))


def test_the_threshold_of_a_registered_environment_that_a_function_makes_is_kept():
    assert describe(registered).reward_threshold == 475
    assert describe(Walk).reward_threshold is None


class Several:
    """An environment of several agents, of the form of PettingZoo's."""

    possible_agents = ("one", "other")


def test_pictures_need_a_parameter_for_them():
    env = make_one(describe(Walk), render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().shape == (4, 4, 3)
    with pytest.raises(UnsupportedEnvironmentError, match="wrapped_walk draws no pictures: it needs a parameter"):
        make_one(describe(wrapped_walk), render_mode="rgb_array")


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (number, "number returns a int, and must return a gymnasium.Env: give a class that derives from it"),
        (Several, "returns a Several, and must return a gymnasium.Env: environments of several agents are not support"),
        (vector, "returns a .*, and must return a gymnasium.Env: a function of vectors has a parameter num_envs"),
        (takes_any, r"cannot be made: TypeError|since it takes num_envs: .* has no such parameter, and no \*\*options"),
        (f"{__name__}:Walk(length=3)", r"cannot be made: TypeError: .*unexpected keyword argument 'length'$"),
        (
            OfSize,
            r"cannot be made: TypeError: .* 'length'; its arguments follow its name in brackets, as literals:"
            rf" {__name__}:OfSize\(name=value\)$",
        ),
        (walk_of_none, r"cannot be made: TypeError: unsupported operand .*test_named_environments.py, line \d+\)$"),
    ],
)
def test_a_factory_that_makes_no_environment_is_refused(env, words):
    with pytest.raises(UnsupportedEnvironmentError, match=words):
        describe(env)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (lambda: Walk(), "is a lambda or defined within a function"),
        (by_number, "is a lambda or defined within a function"),
        (replaced, f"is not what {__name__}:anonymous is"),
        (partial(Walk, size=3), r"is a functools.partial, .*: write the text module:name\(size=3\)"),
        (Walk(), "is an environment, a Walk, .*: give the id of a registered one, the class Walk, or a function"),
        (gymnasium.make("CartPole-v1"), "is an environment, a CartPoleEnv, .*: give 'CartPole-v1', the class"),
        (vector(), "is an environment, a CartPoleVectorEnv"),
        (7, "is a int, and must be the id of an environment"),
    ],
)
def test_a_factory_that_other_processes_cannot_call_is_refused_with_the_remedy(env, words):
    with pytest.raises(TypeError, match=f"^env_id.* {words}"):
        reverie.train("dqn", env, **SHORT)
    with pytest.raises(ValueError, match=f"^evaluation_env.* {words}"):
        EnvSettings(evaluation_env=env)


def test_a_run_continues_and_its_policy_is_loaded_by_the_name(tmp_path):
    first = reverie.train("dqn", Walk, **SHORT, evaluation_env=wrapped_walk, folder=tmp_path)
    assert first.topology.env.for_evaluation().env_id == f"{__name__}:wrapped_walk"
    assert first.evaluation.mean_return == 8
    again = reverie.train("dqn", Walk, **{**SHORT, "max_env_steps": 80}, folder=tmp_path, resume=True)
    assert again.env_steps == 80
    assert length_of(reverie.load_policy(tmp_path).make_env()) == 4


@pytest.fixture
def of_the_program(monkeypatch):
    """A class that the program itself defines."""
    own = type("Walk", (Walk,), {"__module__": "__main__", "__qualname__": "OwnWalk"})
    monkeypatch.setattr(sys.modules["__main__"], "OwnWalk", own, raising=False)
    return own


def test_a_class_of_the_program_trains_here_and_is_named_where_it_is_missing(of_the_program, tmp_path, monkeypatch):
    with pytest.warns(UserWarning, match="OwnWalk is defined in the program itself") as warned:
        result = reverie.train("dqn", of_the_program, **SHORT, folder=tmp_path)
    assert [one.filename for one in warned if "OwnWalk" in str(one.message)] == [__file__], "the line that named it"
    file = result.policy.save(tmp_path / "policy.safetensors")
    monkeypatch.delattr(sys.modules["__main__"], "OwnWalk")
    with pytest.raises(UnknownEnvironmentError, match=r"OwnWalk.*was defined in the program.*\.safetensors") as caught:
        reverie.load_policy(tmp_path)
    assert "import the module that registers it" not in str(caught.value)
    assert reverie.load_policy(file)(np.zeros(1, np.float32)) in (0, 1)


@pytest.mark.filterwarnings("ignore:OwnWalk is defined")
def test_a_class_of_the_program_is_refused_where_processes_do_not_import_it(of_the_program, monkeypatch):
    dqn = agents.find("dqn")
    with pytest.raises(TypeError, match=r"OwnWalk is defined in the program itself, .* runner='ray' do not"):
        plan(dqn, of_the_program, runner="ray")
    main = {"init_main_from_path": "train.py"}
    monkeypatch.setattr(multiprocessing.spawn, "get_preparation_data", lambda name: main)
    assert plan(dqn, of_the_program, runner="process").env.env_id == "__main__:OwnWalk"
    main.clear()  # as in a notebook
    with pytest.raises(TypeError, match="runner='process' do not"):
        plan(dqn, of_the_program, runner="process")
    with pytest.raises(TypeError, match="runner='process' do not"):
        plan(dqn, Walk, runner="process", environment=EnvSettings(evaluation_env=of_the_program))


def test_a_name_that_is_neither_registered_nor_a_class_is_reported_as_both():
    with pytest.raises(UnknownEnvironmentError, match="not registered, and as a class or function it cannot be imp"):
        describe(f"{__name__}:Missing")


def test_a_class_is_made_itself_where_its_name_is_registered_with_a_version():
    gymnasium.register("Walk-v3", lambda: Walk(2))
    try:
        assert length_of(make_one(id_of(Walk))) == 5
        assert length_of(make_one(f"{__name__}:Walk-v3")) == 2
    finally:
        del gymnasium.registry["Walk-v3"]
