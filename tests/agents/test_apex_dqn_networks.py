import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie.agents.apex_dqn import agent as apex_dqn  # noqa: E402
from reverie.agents.apex_dqn.networks import DuelingHead, GreedyPolicy, make_network  # noqa: E402
from reverie.agents.core import Weights  # noqa: E402
from reverie.agents.environments import UnsupportedEnvironmentError, describe  # noqa: E402
from reverie.agents.flat import clip_grad_norm_  # noqa: E402


@pytest.fixture(scope="module")
def cartpole():
    return describe("CartPole-v1"), apex_dqn.load_preset("CartPole-v1").config


def test_the_mean_of_the_dueling_q_values_is_the_value():
    head = DuelingHead(5, 4)
    features = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    raw = head.linear(features)
    q = head(features)
    assert torch.allclose(q.mean(dim=1), raw[:, 0], atol=1e-6)
    assert torch.allclose(q - q.mean(dim=1, keepdim=True), raw[:, 1:] - raw[:, 1:].mean(dim=1, keepdim=True), atol=1e-6)


def test_a_hand_worked_dueling_head_gives_its_q_values():
    head = DuelingHead(1, 3)
    with torch.no_grad():
        head.linear.weight.copy_(torch.tensor([[10.0], [1.0], [2.0], [6.0]]))
        head.linear.bias.zero_()
    # Each value is a sum of four terms: the value, and the advantages times 2/3 or -1/3. Their magnitudes add up to 30
    # at most (20 + 2/3 * 12 + 1/3 * (4 + 2)). In whatever order a processor adds n terms, their sum is off by less than
    # n times the spacing of float32 times that (Higham 2002, section 4.2); one more is for the rounded 1/3.
    bound = (4 + 1) * torch.finfo(torch.float32).eps * 30
    q = head(torch.tensor([[1.0], [2.0]])).detach().numpy()
    assert q == pytest.approx(np.array([[8.0, 9.0, 13.0], [16.0, 18.0, 26.0]]), rel=0, abs=bound)


def test_a_seed_gives_its_weights_and_leaves_the_global_random_state_alone(cartpole):
    before = torch.get_rng_state()
    one, same, other = (make_network(*cartpole, seed=s, trainable=False).numpy() for s in (1, 1, 2))
    assert (one == same).all()
    assert (one != other).any()
    assert (torch.get_rng_state() == before).all()


def test_gradients_of_the_module_arrive_in_the_flat_vector(cartpole):
    network = make_network(*cartpole, seed=0, trainable=True)
    network.module(torch.ones(3, 4)).sum().backward()
    by_parameter = torch.cat([p.grad.reshape(-1) for p in network.module.parameters()])
    assert (by_parameter != 0).any()
    assert torch.equal(network.flat.grad, by_parameter)


def test_clipping_scales_to_the_norm_and_leaves_a_smaller_gradient_alone(cartpole):
    network = make_network(*cartpole, seed=0, trainable=True)
    network.flat.grad.fill_(1.0)
    before = clip_grad_norm_(network.flat.grad, 2.0)
    assert before.item() == pytest.approx(network.flat.numel() ** 0.5, rel=1e-5)
    assert network.flat.grad.norm().item() == pytest.approx(2.0, rel=1e-4)
    clip_grad_norm_(network.flat.grad, 3.0)
    assert network.flat.grad.norm().item() == pytest.approx(2.0, rel=1e-4)


def test_a_policy_with_loaded_weights_is_greedy_in_that_networks_values(cartpole):
    network = make_network(*cartpole, seed=5, trainable=True)
    policy = GreedyPolicy(*cartpole)
    policy.load(Weights(1, network.numpy()))
    observations = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    expected = network.module(torch.from_numpy(observations)).detach().numpy()
    assert np.allclose(policy.q_values(observations), expected, atol=1e-6)
    # Actions are equally good within the same bound: which of two such values is larger is up to the processor.
    chosen = np.take_along_axis(expected, policy(observations)[:, None], axis=1)[:, 0]
    assert np.allclose(chosen, expected.max(axis=1), atol=1e-6)


def test_weights_are_copies_in_both_directions(cartpole):
    network = make_network(*cartpole, seed=5, trainable=True)
    taken = network.numpy()
    kept = taken.copy()
    policy = GreedyPolicy(*cartpole)
    policy.load(Weights(1, taken))
    q = policy.q_values(np.ones((1, 4), np.float32))
    with torch.no_grad():
        network.flat.zero_()
    assert (taken == kept).all()
    taken[:] = 0
    assert (policy.q_values(np.ones((1, 4), np.float32)) == q).all()


def test_weights_of_another_length_are_refused(cartpole):
    with pytest.raises(ValueError, match=r"weights have shape \(3,\)"):
        GreedyPolicy(*cartpole).load(Weights(1, np.zeros(3, np.float32)))


def test_continuous_actions_are_refused_with_what_would_fit():
    with pytest.raises(UnsupportedEnvironmentError, match=r"Box.*continuous actions need.*CartPole-v1"):
        apex_dqn.check(describe("Pendulum-v1"))
