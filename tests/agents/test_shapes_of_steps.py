"""An observation of another shape than the space's, later than the first step, ends the run with its place."""

import dataclasses
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

pytest.importorskip("torch")

import reverie
from reverie import agents
from reverie.agents.core import EnvironmentCrashedError, Stopwatch
from reverie.agents.env_settings import EnvSettings
from reverie.agents.environments import describe
from reverie.agents.step_checks import MisshapenStepError
from reverie.runners import EnvironmentRestarted, Evaluator, Saved, train

BOX = spaces.Box(-1, 1, (2,), np.float32)
LENGTH = 7


class Growing(gymnasium.Env):
    """The observation of its step `late` is `[wrong]`; its reset of an episode, too, with `late` 0."""

    action_space = spaces.Discrete(2)

    def __init__(self, nest=False, late=4, wrong=3, after=1):
        self.nest, self.late, self.wrong, self.after = nest, late, wrong, after
        self.observation_space = spaces.Dict(arm=BOX, hand=spaces.Discrete(3)) if nest else BOX
        self.episodes = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.episodes = 0, self.episodes + 1
        return self._obs(), {}

    def step(self, action):
        self.steps += 1
        return self._obs(), 1.0, False, self.steps == LENGTH, {}

    def _obs(self):
        is_wrong = self.steps == self.late and self.episodes > self.after
        numbers = np.zeros(self.wrong if is_wrong else 2, np.float32)
        return {"arm": numbers, "hand": 1} if self.nest else numbers


gymnasium.register("ReverieGrowing-v0", Growing)


def growing_vector(num_envs):
    """A vector whose space is not that of its environments."""
    made = SyncVectorEnv([Growing] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)
    steps, step = [], made.step

    def wrong(actions):
        observations, *others = step(actions)
        steps.append(1)
        return (np.zeros((num_envs, 5), np.float32) if len(steps) == 3 else observations), *others

    made.step = wrong
    return made


class Weights:
    def latest(self, newer_than):
        return None


def act(name, env_id, **settings):
    agent, spec = agents.find(name), describe(env_id, EnvSettings(**settings))
    config = dataclasses.replace(agent.load_preset(env_id).config, num_actors=1, envs_per_actor=2)
    with reverie.Server(agent.make_tables(spec, config, seed=0), listen=False) as server:
        actor = agent.make_actor(spec, config, server.client(), Weights(), index=0, seed=3, watch=Stopwatch())
        try:
            for _ in range(3 * LENGTH):
                actor.act()
            return actor.drain_crashes()
        finally:
            actor.close()


@pytest.mark.parametrize("settings", [{}, {"frame_stack": 2}], ids=["plain", "stacked"])
@pytest.mark.parametrize(
    ("options", "what"),
    [
        ("", "an observation of shape (3,), and its observation_space has (2,)"),
        ("wrong=1", "an observation of shape (1,), and its observation_space has (2,)"),
        ("wrong=(1, 2)", "an observation of shape (1, 2), and its observation_space has (2,)"),
        ("nest=True", "an observation whose arm is of shape (3,), and its observation_space has (2,)"),
        ("late=0", "an observation of shape (3,), and its observation_space has (2,)"),
    ],
)
@pytest.mark.parametrize("name", ["dqn", "ppo"])
def test_an_actor_names_the_environment_the_step_and_both_shapes(name, options, what, settings):
    env_id = f"ReverieGrowing-v0({options})" if options else "ReverieGrowing-v0"
    with pytest.raises(MisshapenStepError) as caught:
        act(name, env_id, **settings)
    crash = caught.value.crash
    assert (crash.env_id, crash.error) == (env_id, what)
    assert str(caught.value).startswith(f"{env_id}, at step {crash.step} from seed {crash.seed}, returned {what}: ")
    assert crash.step > LENGTH - 1
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), again.crash) == (MisshapenStepError, str(caught.value), crash)


@pytest.mark.parametrize("together", [1, 2])
@pytest.mark.parametrize("settings", [{}, {"frame_stack": 2}], ids=["plain", "stacked"])
@pytest.mark.parametrize(("options", "step"), [("after=0", 4), ("nest=True, after=0", 4), ("late=0", 0)])
def test_an_evaluation_names_them_too(options, step, settings, together):
    spec = describe(f"ReverieGrowing-v0({options})", EnvSettings(**settings))
    agent = agents.find("dqn")
    policy = agent.make_policy(spec, agent.load_preset(spec.env_id).config)
    evaluator = Evaluator(spec, together)
    with pytest.raises(MisshapenStepError, match=r"of shape \(3,\), and its observation_space has \(2,\)") as caught:
        evaluator.evaluate(policy, seeds=(7, 8, 9, 10))
    crash = caught.value.crash
    assert (crash.step, crash.seed) == (step, 7 if step else 7 + together)
    evaluator.close()


class Fading(Growing):
    """An image whose numbers are fractions from the step `late` of its second episode on."""

    def __init__(self, nest=False, **options):
        super().__init__(nest, **options)
        image = spaces.Box(0, 255, (8, 8, 3), np.uint8)
        self.observation_space = spaces.Dict(eye=image, arm=BOX) if nest else image

    def _obs(self):
        is_wrong = self.steps >= self.late and self.episodes > self.after
        image = np.full((8, 8, 3), 0.5 if is_wrong else 1.0)
        return {"eye": image, "arm": np.zeros(2, np.float32)} if self.nest else image


gymnasium.register("ReverieFading-v0", Fading)


@pytest.mark.parametrize("nest", [False, True])
def test_numbers_that_become_fractions_later_are_not_stored_as_integers(nest):
    env_id = f"ReverieFading-v0(nest={nest})"
    with pytest.raises(MisshapenStepError) as caught:
        act("dqn", env_id)
    whose = " whose eye is" if nest else ""
    what = f"an observation{whose} of float64 with 0.5, and its observation_space has uint8"
    assert caught.value.crash.error == what


def test_an_error_of_the_policy_itself_passes_as_it_is():
    evaluator = Evaluator("CartPole-v1", 1)
    with pytest.raises(ZeroDivisionError):
        evaluator.evaluate(lambda obs: 1 // 0, seeds=(1,))
    evaluator.close()


def test_a_crash_after_observations_of_their_space_stays_a_crash(monkeypatch):
    def step(self, action):
        if self.episodes > 1:
            raise KeyError("speed")
        return original(self, action)

    original = Growing.step
    monkeypatch.setattr(Growing, "step", step)
    with pytest.raises(EnvironmentCrashedError, match="KeyError: 'speed'") as caught:
        act("dqn", "ReverieGrowing-v0(late=99)", max_env_restarts=0)
    assert caught.type is EnvironmentCrashedError


def test_a_vector_of_another_library_names_both_shapes():
    env_id = f"{__name__}:growing_vector"
    with pytest.raises(EnvironmentCrashedError, match=r"have the shape \(2, 5\) in") as caught:
        act("dqn", env_id, max_env_restarts=0)
    assert "single_observation_space has (2,)" in str(caught.value)


@pytest.mark.parametrize("evaluated", [False, True])
def test_a_run_saves_a_checkpoint_and_ends_at_once(evaluated, tmp_path):
    events, sound, wrong = [], "ReverieGrowing-v0(late=99)", "ReverieGrowing-v0(after=1)"
    with pytest.raises(MisshapenStepError):
        train(
            "dqn",
            sound if evaluated else wrong,
            evaluation_env=wrong if evaluated else sound,
            max_env_steps=400,
            evaluate_every=20,
            learning_starts=10,
            screening_episodes=1,
            target_return=None,
            compile="off",
            folder=tmp_path,
            on_event=events.append,
        )
    assert any(isinstance(event, Saved) for event in events)
    assert not any(isinstance(event, EnvironmentRestarted) for event in events)


class Wandering(gymnasium.Env):
    """The category of its step 5 is `wrong`; others are the first of the space."""

    action_space = spaces.Discrete(2)

    def __init__(self, wrong=7, nest=False, start=0):
        self.wrong, self.nest, space = wrong, nest, spaces.Discrete(4, start=start)
        self.start, self.observation_space = start, spaces.Dict(arm=BOX, hand=space) if nest else space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._obs(), {}

    def step(self, action):
        self.steps += 1
        return self._obs(), 1.0, False, self.steps == LENGTH, {}

    def _obs(self):
        place = self.wrong if self.steps == 5 else self.start
        return {"arm": np.zeros(2, np.float32), "hand": place} if self.nest else place


gymnasium.register("ReverieWandering-v0", Wandering)


@pytest.mark.parametrize("settings", [{}, {"frame_stack": 2}], ids=["plain", "stacked"])
@pytest.mark.parametrize(
    ("options", "what"),
    [
        ("", "an observation of category 7, and its observation_space has 0 to 3"),
        ("wrong=-1", "an observation of category -1, and its observation_space has 0 to 3"),
        ("wrong=2, start=-2", "an observation of category 2, and its observation_space has -2 to 1"),
        ("nest=True", "an observation whose hand is of category 7, and its observation_space has 0 to 3"),
    ],
)
def test_a_category_that_the_space_does_not_have_names_the_environment_the_step_and_the_space(options, what, settings):
    env_id = f"ReverieWandering-v0({options})" if options else "ReverieWandering-v0"
    with pytest.raises(MisshapenStepError) as caught:
        act("dqn", env_id, **settings)
    crash = caught.value.crash
    assert (crash.env_id, crash.error, crash.step) == (env_id, what, 5)
    spec = describe(env_id, EnvSettings(**settings))
    evaluator = Evaluator(spec, 1)
    with pytest.raises(MisshapenStepError) as caught:
        evaluator.evaluate(lambda observations: np.zeros(len(observations), np.int64), seeds=(7,))
    assert (caught.value.crash.seed, caught.value.crash.step, caught.value.crash.error) == (7, 5, what)
