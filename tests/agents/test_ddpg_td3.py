import dataclasses
import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie.agents.core import Stopwatch  # noqa: E402
from reverie.agents.ddpg import agent as ddpg  # noqa: E402
from reverie.agents.ddpg import loss as ddpg_loss  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402
from reverie.agents.td3 import agent as td3  # noqa: E402
from reverie.agents.td3 import loss as td3_loss  # noqa: E402

PENDULUM = describe("Pendulum-v1")


def tensors(*arrays):
    return [torch.tensor(a) for a in arrays]


def test_ddpg_bootstraps_from_the_target_critic_unless_the_episode_terminated():
    assert ddpg_loss.critic_target(*tensors([1.0, 2.0], [0.5, 0.0], [4.0, 9.0])).tolist() == [3.0, 2.0]


def test_hand_worked_ddpg_losses():
    q, target = tensors([1.0, 5.0], [3.0, 2.0])
    assert ddpg_loss.critic_loss(q, target).item() == pytest.approx((4 + 9) / 2)
    assert ddpg_loss.policy_loss(q).item() == -3.0


def test_td3_takes_the_lesser_of_two_critics_at_each_item():
    q_t = torch.tensor([[4.0, 9.0, 1.0], [6.0, 7.0, 2.0]])
    target = td3_loss.clipped_double_q_target(*tensors([1.0, 1.0, 1.0], [0.5, 1.0, 0.0]), q_t)
    assert target.tolist() == [3.0, 8.0, 1.0]


def test_td3_clips_the_noise_and_then_the_action():
    a_t, noise = tensors([[0.0], [0.0], [0.9], [-0.2]], [[0.3], [-0.9], [0.4], [0.1]])
    assert td3_loss.smoothed(a_t, noise, 0.5)[:, 0].tolist() == pytest.approx([0.3, -0.5, 1.0, -0.1])


def test_hand_worked_td3_losses():
    q, target = torch.tensor([[1.0, 5.0], [2.0, 2.0]]), torch.tensor([3.0, 2.0])
    assert td3_loss.critics_loss(q, target).item() == pytest.approx((4 + 9) / 2 + (1 + 0) / 2)
    assert td3_loss.policy_loss(q).item() == -3.0  # of the first critic alone


@pytest.mark.parametrize(
    ("loss", "shape"), [(ddpg_loss.critic_loss, (5,)), (td3_loss.critics_loss, (2, 5))], ids=["ddpg", "td3"]
)
def test_gradients_are_those_of_finite_differences_and_none_reaches_the_target(loss, shape):
    rng = np.random.default_rng(0)
    q, target = (torch.tensor(rng.normal(size=s), requires_grad=True) for s in (shape, shape[-1:]))
    assert torch.autograd.gradcheck(lambda q: loss(q, target.detach()), q, eps=1e-6, atol=1e-7)
    loss(q, target).backward()
    assert target.grad is None


@pytest.fixture
def learner(make_fake_replay):
    """A function that makes a learner on random items, with changes to the Pendulum preset."""

    def make(agent, **changes):
        config = dataclasses.replace(agent.load_preset("Pendulum-v1").config, **changes)
        replay = make_fake_replay(max_size=1_000, priority_exponent=0.0)
        rng = np.random.default_rng(1)
        for _ in range(300):
            obs, next_obs = rng.normal(size=(2, 3)).astype(np.float32)
            item = {"obs": obs, "next_obs": next_obs, "weights_version": np.int64(0)}
            numbers = {"reward": np.float32(rng.normal()), "discount": np.float32(rng.choice([0.0, 0.9]))}
            replay.insert({**item, "action": rng.uniform(-1, 1, 1).astype(np.float32), **numbers}, priority=1.0)
        return agent.make_learner(PENDULUM, config, replay, seed=0, watch=Stopwatch()), config

    return make


@pytest.mark.long
@pytest.mark.parametrize("agent", [ddpg, td3], ids=lambda a: a.name)
def test_a_policy_update_raises_q_and_does_not_change_the_critic(agent, learner):
    """With critics that stand still, the mean q of the policy's own actions rises."""
    one, _ = learner(agent, critic_learning_rate=1e-30, policy_learning_rate=1e-2, target_rate=0.0)
    obs = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    critic = one._networks["critic" if agent is ddpg else "critics"]

    def value():
        with torch.no_grad():
            return critic.module(obs, one._networks["policy"].module(obs))[0].mean().item()

    before, weights = value(), critic.numpy()
    for _ in range(100):
        one.learn()
    assert value() > before
    assert (critic.numpy() == weights).all()


def test_td3_updates_policy_and_targets_once_per_policy_period(learner, networks_of):
    one, config = learner(td3, policy_period=3)
    states = [networks_of(one)]
    for _ in range(3):
        one.learn()
        states.append(networks_of(one))
    for name in ("policy", "policy_target", "critics_target"):
        assert [(a[name] != b[name]).any() for a, b in itertools.pairwise(states)] == [False, False, True]
    for before, after in itertools.pairwise(states):
        assert (before["critics"] != after["critics"]).any()
    expected = states[2]["critics_target"] + config.target_rate * (states[3]["critics"] - states[2]["critics_target"])
    assert states[3]["critics_target"] == pytest.approx(expected, abs=1e-6)
