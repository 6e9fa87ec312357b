"""Environments, vectors, wrappers and settings that hindsight takes, and errors for the others."""

import dataclasses
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from goal_counters import DQN, Counter, Harness, episode
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorRewardWrapper

import reverie
from reverie.agents import find, presets
from reverie.agents.env_settings import EnvSettings
from reverie.agents.environments import UnsupportedEnvironmentError
from reverie.agents.goal_functions import GoalCheck, GoalFunctions
from reverie.agents.goal_tasks import BIT_FLIPS, REACH
from reverie.agents.hindsight import without_returns
from reverie.agents.wrappers import ActionsFromZero, FlatActions
from reverie.runners import plan, train


@pytest.mark.parametrize(
    ("env_id", "settings", "message"),
    [
        ("CartPole-v1", {}, "her is set, and observations of CartPole-v1 have no observation"),
        ("ReverieCounter-v0", {"normalise_rewards": True}, "normalise_rewards is true, and her computes rewards"),
        ("ReverieCounter-v0", {"frame_stack": 2}, "frame_stack is 2, and her relabels single frames"),
    ],
)
def test_environments_that_cannot_be_relabelled_are_refused_before_a_run_starts(env_id, settings, message):
    config = dataclasses.replace(DQN.load_preset("CartPole-v1").config, her="future")
    with pytest.raises(UnsupportedEnvironmentError, match=message):
        plan(DQN, env_id, config=config, environment=EnvSettings(**settings))
    plan(DQN, "ReverieCounter-v0", config=config)


class Silent(Counter):
    compute_reward = None

    def step(self, action):
        self.steps += 1
        return self.observe(), 0.0, False, self.steps == self.length, {}


class WithoutRewards(Silent):
    def __getattribute__(self, name):
        if name == "compute_reward":
            raise AttributeError(name)
        return super().__getattribute__(name)


gymnasium.register("ReverieWithoutRewards-v0", WithoutRewards)


@pytest.mark.parametrize("name", ["sac", "td3", "ddpg", "d4pg"])
def test_an_agents_defaults_do_not_normalise_rewards_that_are_relabelled(name):
    agent = find(name)
    assert agent.load_preset(REACH).environment.normalise_rewards
    own = {"v_min": -100.0, "v_max": 0.0} if name == "d4pg" else {}
    config = dataclasses.replace(agent.load_preset(REACH).config, her="future", **own)
    topology = plan(agent, REACH, config=config)
    assert not topology.env.settings.normalise_rewards


def test_defaults_that_hindsight_leaves_out_are_noted_and_settings_of_the_user_are_kept():
    default = find("sac").load_preset(REACH)
    relabelled = presets.override(default, ["her=future"])
    fitting = without_returns(relabelled, ["her"])
    assert not fitting.environment.normalise_rewards
    assert fitting.note == f"{default.note}; rewards are not normalised, since her is set"
    assert without_returns(relabelled, ["her", "normalise_rewards"]) == relabelled
    assert without_returns(default, []) == default
    own = dataclasses.replace(relabelled, path=Path("own.toml"))
    assert without_returns(own, []) == own


def test_both_settings_of_a_user_are_refused_with_the_remedy():
    for given in ({"normalise_rewards": True}, {"environment": EnvSettings(normalise_rewards=True)}):
        with pytest.raises(UnsupportedEnvironmentError, match=r"set normalise_rewards=false, or leave her out"):
            train("sac", REACH, her="future", **given)


def test_an_environment_without_compute_reward_is_refused_by_name():
    with pytest.raises(UnsupportedEnvironmentError, match="ReverieWithoutRewards-v0 has no compute_reward"):
        Harness("dqn", "ReverieWithoutRewards-v0", her="future", learning_starts=10)


class NotFinite(Counter):
    def compute_reward(self, achieved, desired, info):
        with np.errstate(divide="ignore"):
            return 1 / np.abs(np.asarray(achieved) - desired)[..., 0]


class FewRewards(Counter):
    def compute_reward(self, achieved, desired, info):
        return -1.0


class NeedsInfo(Counter):
    def step(self, action):
        self.steps += 1
        return self.observe(), -1.0, False, self.steps == self.length, {}

    def compute_reward(self, achieved, desired, info):
        return -np.abs(achieved - desired)[..., 0] * info["scale"]


class BrokenEnds(Counter):
    def compute_terminated(self, achieved, desired, info):
        return achieved.missing == desired


def line_of(text):
    return 1 + next(i for i, line in enumerate(Path(__file__).read_text().splitlines()) if text in line)


BROKEN = [
    (NotFinite, "compute_reward returned inf for the achieved goal [100.] and the desired goal [100.]; it must return"),
    (FewRewards, "compute_reward returned the shape () for 2 goals; it must return one reward for each"),
    (NeedsInfo, f"{__file__}, line {line_of('* info[')}); it is called with arrays [N, ...] of goals and a list of"),
    (BrokenEnds, f"{__file__}, line {line_of('return achieved.missing')}); it is called with two goals and an empty"),
]


@pytest.mark.parametrize(("env", "text"), BROKEN, ids=lambda one: getattr(one, "__name__", ""))
def test_goal_functions_that_fail_are_refused_by_name_and_place_before_a_run_starts(env, text):
    config = dataclasses.replace(DQN.load_preset("CartPole-v1").config, her="future")
    with pytest.raises(UnsupportedEnvironmentError, match=f"^her is set, and .*{env.__name__} can") as caught:
        plan(DQN, env, config=config)
    assert text in str(caught.value)


class NearPoles(Counter):
    """The goal of its own episodes has finite rewards, and that of a step in which the place is 3 has not."""

    def compute_reward(self, achieved, desired, info):
        distance = np.abs(np.asarray(achieved) - desired)[..., 0]
        return np.where(np.asarray(desired)[..., 0] == 3, np.nan, -distance)


def test_a_reward_of_a_substitute_goal_that_is_not_finite_ends_the_run_with_both_goals():
    harness = Harness("dqn", NearPoles, her="future", n_step=1, learning_starts=10)
    message = r"NearPoles cannot be relabelled: compute_reward returned nan for .* the desired goal \[3\.\];"
    with pytest.raises(UnsupportedEnvironmentError, match=message):
        harness.act(30)


class BreaksLater(Counter):
    def compute_terminated(self, achieved, desired, info):
        if desired[0] == 3:
            raise RuntimeError("no such place")
        return False


def test_a_goal_function_that_raises_during_a_run_is_named_with_its_place():
    harness = Harness("dqn", BreaksLater, her="future", n_step=1, learning_starts=10)
    line = line_of('raise RuntimeError("no such place")')
    message = rf"compute_terminated of .*BreaksLater cannot be used: RuntimeError: no such place \(.*line {line}\)"
    with pytest.raises(UnsupportedEnvironmentError, match=message):
        harness.act(30)


class CannotReset(Counter):
    def reset(self, *, seed=None, options=None):
        raise RuntimeError("broken")


def test_an_environment_whose_reset_raises_is_left_to_the_run_which_reports_it():
    config = dataclasses.replace(DQN.load_preset("CartPole-v1").config, her="future")
    plan(DQN, CannotReset, config=config)


def in_a_list(num_envs, mode="NEXT_STEP"):
    return SyncVectorEnv([Counter] * num_envs, autoreset_mode=AutoresetMode[mode])


def without_a_list(num_envs):
    return AsyncVectorEnv([Counter] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


class TenthOfAll(VectorRewardWrapper):
    def rewards(self, rewards):
        return 0.1 * rewards


class SameOfAll(VectorRewardWrapper):
    def rewards(self, rewards):
        return 1.0 * rewards


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP", "DISABLED"])
@pytest.mark.parametrize("wrappers", [(), (SameOfAll,)])
def test_a_vector_with_a_list_of_environments_is_relabelled(mode, wrappers):
    env = f"{__name__}:in_a_list(mode={mode!r})"
    harness = Harness("dqn", env, wrappers, her="final", her_k=1, n_step=1, learning_starts=10)
    harness.act(40)
    data = harness.items()[0]
    other = data["obs"][:, 1] == 4.0
    assert (data["obs"][~other, 1] == 100.0).all()
    assert other.sum() > 50
    assert data["reward"].tolist() == (-np.abs(data["next_obs"][:, 0] - data["next_obs"][:, 1])).tolist()


def test_a_vector_without_a_list_of_environments_is_refused_before_a_run_starts():
    config = dataclasses.replace(DQN.load_preset("CartPole-v1").config, her="future")
    with pytest.raises(UnsupportedEnvironmentError, match="without_a_list is a vector without a list of its env"):
        plan(DQN, without_a_list, config=config)
    plan(DQN, in_a_list, config=config)
    plan(DQN, without_a_list, config=dataclasses.replace(config, her=""))
    with pytest.raises(UnsupportedEnvironmentError, match="ReverieWithoutRewards-v0 has no compute_reward"):
        plan(DQN, "ReverieWithoutRewards-v0", config=config)


class Tenth(gymnasium.RewardWrapper):
    def reward(self, reward):
        return 0.1 * reward


class TenthOfEach(Tenth):
    def compute_reward(self, achieved, desired, info):
        return 0.1 * self.env.get_wrapper_attr("compute_reward")(achieved, desired, info)


class InOtherUnits(gymnasium.ObservationWrapper):
    def observation(self, observation):
        return {name: part / 10 for name, part in observation.items()}


class EndsAtTwo(gymnasium.Wrapper):
    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated or obs["achieved_goal"][0] >= 2, truncated, info


@pytest.mark.parametrize(
    ("env", "wrapper", "message"),
    [
        (BIT_FLIPS, Tenth, r"gave -0\.1\d*, where compute_reward of the goals in its observation gives -1\.0 "),
        ("ReverieCounter-v0", InOtherUnits, "gave -99.0, where compute_reward .* gives -9.8"),
        ("ReverieBounded-v0", EndsAtTwo, "gave True, where compute_terminated .* gives False"),
        (in_a_list, TenthOfAll, "gave -9.9.*, where compute_reward .* gives -99.0"),
    ],
)
def test_a_wrapper_that_changes_what_goals_give_is_refused_by_name(env, wrapper, message):
    harness = Harness("dqn", env, (wrapper,), her="future", learning_starts=10)
    with pytest.raises(UnsupportedEnvironmentError, match=message) as caught:
        harness.act(30)
    assert f"through its wrappers {wrapper.__name__} gave" in str(caught.value)


class ShortActions(Counter):
    action_space = spaces.Discrete(2, dtype=np.int16)


gymnasium.register("ReverieShortActions-v0", ShortActions)


@pytest.mark.parametrize("own", [(), (ActionsFromZero,), (FlatActions,)])
def test_wrappers_of_actions_are_not_named_as_those_that_change_rewards(own):
    harness = Harness("dqn", "ReverieShortActions-v0", (Tenth, *own), her="future", learning_starts=10)
    with pytest.raises(UnsupportedEnvironmentError, match="through its wrappers Tenth gave"):
        harness.act(30)


def test_a_wrapper_that_gives_the_rewards_of_other_goals_itself_is_relabelled():
    harness = Harness("dqn", BIT_FLIPS, (TenthOfEach,), her="future", n_step=1, learning_starts=10)
    harness.act(80)
    rewards = harness.items()[0]["reward"]
    assert set(np.round(rewards, 6).tolist()) == {np.float32(-0.1).round(6), 0.0}


def test_one_step_in_a_thousand_may_differ_since_goals_are_rounded():
    steps, goals = list(episode(4)), np.array([[1], [2], [3], [4]], np.float32)
    steps[3] = steps[3]._replace(reward=-90.0)
    functions, check = GoalFunctions(Counter().compute_reward, None), GoalCheck("E-v0")
    desired = np.full_like(goals, 100)
    check.add(steps, goals, desired, functions)
    with pytest.raises(UnsupportedEnvironmentError, match=r"a step of E-v0 gave -90.0, .* \(2 of 8 steps differ\)"):
        check.add(steps, goals, desired, functions)
    check = GoalCheck("E-v0")
    for _ in range(1_000):
        check.add(steps[:3], goals[:3], desired[:3], functions)
    for _ in range(3):
        check.add(steps, goals, desired, functions)
    with pytest.raises(UnsupportedEnvironmentError, match="4 of 3,016 steps differ"):
        check.add(steps, goals, desired, functions)


class Stops(Counter):
    """Terminates within half a step of the goal, which is the place 3, or at the place 2, which is a failure."""

    def __init__(self, last=3):
        super().__init__(length=last, terminates=True)

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        return obs | {"desired_goal": np.array([3], np.float32)}, info

    def step(self, action):
        obs, _, *rest = super().step(action)
        obs["desired_goal"] = np.array([3], np.float32)
        return obs, float(self.compute_reward(obs["achieved_goal"], obs["desired_goal"], {})), *rest

    def compute_reward(self, achieved, desired, info):
        return (np.abs(np.asarray(achieved) - desired)[..., 0] < 0.5) - np.float32(1)


class Judges(Stops):
    def compute_terminated(self, achieved, desired, info):
        return bool(achieved[0] == desired[0])


def warnings_of(env, name="dqn"):
    harness = Harness(name, env, her="episode", n_step=1, learning_starts=10)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        harness.act(30)
    return [str(one.message) for one in found if issubclass(one.category, reverie.TrainingWarning)]


def test_an_environment_that_terminates_at_success_without_the_function_of_ends_is_warned_of_once():
    (text,) = warnings_of(Stops)
    assert "Stops terminates where its goal is achieved, and has no compute_terminated: " in text
    assert 'with her="episode" some end where they do not. Define compute_terminated(' in text


@pytest.mark.parametrize("env", [Judges, "ReverieCounter-v0", "ReverieTerminatedCounter-v0", REACH, BIT_FLIPS])
def test_ends_by_failure_or_with_the_function_of_ends_have_no_warning(env):
    assert warnings_of(env, "sac" if env == REACH else "dqn") == []
    assert warnings_of(f"{__name__}:Stops(last=2)") == []


def test_the_warning_is_also_for_rewards_that_are_distances():
    """Terminated at 0.2 from the goal, of an episode that began at 8."""
    goals = np.array([[2], [5], [9.8]], np.float32)
    steps = [step._replace(reward=place - 10.0) for step, place in zip(episode(3), goals[:, 0], strict=True)]
    steps[-1] = steps[-1]._replace(terminated=True)
    functions, check = GoalFunctions(Counter().compute_reward, None), GoalCheck("E-v0")
    with pytest.warns(reverie.TrainingWarning, match="E-v0 terminates where its goal is achieved"):
        check.add(steps, goals, np.full_like(goals, 10), functions)


def test_wrong_settings_are_refused_by_name():
    config = DQN.load_preset("CartPole-v1").config
    with pytest.raises(ValueError, match='her is \'past\', and must be "" or "future" or "final" or "episode"'):
        dataclasses.replace(config, her="past")
    with pytest.raises(ValueError, match="her_k is 0, and must be at least 1"):
        dataclasses.replace(config, her_k=0)
