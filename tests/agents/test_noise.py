"""The noise of actors with continuous actions: its law, its correlation in time, and the actors that use it."""

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie import agents  # noqa: E402
from reverie.agents.core import Stopwatch  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402
from reverie.agents.noise import Exploration, Noise  # noqa: E402

PENDULUM = describe("Pendulum-v1")
OFF_POLICY = ("ddpg", "td3", "d4pg", "sac")


@pytest.mark.parametrize("theta", [1.0, 0.15])
def test_the_noise_has_its_deviation_and_forgets_at_its_rate(theta):
    noise, rng, steps = Noise((4, 2), 0.3, theta), np.random.default_rng(0), 5_000
    going = np.zeros(4, bool)
    x = np.stack([noise.draw(rng, going) for _ in range(steps)]).reshape(steps, -1)
    # As many independent draws as the process forgets over: (1 - r^2) / (1 + r^2) of them, r = 1 - theta.
    share = (1 - (1 - theta) ** 2) / (1 + (1 - theta) ** 2)
    bound = 5 * (2 / (x.size * share)) ** 0.5
    assert np.mean(x**2) == pytest.approx(0.09, rel=bound)
    kept = np.mean(x[1:] * x[:-1]) / np.mean(x**2)
    assert kept == pytest.approx(1 - theta, abs=bound)
    # The twins: a deviation and a rate that are off by two such bounds.
    assert np.mean(x**2) != pytest.approx(0.09 * (1 + 2.5 * bound), rel=bound)
    assert kept != pytest.approx(1 - theta - 2 * bound, abs=bound)
    assert bound < 0.15


def test_noise_restarts_when_an_environment_is_reset():
    noise, rng = Noise((2, 1), 1.0, 0.01), np.random.default_rng(0)
    x = np.stack([noise.draw(rng, np.array([False, True])) for _ in range(400)])[:, :, 0]
    one, other = (np.corrcoef(x[1:, i], x[:-1, i])[0, 1] for i in range(2))
    assert one > 0.9
    assert abs(other) < 5 / 400**0.5


def uniform_actions(theta, *, seed, steps=20_000):
    exploration, rng, going = Exploration((4, 2), theta), np.random.default_rng(seed), np.zeros(4, bool)
    return np.stack([exploration.uniform(rng, going) for _ in range(steps)]).reshape(steps, -1)


@pytest.mark.parametrize("theta", [1.0, 0.1])
def test_random_actions_are_uniform_with_any_correlation(theta):
    actions = uniform_actions(theta, seed=0)
    # As many independent draws as the process forgets over.
    count = actions.size * (1 - (1 - theta)) / (1 + (1 - theta))
    for bound in (-0.5, 0.0, 0.5):
        share = (1 + bound) / 2
        five_sigma = 5 * (share * (1 - share) / count) ** 0.5
        assert (actions < bound).mean() == pytest.approx(share, abs=five_sigma)
        assert (actions + 0.1 < bound).mean() != pytest.approx(share, abs=five_sigma), "the twin: off by 0.1"
    assert np.abs(actions).max() <= 1


def test_random_actions_keep_their_direction_for_a_while_if_asked_to():
    def turns(actions):
        return (np.sign(actions[1:]) != np.sign(actions[:-1])).mean()

    # Signs of two normal numbers with correlation r differ with probability arccos(r) / pi.
    for theta in (1.0, 0.1):
        actions, expected = uniform_actions(theta, seed=1), np.arccos(1 - theta) / np.pi
        five_sigma = 5 * (expected * (1 - expected) / actions.size) ** 0.5
        assert turns(actions) == pytest.approx(expected, abs=2 * five_sigma)
        assert turns(actions) != pytest.approx(np.arccos(0.9 * (1 - theta) - 0.05) / np.pi, abs=2 * five_sigma)


def test_a_theta_outside_of_its_range_is_refused():
    config = agents.find("sac").load_preset("Pendulum-v1").config
    for wrong in (0.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match=f"noise_theta is {wrong}, and must lie in"):
            dataclasses.replace(config, noise_theta=wrong)


@pytest.fixture
def lag_one(make_fake_replay):
    """A function that returns the correlation of an actor's action with its last one, in random steps."""

    def act(name, *, noise_theta, acts=600):
        agent = agents.find(name)
        config = agent.load_preset("Pendulum-v1").config
        config = dataclasses.replace(config, n_step=1, random_steps=acts + 1, noise_theta=noise_theta)
        replay = make_fake_replay(max_size=10_000)
        learner = agent.make_learner(PENDULUM, config, replay, seed=3, watch=Stopwatch())
        actor = agent.make_actor(PENDULUM, config, replay, learner, index=0, seed=4, watch=Stopwatch())
        for _ in range(acts):
            actor.act()
        actor.close()
        actions = np.concatenate([row["action"] for row in replay.writers[0].log]).ravel()
        return np.corrcoef(actions[1:], actions[:-1])[0, 1]

    return act


@pytest.mark.parametrize("name", OFF_POLICY)
def test_an_actors_random_actions_have_the_settings_correlation(name, lag_one):
    assert abs(lag_one(name, noise_theta=1.0)) < 5 / 600**0.5
    assert lag_one(name, noise_theta=0.05) > 0.7


@pytest.mark.parametrize("name", ["sac", "td3", "ddpg"])
def test_defaults_for_continuous_actions_explore_in_directions_that_last(name):
    """In tasks whose reward is far away, as MountainCarContinuous-v0, independent actions never find one."""
    found = agents.find(name).load_preset("MountainCarContinuous-v0")
    assert found.path.name == "continuous.toml"
    assert found.config.noise_theta < 0.2
    assert found.config.discount >= 0.99
    assert agents.find(name).load_preset("Pendulum-v1").config.noise_theta == 1.0, "presets of environments stay"
