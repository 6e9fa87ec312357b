"""Rewards and observations that are not finite end a run with the environment, the seed and the step, and not later."""

import dataclasses
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("torch")

import reverie
from reverie import agents
from reverie.agents.core import EnvironmentCrashedError, Stopwatch
from reverie.agents.env_settings import EnvSettings
from reverie.agents.environments import describe
from reverie.agents.outcomes import DivergedError
from reverie.agents.step_checks import InvalidStepError, StepChecks

NUMBERS = spaces.Box(-np.inf, np.inf, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (5, 5, 3), np.uint8)
SPACES = {
    "Vector": NUMBERS,
    "Half": spaces.Box(-np.inf, np.inf, (3,), np.float16),
    "Double": spaces.Box(-np.inf, np.inf, (3,), np.float64),
    "Mixed": spaces.Dict({"camera": IMAGE, "direction": spaces.Discrete(4), "joints": NUMBERS}),
    "Nest": spaces.Dict({"arm": NUMBERS, "hand": NUMBERS}),
}


class Faulty(gymnasium.Env):
    """The environment whose first seed ends in 1 returns its class's `reward` and `number` in step `at`."""

    action_space = spaces.Discrete(2)
    reward, number, at, length = 1.0, 0.0, 4, 7

    def __init__(self, observations):
        self.observation_space = observations

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.seed = 0, self.seed if seed is None else seed
        return self._obs(), {}

    def step(self, action):
        self.steps += 1
        reward = type(self).reward if self._is_due() else 1.0
        return self._obs(), reward, False, self.steps == self.length, {}

    def _is_due(self):
        return self.seed % 2 == 1 and self.steps == type(self).at

    def _obs(self):
        numbers = np.zeros(3)
        numbers[1] = type(self).number if self._is_due() else 0.0
        joints = numbers.astype(np.float32)
        match self.observation_space:
            case spaces.Dict(spaces={"camera": _}):
                return {"camera": np.full((5, 5, 3), 255, np.uint8), "direction": 3, "joints": joints}
            case spaces.Dict():
                return {"arm": np.zeros(3, np.float32), "hand": joints}
            case box:
                return numbers.astype(box.dtype)


@pytest.fixture
def faulty():
    """A function that registers environments of a space, and returns their id and class."""
    ids = []

    def register(space, **changes):
        kind = type("OneRun", (Faulty,), changes)
        env_id = f"ReverieFaulty{len(ids)}-v0"
        ids.append(env_id)
        gymnasium.register(env_id, lambda: kind(SPACES[space]), disable_env_checker=True)
        return env_id

    yield register
    for env_id in ids:
        del gymnasium.registry[env_id]


class Weights:
    def latest(self, newer_than):
        return None


def act(name, env_id, steps=12, **settings):
    """Let an actor with two environments act; the fault is in that with an odd seed."""
    agent, spec = agents.find(name), describe(env_id, EnvSettings(**settings))
    config = dataclasses.replace(agent.load_preset(env_id).config, num_actors=1, envs_per_actor=2)
    with reverie.Server(agent.make_tables(spec, config, seed=0), listen=False) as server:
        actor = agent.make_actor(spec, config, server.client(), Weights(), index=0, seed=3, watch=Stopwatch())
        try:
            for _ in range(steps):
                actor.act()
            return actor.drain_crashes()
        finally:
            actor.close()


@pytest.mark.parametrize("name", ["dqn", "r2d2", "ppo", "apex-dqn"])
@pytest.mark.parametrize("reward", [float("nan"), float("-inf"), 1e39])
def test_a_reward_that_is_not_finite_in_float32_ends_acting_with_its_place(name, reward, faulty):
    env_id = faulty("Vector", reward=reward)
    with pytest.raises(
        InvalidStepError, match=rf"{env_id} returned a reward of .* at step 4 from seed \d+: "
    ) as caught:
        act(name, env_id)
    crash = caught.value.crash
    assert (crash.env_id, crash.step, crash.seed % 2) == (env_id, 4, 1)
    assert crash.error == f"a reward of {reward}"
    assert isinstance(caught.value, EnvironmentCrashedError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), again.crash) == (InvalidStepError, str(caught.value), crash)


@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
@pytest.mark.parametrize("name", ["dqn", "r2d2", "ppo"])
@pytest.mark.parametrize(
    ("space", "number", "what"),
    [
        ("Vector", np.nan, "an observation with nan"),
        ("Vector", 1e300, "an observation with inf"),
        ("Double", 1e39, "an observation with 1e+39"),
        ("Mixed", np.inf, "an observation whose joints has inf"),
        ("Nest", np.nan, "an observation whose hand has nan"),
    ],
)
def test_an_observation_that_is_not_finite_in_float32_ends_acting_with_its_part(name, space, number, what, faulty):
    with pytest.raises(InvalidStepError) as caught:
        act(name, faulty(space, number=number))
    assert (caught.value.crash.error, caught.value.crash.step) == (what, 4)


@pytest.mark.parametrize("settings", [{}, {"frame_stack": 2}], ids=["plain", "stacked"])
@pytest.mark.parametrize("at", [0, 7], ids=["first", "last"])
def test_the_first_and_the_last_observation_of_an_episode_are_checked(settings, at, faulty):
    """With stacks of frames the step that ends an episode returns the next one's first observation."""
    with pytest.raises(InvalidStepError) as caught:
        act("dqn", faulty("Vector", number=np.nan, at=at), **settings)
    assert caught.value.crash.step == at


@pytest.mark.parametrize("space", [space for space in SPACES if space != "Half"])
@pytest.mark.parametrize("settings", [{}, {"frame_stack": 2}], ids=["plain", "stacked"])
def test_large_numbers_are_no_fault(space, settings, faulty):
    """Their squares have no sum in float32. Bytes of images are not numbers of float32, whatever they are."""
    assert act("dqn", faulty(space, number=3e38, reward=-3e38), **settings) == []


def test_a_reward_of_a_reset_is_none():
    checks = StepChecks(describe("CartPole-v1"))
    obs, reward, resets = np.zeros((2, 4), np.float32), np.array([1.0, np.nan]), np.array([False, True])
    assert checks.passes(obs, np.ones(2))
    assert not checks.passes(obs, reward)
    checks.require_finite(obs, reward, resets, seed=5, step=9)
    with pytest.raises(InvalidStepError, match="a reward of nan at step 9 from seed 6"):
        checks.require_finite(obs, reward, ~resets, seed=5, step=9)


def test_an_error_at_the_first_update_names_sizes_and_not_the_learning_rate_alone():
    assert "rewards or observations may be too large, or not finite; scale or normalise them" in str(
        DivergedError(0, "loss", {"learning_rate": 0.1})
    )
    assert str(DivergedError(3, "loss", {"learning_rate": 0.1})).endswith(
        "learning diverged; lower learning_rate (0.1)"
    )


@pytest.mark.parametrize("runner", ["local", "role"])
def test_the_command_reports_it_in_one_line(runner, faulty, monkeypatch, tmp_path, capsys):
    typer = pytest.importorskip("typer")
    from reverie.agents.core import EnvironmentCrash
    from reverie.cli.exits import run_errors_reported
    from reverie.runners import RoleError

    error = InvalidStepError(EnvironmentCrash("Mine-v0", 7, 4, "a reward of nan"), 1)
    if runner == "role":
        error = RoleError("actor 3", type(error).__name__, str(error), "Traceback ...\n")
    with pytest.raises(typer.Exit) as ended, run_errors_reported(tmp_path):
        raise error
    assert ended.value.exit_code == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("reverie: ")
    assert "Mine-v0 returned a reward of nan at step 4 from seed 7" in line
