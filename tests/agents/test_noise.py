"""The noise of actors: its law, its correlation in time, and the actors that use it."""

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie import agents  # noqa: E402
from reverie.agents.core import Stopwatch  # noqa: E402
from reverie.agents.distributions import DiagonalGaussian, gumbel_of  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402
from reverie.agents.noise import ActionNoise, NoiseExploration  # noqa: E402

PENDULUM = describe("Pendulum-v1")
OFF_POLICY = ("ddpg", "td3", "d4pg", "sac")


@pytest.mark.parametrize("theta", [1.0, 0.15])
def test_the_noise_has_its_deviation_and_forgets_at_its_rate(theta):
    noise, rng, steps = ActionNoise((4, 2), 0.3), np.random.default_rng(0), 5_000
    going = np.zeros(4, bool)
    x = np.stack([noise.draw(rng, going, theta) for _ in range(steps)]).reshape(steps, -1)
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
    noise, rng = ActionNoise((2, 1), 1.0), np.random.default_rng(0)
    x = np.stack([noise.draw(rng, np.array([False, True]), 0.01) for _ in range(400)])[:, :, 0]
    one, other = (np.corrcoef(x[1:, i], x[:-1, i])[0, 1] for i in range(2))
    assert one > 0.9
    assert abs(other) < 5 / 400**0.5


def test_noise_has_its_deviation_while_its_rate_changes():
    noise, rng, going = ActionNoise((4, 2), 0.3), np.random.default_rng(0), np.zeros(4, bool)
    thetas = np.where(np.arange(5_000) % 7 < 4, 0.15, 1.0)
    x = np.stack([noise.draw(rng, going, theta) for theta in thetas])
    bound = 5 * (2 / (x.size / 3)) ** 0.5
    assert np.mean(x**2) == pytest.approx(0.09, rel=bound)
    assert np.mean(x[thetas == 1.0] ** 2) == pytest.approx(0.09, rel=2 * bound)


def uniform_actions(theta, *, seed, steps=20_000):
    exploration, rng, going = NoiseExploration((4, 2)), np.random.default_rng(seed), np.zeros(4, bool)
    return np.stack([exploration.uniform(rng, going, theta) for _ in range(steps)]).reshape(steps, -1)


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


@pytest.mark.parametrize("name", ["sac", "ppo", "impala"])
def test_a_theta_outside_of_its_range_is_refused(name):
    agent = agents.find(name)
    config = agent.load_preset("CartPole-v1" if name == "impala" else "Pendulum-v1").config
    for wrong in (0.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match=f"noise_theta is {wrong}, and must lie in"):
            dataclasses.replace(config, noise_theta=wrong)


def correlation(actions):
    """The correlation of each action with the one before, in both halves."""
    halves = np.array_split(actions, 2)
    return [np.corrcoef(half[1:], half[:-1])[0, 1] for half in halves]


@pytest.fixture
def lag_one(make_fake_replay):
    """A function that returns the correlation of an actor's action with the one before, in both halves of the steps."""

    def act(name, *, acts=600, **settings):
        agent = agents.find(name)
        config = agent.load_preset("Pendulum-v1").config
        config = dataclasses.replace(config, n_step=1, random_steps=10 * acts, **settings)
        replay = make_fake_replay(max_size=10_000)
        learner = agent.make_learner(PENDULUM, config, replay, seed=3, watch=Stopwatch())
        actor = agent.make_actor(PENDULUM, config, replay, learner, index=0, seed=4, watch=Stopwatch())
        for _ in range(acts):
            actor.act()
        actor.close()
        actions = np.concatenate([row["action"] for row in replay.writers[0].log]).ravel()
        return correlation(actions)

    return act


@pytest.mark.parametrize("name", OFF_POLICY)
def test_an_actors_random_actions_have_the_settings_correlation(name, lag_one):
    assert np.abs(lag_one(name, noise_theta=1.0)).max() < 5 / 300**0.5
    assert min(lag_one(name, noise_theta=0.05)) > 0.7


@pytest.mark.parametrize("name", OFF_POLICY)
def test_actions_of_an_actor_last_for_the_first_steps_of_a_run_if_asked_to(name, lag_one):
    lasting, independent = lag_one(name, noise_theta=0.05, noise_theta_steps=300)
    assert lasting > 0.7
    assert abs(independent) < 5 / 300**0.5
    # Each of two actors takes half of the steps.
    lasting, independent = lag_one(name, noise_theta=0.05, noise_theta_steps=600, num_actors=2)
    assert lasting > 0.7
    assert abs(independent) < 5 / 300**0.5


@pytest.mark.parametrize("name", ["sac", "td3", "ddpg"])
def test_defaults_for_continuous_actions_explore_in_directions_that_last(name):
    """In tasks whose reward is far away, as MountainCarContinuous-v0, independent actions never find one."""
    found = agents.find(name).load_preset("MountainCarContinuous-v0")
    assert found.path.name == "continuous.toml"
    assert found.config.noise_theta < 0.2
    assert found.config.discount >= 0.99
    assert agents.find(name).load_preset("Pendulum-v1").config.noise_theta == 1.0, "presets of environments stay"


@pytest.mark.parametrize("seed", [0, 1])
def test_a_normal_number_becomes_a_gumbel_number_and_keeps_its_rank(seed):
    normal = np.random.default_rng(seed).standard_normal(20_000).astype(np.float32)
    gumbel = gumbel_of(normal)
    assert (np.argsort(gumbel, kind="stable") == np.argsort(normal, kind="stable")).all()
    # Standard Gumbel numbers have the mean 0.5772 (Euler's constant) and the variance pi^2 / 6.
    five_sigma = 5 * np.pi / 6**0.5 / 20_000**0.5
    assert gumbel.mean() == pytest.approx(np.euler_gamma, abs=five_sigma)
    assert normal.mean() != pytest.approx(np.euler_gamma, abs=five_sigma), "the twin: without the change of law"
    assert np.isfinite(gumbel_of(np.array([-9.0, 9.0], np.float32))).all()


UNROLLS = [("ppo", "CartPole-v1"), ("ppo", "Pendulum-v1"), ("impala", "CartPole-v1")]


def actions_of_unrolls(harness):
    """Actions `[T]` of one environment's unrolls and their log pi, about 800 steps without those of resets."""
    parts = [harness.batch() for _ in range(800 // harness.config.unroll_length)]
    steps = np.concatenate([part["is_step"][0] for part in parts])
    log_pi = "log_mu" if "log_mu" in parts[0] else "log_pi"
    actions, law = (np.concatenate([part[name][0] for part in parts])[steps] for name in ("action", log_pi))
    return actions.astype(float).ravel(), law


@pytest.mark.parametrize("lstm_units", [0, 8])
@pytest.mark.parametrize(("name", "env_id"), UNROLLS)
def test_actions_of_unrolls_last_if_asked_to_and_have_the_policys_law(make_unroll_harness, name, env_id, lstm_units):
    agent = agents.find(name)
    preset = agent.load_preset(env_id).config
    small = {"num_actors": 1, "envs_per_actor": 1, "unroll_length": 100, "lstm_units": lstm_units, "hidden": (8,)}
    small |= {"batch_size": 1, "queue_capacity": 1} if name == "impala" else {}
    kept = {}
    for theta in (1.0, 0.05):
        harness = make_unroll_harness(agent, dataclasses.replace(preset, noise_theta=theta, **small), env_id)
        actions, log_pi = actions_of_unrolls(harness)
        kept[theta] = np.corrcoef(actions[1:], actions[:-1])[0, 1]
        # The policy of a new network is uniform, or of deviation 1 around the middle.
        law = (
            -0.5 * actions**2 - 0.5 * np.log(2 * np.pi)
            if env_id == "Pendulum-v1"
            else np.full(len(actions), -np.log(2))
        )
        assert log_pi == pytest.approx(law, abs=0.1)
    assert abs(kept[1.0]) < 5 / 600**0.5
    assert kept[0.05] > 0.5


@pytest.mark.parametrize(("name", "env_id"), [("ppo", "Pendulum-v1"), ("impala", "CartPole-v1")])
def test_actions_of_unrolls_last_for_the_first_steps_of_a_run_if_asked_to(make_unroll_harness, name, env_id):
    agent = agents.find(name)
    small = {"num_actors": 1, "envs_per_actor": 1, "unroll_length": 100, "hidden": (8,)}
    small |= {"batch_size": 1, "queue_capacity": 1} if name == "impala" else {}
    config = dataclasses.replace(agent.load_preset(env_id).config, noise_theta=0.05, noise_theta_steps=400, **small)
    lasting, independent = correlation(actions_of_unrolls(make_unroll_harness(agent, config, env_id))[0])
    assert lasting > 0.5
    assert abs(independent) < 5 / 400**0.5


@pytest.mark.parametrize("name", ["apex-dpg", "sac", "ddpg", "ppo"])
def test_a_restored_actor_goes_on_with_the_noise_of_its_place_in_the_run(name, make_fake_replay, monkeypatch):
    """Noise of two actors lasts until they have taken 400 steps together, 200 each."""
    thetas, draw = [], ActionNoise.draw

    def recorded(noise, rng, begins, theta):
        thetas.append(theta)
        return draw(noise, rng, begins, theta)

    monkeypatch.setattr(ActionNoise, "draw", recorded)
    agent, small = agents.find(name), {"num_actors": 2, "noise_theta": 0.05, "noise_theta_steps": 400}
    config = dataclasses.replace(agent.load_preset("Pendulum-v1").config, **small)
    replay, found = make_fake_replay(max_size=10_000), {}
    learner = agent.make_learner(PENDULUM, config, replay, seed=3, watch=Stopwatch())
    for env_steps in (0, 199, 200, 10_000):
        actor = agent.make_actor(PENDULUM, config, replay, learner, index=1, seed=4, watch=Stopwatch())
        actor.load_state_dict({**actor.state_dict(), "env_steps": env_steps})
        thetas.clear()
        actor.act()
        actor.close()
        found[env_steps] = thetas[0] if thetas else 1.0  # without any, the policy draws independent numbers
    assert found == {0: 0.05, 199: 0.05, 200: 1.0, 10_000: 1.0}


def test_actions_that_last_are_spread_over_environments_as_independent_ones(make_unroll_harness):
    ppo, count = agents.find("ppo"), 256
    preset = ppo.load_preset("Pendulum-v1").config
    small = {"num_actors": 1, "envs_per_actor": count, "unroll_length": 2, "hidden": (8,)}
    spread = make_unroll_harness(ppo, dataclasses.replace(preset, noise_theta=0.05, **small), "Pendulum-v1")
    deviation = spread.batch()["action"][:, -1].std()
    assert deviation == pytest.approx(1.0, abs=5 / (2 * count) ** 0.5), "that of a new policy"


def test_the_noise_of_unrolls_starts_again_where_an_episode_begins(make_unroll_harness, monkeypatch):
    begun, draw = [], ActionNoise.draw
    monkeypatch.setattr(
        ActionNoise,
        "draw",
        lambda self, rng, begins, theta: begun.append(begins.copy()) or draw(self, rng, begins, theta),
    )
    ppo = agents.find("ppo")
    preset = ppo.load_preset("CartPole-v1").config
    small = {"num_actors": 1, "envs_per_actor": 2, "unroll_length": 64, "hidden": (8,), "noise_theta": 0.05}
    ended = make_unroll_harness(ppo, dataclasses.replace(preset, **small), "CartPole-v1").batch()["ended"]
    assert ended.any()
    assert (np.stack(begun)[1:65] == ended.T[: len(begun) - 1]).all()
    assert begun[0].all()


def test_draws_of_a_gaussian_are_functions_of_the_numbers_that_are_given():
    outputs, normal = torch.tensor([[1.0, -2.0, 0.0, np.log(2.0)]]), np.array([[0.5, -1.0]], np.float32)
    family = DiagonalGaussian(2)
    assert family.num_random == 2
    assert family.draw(outputs, None, normal).tolist() == [[1.5, -4.0]]


@pytest.mark.parametrize("env_id", ["MountainCar-v0", "MountainCarContinuous-v0"])
def test_ppos_defaults_have_actions_that_last(env_id):
    """Independent ones found no reward on MountainCar in 200,000 steps."""
    assert agents.find("ppo").load_preset(env_id).config.noise_theta < 0.2
    for known in ("CartPole-v1", "Pendulum-v1", "LunarLander-v3"):
        assert agents.find("ppo").load_preset(known).config.noise_theta == 1.0, "presets of environments stay"
