"""D4PG: its losses, its updates, and what it learns."""

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie.agents import find  # noqa: E402
from reverie.agents.d4pg.loss import critic_loss, policy_loss  # noqa: E402
from reverie.agents.d4pg.networks import make_critic  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402
from reverie.agents.goal_tasks import REACH  # noqa: E402
from reverie.runners import train  # noqa: E402

D4PG = find("d4pg")
CONFIG = D4PG.load_preset("Pendulum-v1").config
SPEC = describe("Pendulum-v1")


def double(*arrays):
    return [torch.tensor(one, dtype=torch.float64) for one in arrays]


def test_a_hand_worked_critic_loss():
    # Support -2, -1, 0. The target of a sure 0 is r = -1; that of a sure -2 is -1 + 0.5 * -2 = -2.
    p = np.array([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]])
    p_t = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    arguments = double(np.log(p), [-1.0, -1.0], [0.9, 0.5], p_t)
    found = critic_loss(*arguments, None, v_min=-2.0, v_max=0.0)
    losses = [-np.log(0.5), -np.log(0.6)]
    assert found.errors.tolist() == pytest.approx(losses), "of a sure target the divergence is the cross-entropy"
    assert found.loss.item() == pytest.approx(np.mean(losses))
    weights = double([3.0, 1.0])[0]
    assert critic_loss(*arguments, weights, v_min=-2.0, v_max=0.0).loss.item() == pytest.approx(
        (3 * losses[0] + losses[1]) / 2
    )
    assert policy_loss(double([1.0, 4.0])[0]).item() == -2.5


def test_q_values_are_the_means_of_the_critics_distributions():
    config = dataclasses.replace(CONFIG, v_min=-3.0, v_max=1.0, num_atoms=5, critic_hidden=(8,))
    critic = make_critic(SPEC, config, seed=0, trainable=False).module
    obs, actions = torch.randn(6, 3), torch.rand(6, 1)
    p = critic(obs, actions).exp()
    torch.testing.assert_close(p.sum(dim=1), torch.ones(6))
    torch.testing.assert_close(critic.q_values(obs, actions), (p * torch.tensor([-3.0, -2.0, -1.0, 0.0, 1.0])).sum(1))


def test_a_policy_update_raises_q_and_does_not_change_the_critic(make_learner):
    one = make_learner(
        "d4pg", critic_learning_rate=1e-30, policy_learning_rate=1e-2, target_period=1_000, target_rate=0.0
    )
    obs = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))

    def value():
        with torch.no_grad():
            return one._critic.module.q_values(obs, one._policy.module(obs)).mean().item()

    before, weights = value(), one._critic.numpy()
    for _ in range(50):
        one.learn()
    assert value() > before
    assert (one._critic.numpy() == weights).all()


def test_targets_are_copied_every_target_period_or_follow_by_a_rate(make_learner, networks_of):
    one = make_learner("d4pg", target_period=3, target_rate=0.0)
    first = networks_of(one)
    for update in range(3):
        assert all((networks_of(one)[name] == first[name]).all() for name in ("policy_target", "critic_target")), update
        one.learn()
    now = networks_of(one)
    for name in ("policy", "critic"):
        assert (now[f"{name}_target"] == now[name]).all()
    other = make_learner("d4pg", target_rate=0.25)
    before = networks_of(other)
    other.learn()
    after = networks_of(other)
    for name in ("policy", "critic"):
        expected = before[f"{name}_target"] + 0.25 * (after[name] - before[f"{name}_target"])
        np.testing.assert_allclose(after[f"{name}_target"], expected, atol=1e-6)


def test_priorities_are_a_setting_and_are_the_divergences(make_learner):
    assert not make_learner("d4pg")._client.updates
    alike, drawn = make_learner("d4pg"), make_learner("d4pg", prioritized=True)
    alike.learn()
    drawn.learn()
    assert not alike._client.updates
    ((keys, priorities),) = drawn._client.updates
    assert len(keys) == 32
    assert (priorities > 0).all()
    assert len(set(priorities.tolist())) > 16
    assert drawn._priority_unit() == 1.0


def test_bounds_that_are_none_are_refused_by_name():
    with pytest.raises(ValueError, match=r"v_min is 0.0 and v_max -1.0: set the least and the largest return"):
        dataclasses.replace(CONFIG, v_min=0.0, v_max=-1.0)


def test_an_environment_without_a_preset_has_bounds_for_normalised_rewards():
    preset = D4PG.load_preset("MountainCarContinuous-v0")
    assert preset.path.stem == "continuous"
    assert preset.environment.normalise_rewards
    assert (preset.config.v_min, preset.config.v_max) == (-20.0, 20.0)


@pytest.mark.long
def test_it_learns_to_swing_a_pendulum_up():
    """A mean greedy return of -600 in 20 episodes, within 6,000 steps; random actions have about -1,200."""
    preset = D4PG.load_preset("Pendulum-v1")
    run = dataclasses.replace(
        preset.run,
        target_return=-600.0,
        max_env_steps=6_000,
        evaluate_every=500,
        screening_episodes=5,
        confirmation_episodes=20,
    )
    result = train(D4PG, "Pendulum-v1", run=run, config=dataclasses.replace(CONFIG, random_steps=1_500), seed=1)
    assert result.confirmed, [point.mean_return for point in result.curve]


@pytest.mark.long
def test_its_actors_run_in_processes_of_their_own():
    preset = D4PG.load_preset("Pendulum-v1")
    run = dataclasses.replace(
        preset.run,
        target_return=None,
        max_env_steps=1_500,
        evaluate_every=1_500,
        screening_episodes=1,
        confirmation_episodes=1,
    )
    config = dataclasses.replace(CONFIG, num_actors=2, samples_per_insert=8.0, prioritized=True)
    result = train(D4PG, "Pendulum-v1", run=run, config=config, runner="process")
    assert result.learner["updates"] > 20
    assert result.learner["priorities_applied"] > 20 * 32


def layers(space):
    return torch.nn.Flatten()


@pytest.mark.parametrize(
    ("env_id", "changes", "environment"),
    [
        ("MountainCarContinuous-v0", {}, {"network": layers}),
        ("MountainCarContinuous-v0", {}, {"normalise_rewards": False}),
        (REACH, {"her": "future"}, {}),
    ],
)
def test_bounds_in_deviations_are_refused_for_rewards_that_are_not_normalised(env_id, changes, environment):
    def started(**bounds):
        return train("d4pg", env_id, max_env_steps=10, **changes, **environment, **bounds)

    message = r"v_min \(-20\) and v_max \(20\) are the preset's bounds in deviations of returns, .* not normalised: set"
    with pytest.raises(ValueError, match=message):
        started()
    assert started(v_min=-100.0, v_max=0.0).env_steps >= 10


def test_bounds_of_raw_returns_are_refused_for_rewards_that_are_normalised():
    with pytest.raises(ValueError, match=r"v_min \(-600\) .* bounds of raw rewards, and the rewards .* are normalised"):
        train("d4pg", "Pendulum-v1", max_env_steps=10, normalise_rewards=True)
