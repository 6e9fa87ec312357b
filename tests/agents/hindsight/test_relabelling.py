"""Goals in rows, the items of hand-worked episodes, and the items that actors make of theirs."""

import dataclasses

import numpy as np
import pytest
from goal_counters import COUNTER, DQN, Bounded, Counter, Harness, Mixed, episode, rows

from reverie.agents.environments import describe
from reverie.agents.goal_functions import GoalFunctions
from reverie.agents.goal_tasks import REACH
from reverie.agents.hindsight import GoalRows, Hindsight
from reverie.agents.observations import pack, part_of


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


@pytest.mark.parametrize(("name", "env_id"), [("dqn", "ReverieCounter-v0"), ("rainbow", "ReverieCounter-v0")])
def test_the_items_of_an_actor_are_its_transitions_and_those_of_other_goals(name, env_id):
    harness = Harness(name, env_id, her="future", her_k=4, n_step=1, learning_starts=10)
    acts = 40
    sizes = [0]
    for _ in range(acts):
        harness.actor.act()
        harness.actor.settle()
        sizes.append(harness.client.info().tables["replay"].current_size)
    assert max(np.diff(sizes)) == harness.needs.inserts_per_act == 2 * (1 + 4)
    data, _ = harness.items()
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
    harness = Harness(name, REACH, her="final", her_k=2, n_step=1, prioritized=prioritized, learning_starts=10)
    harness.act(80)
    data, found = harness.items()
    achieved, desired = data["next_obs"][:, :3], data["next_obs"][:, 3:6]
    reached = np.linalg.norm(achieved - desired, axis=1) <= 0.1
    assert data["reward"].tolist() == (reached - 1.0).tolist()
    assert reached.sum() > 10, "each episode reaches its last place"
    assert data["action"].shape == (len(reached), 3)
    assert set(found.priority.tolist()) == {1.0}


def test_without_the_setting_an_actor_makes_its_transitions_only():
    harness = Harness("dqn", "ReverieCounter-v0", n_step=1, learning_starts=10)
    harness.act(40)
    assert (harness.items()[0]["obs"][:, 1] == 100.0).all()
    assert harness.needs.inserts_per_act == 2
    assert dataclasses.replace(harness.config, her="final", her_k=3).inserts_per_act == 2 + 6
