"""Hindsight: goals in rows, the items of hand-worked episodes, the table's ratio, and what it is learnt with."""

import dataclasses
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorRewardWrapper

torch = pytest.importorskip("torch")

import reverie  # noqa: E402
from reverie.agents import find, presets  # noqa: E402
from reverie.agents.core import Stopwatch  # noqa: E402
from reverie.agents.env_settings import EnvSettings  # noqa: E402
from reverie.agents.environments import UnsupportedEnvironmentError, describe  # noqa: E402
from reverie.agents.goal_tasks import BIT_FLIPS, REACH, BitFlips  # noqa: E402
from reverie.agents.hindsight import EpisodeStep, GoalCheck, GoalFunctions, GoalRows, Hindsight, without_returns  # noqa: E402
from reverie.agents.observations import pack, part_of  # noqa: E402
from reverie.agents.wrappers import ActionsFromZero, FlatActions  # noqa: E402
from reverie.runners import plan, train  # noqa: E402

DQN = find("dqn")


class Counter(gymnasium.Env):
    """The place is the number of steps, times the action's sign; the goal is 100. The reward is minus the distance."""

    action_space = spaces.Discrete(2)
    place = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    observation_space = spaces.Dict({"observation": place, "achieved_goal": place, "desired_goal": place})

    def __init__(self, length=4, terminates=False):
        self.length, self.terminates = length, terminates

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        over = self.steps == self.length
        reward = self.compute_reward(np.array([self.steps]), np.array([100]), {})
        return self.observe(), float(reward), over and self.terminates, over and not self.terminates, {}

    def compute_reward(self, achieved, desired, info):
        return -np.abs(np.asarray(achieved) - desired)[..., 0]

    def observe(self):
        here = np.array([self.steps], np.float32)
        return {"observation": here * 10, "achieved_goal": here, "desired_goal": np.array([100], np.float32)}


class Bounded(Counter):
    """The same, and an episode ends where the goal is achieved."""

    def compute_terminated(self, achieved, desired, info):
        assert np.shape(achieved) == (1,), "one step"
        return bool(achieved[0] == desired[0])


class Mixed(Counter):
    """Observations of several dtypes, whose goals are categories that begin at 5."""

    goal = spaces.Discrete(50, start=5)
    observation_space = spaces.Dict({"observation": Counter.place, "achieved_goal": goal, "desired_goal": goal})

    def observe(self):
        return {
            "observation": np.array([self.steps], np.float32) * 10,
            "achieved_goal": self.steps + 5,
            "desired_goal": 40,
        }

    def compute_reward(self, achieved, desired, info):
        return -np.abs(np.asarray(achieved) - desired)


for _class in (Counter, Bounded, Mixed):
    gymnasium.register(f"Reverie{_class.__name__}-v0", _class)
gymnasium.register("ReverieTerminatedCounter-v0", Counter, kwargs={"terminates": True})
COUNTER = describe("ReverieCounter-v0")


def rows(*places, goal=100.0):
    """Rows as tables have them: achieved, desired, observation."""
    return np.array([[place, goal, 10.0 * place] for place in places], np.float32)


def episode(length, *, terminated=False):
    for t in range(length):
        yield EpisodeStep(*rows(t), t % 2, t - 99.0, *rows(t + 1), terminated and t == length - 1, 7)


def relabelled(strategy, k=1, *, n=1, discount=0.5, length=4, env=Counter, terminated=False, seed=0):
    config = dataclasses.replace(
        DQN.load_preset("CartPole-v1").config, her=strategy, her_k=k, n_step=n, discount=discount
    )
    hindsight = Hindsight(COUNTER, config, 1, np.random.default_rng(seed))
    made = env()
    functions = GoalFunctions(made.compute_reward, getattr(made, "compute_terminated", None))
    for i, step in enumerate(episode(length, terminated=terminated)):
        hindsight.add(0, step, ended=i == length - 1, functions=functions)
    taken = []
    while (items := hindsight.take()) is not None:
        assert len(items["reward"]) <= k
        taken.append(items)
    return {name: np.concatenate([items[name] for items in taken]) for name in taken[0]}


def test_the_final_goal_gives_each_step_of_a_hand_worked_episode_its_reward():
    items = relabelled("final")
    assert items["obs"].tolist() == rows(0, 1, 2, 3, goal=4.0).tolist()
    assert items["next_obs"].tolist() == rows(1, 2, 3, 4, goal=4.0).tolist()
    assert items["reward"].tolist() == [-3.0, -2.0, -1.0, 0.0]
    assert items["discount"].tolist() == [0.5] * 4
    assert items["action"].tolist() == [0, 1, 0, 1]
    assert items["weights_version"].tolist() == [7] * 4
    assert {str(items[name].dtype) for name in ("obs", "reward", "discount")} == {"float32"}


def test_items_of_several_steps_add_the_rewards_of_their_goal_up_to_the_episodes_end():
    items = relabelled("final", n=3)
    assert items["reward"].tolist() == [-3 - 1 - 0.25, -2 - 0.5, -1.0, 0.0]
    assert items["discount"].tolist() == [0.125, 0.125, 0.25, 0.5]
    assert items["next_obs"].tolist() == rows(3, 4, 4, 4, goal=4.0).tolist()


def test_a_step_that_terminated_has_no_discount_with_another_goal_either():
    assert relabelled("final", terminated=True)["discount"].tolist() == [0.5, 0.5, 0.5, 0.0]
    assert relabelled("final", n=2, terminated=True)["discount"].tolist() == [0.25, 0.25, 0.0, 0.0]


def test_an_environment_that_judges_ends_by_the_goal_ends_items_where_the_other_goal_is_achieved():
    """Places 1, 2, 3, 4; the goal of the first step is 2, as the seed has it."""
    for seed in range(20):
        items = relabelled("future", n=3, env=Bounded, seed=seed)
        goal = int(items["obs"][0, 1])
        steps = min(goal, 3)
        assert items["reward"][0] == sum(-(0.5**j) * (goal - 1 - j) for j in range(steps))
        assert items["discount"][0] == (0.0 if goal <= 3 else 0.125)
        assert items["next_obs"][0].tolist() == rows(steps, goal=goal)[0].tolist()
        assert items["discount"][3] == 0.0, "the last step achieves its own goal"
    assert relabelled("final", env=Bounded)["discount"].tolist() == [0.5, 0.5, 0.5, 0.0]
    assert relabelled("final", env=Bounded, terminated=True)["discount"].tolist() == [0.5, 0.5, 0.5, 0.0]


def test_future_goals_are_drawn_evenly_from_the_steps_own_and_later_ones_and_episode_goals_from_all():
    count = 4_000
    future, whole = (relabelled(strategy, count)["obs"][:, :2] for strategy in ("future", "episode"))
    for found, lowest in ((future, lambda t: t + 1), (whole, lambda t: 1)):
        for t in range(4):
            goals = found[found[:, 0] == t, 1]
            assert len(goals) == count
            possible = np.arange(lowest(t), 5)
            share = 1 / len(possible)
            for goal in range(1, 5):
                expected = count * share if goal in possible else 0
                bound = 5 * np.sqrt(count * share * (1 - share))
                assert abs((goals == goal).sum() - expected) <= bound, (t, goal)


def test_items_wait_until_steps_of_the_next_episode_take_them():
    config = dataclasses.replace(DQN.load_preset("CartPole-v1").config, her="future", her_k=3)
    hindsight = Hindsight(COUNTER, config, 2, np.random.default_rng(0))
    functions = GoalFunctions(Counter().compute_reward, None)
    most = 0
    for length in (5, 2, 9, 1, 1, 4, 9, 9):
        for i, step in enumerate(episode(length)):
            for env in (0, 1):
                hindsight.add(env, step, ended=i == length - 1, functions=functions)
            most = max(most, hindsight.num_waiting)
            items = hindsight.take()
            assert items is None or len(items["reward"]) <= 6
    assert most <= 3 * 2 * 9
    hindsight.add(0, next(episode(1)), ended=False, functions=functions)
    hindsight.abandon()
    while hindsight.take() is not None:
        pass
    hindsight.add(0, next(episode(1)), ended=True, functions=functions)
    assert hindsight.num_waiting == 3, "only the step after the crash"


def test_goals_are_found_in_rows_of_bytes_and_categories_begin_where_the_environment_begins():
    spec, env = describe("ReverieMixed-v0"), Mixed()
    assert spec.obs_dtype == "uint8"
    seen = [env.reset()[0]]
    for env.steps in (1, 2):
        seen.append(env.observe())
    packed = np.stack([pack(spec.leaves, [np.asarray(part_of(one, leaf)) for leaf in spec.leaves]) for one in seen])
    goals = GoalRows(spec)
    assert goals.original(goals.achieved(packed)).tolist() == [5, 6, 7]
    relabelled_rows = goals.with_goals(packed, goals.achieved(packed)[[2, 2, 0]])
    wanted = [one | {"desired_goal": goal} for one, goal in zip(seen, (7, 7, 5), strict=True)]
    parts = [np.stack([np.asarray(part_of(one, leaf)) for one in wanted]) for leaf in spec.leaves]
    assert (relabelled_rows == pack(spec.leaves, parts)).all()
    assert goals.original(goals.achieved(packed)).tolist() == [5, 6, 7], "the rows are copies"


class Stage:
    """An actor on a table of its own whose limiter admits all."""

    def __init__(self, name, env, wrappers=(), **changes):
        agent, spec = find(name), describe(env, EnvSettings(wrappers=wrappers))
        config = dataclasses.replace(agent.load_preset(spec.env_id).config, num_actors=1, envs_per_actor=2, **changes)
        (table,) = agent.make_tables(spec, config, seed=0)
        table = table.replace(rate_limiter=reverie.rate_limiters.MinSize(1))
        self.server = reverie.Server([table], listen=False)
        self.client, self.config, self.needs = self.server.client(), config, agent.needs(config)
        made = {"seed": 0, "watch": Stopwatch()}
        learner = agent.make_learner(spec, config, self.client, **made)
        self.actor = agent.make_actor(spec, config, self.client, learner, index=0, **made)

    def act(self, times):
        for _ in range(times):
            self.actor.act()

    def items(self):
        self.actor.settle()
        self.actor._writer.flush()
        found = self.client.query("replay")
        return self.client.get("replay", found.key).data, found


@pytest.mark.parametrize(("name", "env_id"), [("dqn", "ReverieCounter-v0"), ("rainbow", "ReverieCounter-v0")])
def test_the_items_of_an_actor_are_its_transitions_and_those_of_other_goals(name, env_id):
    stage = Stage(name, env_id, her="future", her_k=4, n_step=1, learning_starts=10)
    acts = 40
    sizes = [0]
    for _ in range(acts):
        stage.actor.act()
        stage.actor.settle()
        sizes.append(stage.client.info().tables["replay"].current_size)
    assert max(np.diff(sizes)) == stage.needs.inserts_per_act == 2 * (1 + 4)
    data, _ = stage.items()
    real = data["obs"][:, 1] == 100.0
    episodes = acts // 5  # of four steps and a reset, in two environments
    assert real.sum() == 2 * 4 * episodes
    assert (~real).sum() == 4 * 2 * 4 * (episodes - 1) + 4 * 2 * 2, "half of those of the last episodes wait"
    assert (data["obs"][~real, 1] > data["obs"][~real, 0]).all()
    expected = -np.abs(data["next_obs"][:, 0] - data["next_obs"][:, 1])
    assert data["reward"].tolist() == expected.tolist()
    assert (data["next_obs"][:, 1] == data["obs"][:, 1]).all()
    assert (data["next_obs"][:, 0] == data["obs"][:, 0] + 1).all(), "never over a reset"


@pytest.mark.parametrize("name", ["sac", "td3", "ddpg", "d4pg"])
@pytest.mark.parametrize("prioritized", [False, True])
def test_agents_with_continuous_actions_relabel_too_and_new_items_have_the_largest_priority(name, prioritized):
    stage = Stage(name, REACH, her="final", her_k=2, n_step=1, prioritized=prioritized, learning_starts=10)
    stage.act(80)
    data, found = stage.items()
    achieved, desired = data["next_obs"][:, :3], data["next_obs"][:, 3:6]
    reached = np.linalg.norm(achieved - desired, axis=1) <= 0.1
    assert data["reward"].tolist() == (reached - 1.0).tolist()
    assert reached.sum() > 10, "each episode reaches its last place"
    assert data["action"].shape == (len(reached), 3)
    assert set(found.priority.tolist()) == {1.0}


def test_without_the_setting_an_actor_makes_its_transitions_only():
    stage = Stage("dqn", "ReverieCounter-v0", n_step=1, learning_starts=10)
    stage.act(40)
    assert (stage.items()[0]["obs"][:, 1] == 100.0).all()
    assert stage.needs.inserts_per_act == 2
    assert dataclasses.replace(stage.config, her="final", her_k=3).inserts_per_act == 2 + 6


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
    config = dataclasses.replace(agent.load_preset(REACH).config, her="future")
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
        Stage("dqn", "ReverieWithoutRewards-v0", her="future", learning_starts=10)


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
    stage = Stage("dqn", env, wrappers, her="final", her_k=1, n_step=1, learning_starts=10)
    stage.act(40)
    data = stage.items()[0]
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
    stage = Stage("dqn", env, (wrapper,), her="future", learning_starts=10)
    with pytest.raises(UnsupportedEnvironmentError, match=message) as caught:
        stage.act(30)
    assert f"through its wrappers {wrapper.__name__} gave" in str(caught.value)


class ShortActions(Counter):
    action_space = spaces.Discrete(2, dtype=np.int16)


gymnasium.register("ReverieShortActions-v0", ShortActions)


@pytest.mark.parametrize("own", [(), (ActionsFromZero,), (FlatActions,)])
def test_wrappers_of_actions_are_not_named_as_those_that_change_rewards(own):
    stage = Stage("dqn", "ReverieShortActions-v0", (Tenth, *own), her="future", learning_starts=10)
    with pytest.raises(UnsupportedEnvironmentError, match="through its wrappers Tenth gave"):
        stage.act(30)


def test_a_wrapper_that_gives_the_rewards_of_other_goals_itself_is_relabelled():
    stage = Stage("dqn", BIT_FLIPS, (TenthOfEach,), her="future", n_step=1, learning_starts=10)
    stage.act(80)
    rewards = stage.items()[0]["reward"]
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


def test_wrong_settings_are_refused_by_name():
    config = DQN.load_preset("CartPole-v1").config
    with pytest.raises(ValueError, match='her is \'past\', and must be "" or "future" or "final" or "episode"'):
        dataclasses.replace(config, her="past")
    with pytest.raises(ValueError, match="her_k is 0, and must be at least 1"):
        dataclasses.replace(config, her_k=0)


def test_bits_that_match_the_goal_end_an_episode_and_other_steps_cost_one():
    env = BitFlips(num_bits=4)
    obs, _ = env.reset(seed=3)
    different = np.flatnonzero(obs["observation"] != obs["desired_goal"])
    assert len(different) > 0
    results = [env.step(int(bit)) for bit in different]
    assert [result[1] for result in results] == [-1.0] * (len(different) - 1) + [0.0]
    assert [result[2] for result in results] == [False] * (len(different) - 1) + [True]
    env.reset(seed=3)
    same = int(np.flatnonzero(obs["observation"] == obs["desired_goal"])[0]) if len(different) < 4 else 0
    cut = [env.step(same)[3] for _ in range(4)]
    assert cut == [False, False, False, True]


def bit_flips(her, seed, steps=4_500):
    """The mean greedy return of 50 episodes of DQN, which makes as many updates with hindsight as without."""
    preset = DQN.load_preset(BIT_FLIPS)
    items_per_step = 1 + 4 * bool(her)
    config = dataclasses.replace(
        preset.config, her=her, samples_per_insert=32.0 / items_per_step, n_step=1, random_hold=1.0
    )
    run = dataclasses.replace(
        preset.run,
        target_return=None,
        max_env_steps=steps,
        evaluate_every=steps,
        screening_episodes=1,
        confirmation_episodes=50,
    )
    return train(DQN, BIT_FLIPS, run=run, config=config, seed=seed).evaluation.mean_return


@pytest.mark.long
def test_with_hindsight_bits_are_flipped_to_the_goal_and_without_they_are_not():
    """On average 6 of 12 bits are wrong: returns of -5 are the best, and -12 those of episodes without success."""
    assert bit_flips("future", 1) > -8
    assert bit_flips("", 1) < -11


@pytest.mark.long
def test_actors_in_processes_of_their_own_relabel_too():
    """The table has five items for each step, except for the steps that wait in actors."""
    preset = DQN.load_preset(BIT_FLIPS)
    run = dataclasses.replace(
        preset.run,
        target_return=None,
        max_env_steps=1_500,
        evaluate_every=1_500,
        screening_episodes=1,
        confirmation_episodes=1,
    )
    config = dataclasses.replace(preset.config, her="future", samples_per_insert=2.0, num_actors=2)
    result = train(DQN, BIT_FLIPS, run=run, config=config, runner="process")
    assert 4 * result.env_steps < result.replay["inserts"] < 5.1 * result.env_steps
    assert result.learner["updates"] > 20
