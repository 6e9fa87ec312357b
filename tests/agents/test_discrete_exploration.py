"""Random actions of epsilon-greedy actors that last: their share of all steps, their length, and the actors."""

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie import agents  # noqa: E402
from reverie.agents.core import Stopwatch  # noqa: E402
from reverie.agents.discrete import EpsilonGreedyExploration  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402

GREEDY = 9
"""The greedy action among 0 to 9; so a tenth of the random ones is greedy as well."""


def chosen(hold, epsilons, *, steps=20_000, begins=False, seed=0):
    exploration, rng = EpsilonGreedyExploration(4, 10, hold), np.random.default_rng(seed)
    greedy, first = np.full(4, GREEDY), np.full(4, begins)
    return np.stack([exploration.choose(rng, greedy, epsilons, first) for _ in range(steps)])


@pytest.mark.parametrize("hold", [1.0, 4.0])
@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0])
def test_the_share_of_random_actions_is_epsilon_however_long_they_last(hold, epsilon):
    actions = chosen(hold, epsilon)
    expected = 0.9 * epsilon
    # As many independent steps as there are stretches of random ones, at most.
    five_sigma = 5 * (expected * (1 - expected) * 2 * hold / actions.size) ** 0.5
    assert (actions != GREEDY).mean() == pytest.approx(expected, abs=five_sigma)
    assert (actions != GREEDY).mean() != pytest.approx(expected - 2 * five_sigma, abs=five_sigma)
    counts = np.bincount(actions.ravel(), minlength=10)[:GREEDY]
    assert counts.min() > 0.5 * counts.max(), "each action has its share"


@pytest.mark.parametrize("hold", [1.0, 8.0])
def test_the_share_is_epsilon_from_the_first_step_of_an_episode_on(hold):
    epsilon, length, episodes = 0.1, 5, 4_000
    exploration, rng = EpsilonGreedyExploration(4, 10, hold), np.random.default_rng(0)
    steps = [
        exploration.choose(rng, np.full(4, GREEDY), epsilon, np.full(4, step % length == 0))
        for step in range(length * episodes)
    ]
    shares = (np.reshape(steps, (episodes, length, 4)) != GREEDY).mean(axis=(0, 2))
    expected = 0.9 * epsilon
    five_sigma = 5 * (expected * (1 - expected) / (4 * episodes)) ** 0.5
    assert shares == pytest.approx(expected, abs=five_sigma)
    assert five_sigma < expected / 5, "fewer at the start of an episode would be seen"


def test_random_actions_last_as_long_as_asked_and_end_with_the_episode():
    for hold in (1.0, 4.0):
        actions = chosen(hold, 1.0)
        repeated = (actions[1:] == actions[:-1]).mean()
        expected = 1 - 1 / hold + 0.1 / hold
        assert repeated == pytest.approx(expected, abs=5 * (hold * expected * (1 - expected) / actions.size) ** 0.5)
    fresh = chosen(4.0, 1.0, begins=True)
    assert (fresh[1:] == fresh[:-1]).mean() == pytest.approx(0.1, abs=5 * (0.09 / fresh.size) ** 0.5)


def test_each_environment_has_its_own_epsilon():
    explored = (chosen(4.0, np.array([0.0, 0.1, 0.5, 1.0])) != GREEDY).mean(axis=0)
    assert explored[0] == 0
    assert (np.diff(explored) > 0).all()


@pytest.mark.parametrize("name", ["dqn", "apex-dqn", "rainbow", "r2d2"])
def test_defaults_for_discrete_actions_explore_with_actions_that_last(name):
    """In tasks whose reward is far away, as MountainCar-v0, independent actions never find one."""
    found = agents.find(name).load_preset("MountainCar-v0")
    assert found.path.parts[-2:] == ("defaults", "discrete.toml")
    assert found.config.random_hold == 8
    assert agents.find(name).load_preset("CartPole-v1").config.random_hold == 1, "presets of environments stay"


def test_less_than_a_step_is_refused():
    config = agents.find("dqn").load_preset("CartPole-v1").config
    with pytest.raises(ValueError, match=r"random_hold is 0\.5, and must be at least 1"):
        dataclasses.replace(config, random_hold=0.5)


@pytest.mark.parametrize("name", ["dqn", "apex-dqn", "rainbow", "r2d2"])
def test_an_actors_random_actions_last_as_long_as_its_settings_have_it(name):
    """CartPole's two actions, all random: they change after a step with probability 1 / (2 hold)."""
    import reverie

    agent, spec = agents.find(name), describe("CartPole-v1")
    all_random = {
        "epsilon_start": 1.0,
        "epsilon_end": 1.0,
        "epsilon_base": 1.0,
        "noisy": False,
        "random_hold": 8.0,
        "learning_starts": 5_000,
        "n_step": 1,
    }
    config = agent.load_preset("CartPole-v1").config
    known = {field.name for field in dataclasses.fields(config)}
    config = dataclasses.replace(config, **{key: value for key, value in all_random.items() if key in known})
    server = reverie.Server(agent.make_tables(spec, config, seed=0), listen=False)
    client, role = server.client(), {"index": 0, "seed": 4, "watch": Stopwatch()}
    learner = agent.make_learner(spec, config, client, seed=3, watch=Stopwatch())
    actor = agent.make_actor(spec, config, client, learner, **role)
    taken, step = [], actor._envs.step
    actor._envs.step = lambda actions: (taken.append(np.array(actions)), step(actions))[1]
    for _ in range(300):
        actor.act()
    actor.close()
    server.stop()
    actions = np.stack(taken)
    changes = (actions[1:] != actions[:-1]).mean()
    assert changes < 0.2, "half of the steps where each action is drawn alone"
