import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie.agents.sac.loss import (  # noqa: E402
    critics_loss,
    policy_loss,
    soft_target,
    squashed_gaussian,
    temperature_loss,
)


def tensors(*arrays):
    return [torch.tensor(a) for a in arrays]


def test_the_soft_target_takes_the_lesser_critic_and_adds_the_entropy():
    q_t = torch.tensor([[4.0, 9.0], [6.0, 7.0]])
    target = soft_target(*tensors([1.0, 1.0], [0.5, 0.0]), q_t, torch.tensor([-2.0, -2.0]), 0.1)
    assert target.tolist() == pytest.approx([1 + 0.5 * (4 + 0.2), 1.0])


def test_hand_worked_losses():
    q, target = torch.tensor([[1.0, 5.0], [2.0, 2.0]]), torch.tensor([3.0, 2.0])
    assert critics_loss(q, target).item() == pytest.approx(((4 + 9) / 2 + (1 + 0) / 2) / 2)
    # min q: 1 and 2; 0.5 * log pi: -1 and 2
    assert policy_loss(q, torch.tensor([-2.0, 4.0]), 0.5).item() == pytest.approx(((-1 - 1) + (2 - 2)) / 2)
    # -log alpha (log pi + target): -(2 * (-3 - 1)) and -(2 * (6 - 1)), their mean
    assert temperature_loss(torch.tensor([2.0]), torch.tensor([-3.0, 6.0]), -1.0).item() == pytest.approx(-1.0)


def test_the_temperature_rises_where_the_entropy_is_below_its_target_and_falls_above():
    for entropy, falls in ((-3.0, False), (1.0, True)):
        log_temperature = torch.zeros(1, requires_grad=True)
        temperature_loss(log_temperature, torch.tensor([-entropy] * 4), target_entropy=-1.0).backward()
        assert (log_temperature.grad.item() > 0) == falls


@pytest.mark.parametrize("temperature", [1.0, 0.01])
def test_the_temperatures_gradient_is_the_distance_from_the_entropy_wherever_it_is(temperature):
    log_temperature = torch.tensor([math.log(temperature)], requires_grad=True)
    temperature_loss(log_temperature, torch.tensor([-3.0, 6.0]), target_entropy=-1.0).backward()
    assert log_temperature.grad.item() == pytest.approx(-0.5)


def test_the_density_of_actions_is_that_of_tanh_of_a_gaussian_and_adds_up_to_one():
    mean, log_sigma = torch.tensor([[0.3]], dtype=torch.float64), torch.tensor([[-0.4]], dtype=torch.float64)
    actions = torch.linspace(-1 + 1e-9, 1 - 1e-9, 200_001, dtype=torch.float64)[:, None]
    noise = (torch.atanh(actions) - mean) / log_sigma.exp()
    again, log_pi = squashed_gaussian(mean, log_sigma, noise)
    np.testing.assert_allclose(again, actions, rtol=0, atol=1e-9)
    assert torch.trapezoid(log_pi.exp(), actions[:, 0]).item() == pytest.approx(1.0, abs=1e-5)


def test_the_density_agrees_with_pytorchs_own_transformed_distribution():
    rng = np.random.default_rng(0)
    mean, log_sigma, noise = (torch.tensor(rng.normal(size=(6, 3))) for _ in range(3))
    action, log_pi = squashed_gaussian(mean, log_sigma, noise)
    normal = torch.distributions.Normal(mean, log_sigma.exp())
    reference = torch.distributions.TransformedDistribution(normal, [torch.distributions.TanhTransform(cache_size=1)])
    u = mean + log_sigma.exp() * noise
    expected = normal.log_prob(u) - torch.distributions.TanhTransform().log_abs_det_jacobian(u, torch.tanh(u))
    assert torch.allclose(log_pi, expected.sum(dim=1))
    assert torch.allclose(log_pi, reference.log_prob(action).sum(dim=1), atol=1e-6)


def test_far_out_in_the_tails_the_density_stays_finite():
    mean, log_sigma, noise = torch.tensor([[30.0], [-30.0]]), torch.zeros(2, 1), torch.zeros(2, 1)
    action, log_pi = squashed_gaussian(mean, log_sigma, noise)
    assert action[:, 0].tolist() == [1.0, -1.0]
    assert log_pi.tolist() == pytest.approx([-0.9189385 + 60 - 2 * math.log(2)] * 2, rel=1e-5)


def test_gradients_are_those_of_finite_differences():
    rng = np.random.default_rng(1)
    mean, log_sigma = (torch.tensor(rng.normal(size=(4, 2)), requires_grad=True) for _ in range(2))
    noise, slope = (torch.tensor(rng.normal(size=(4, 2))) for _ in range(2))

    def loss(mean, log_sigma):
        action, log_pi = squashed_gaussian(mean, log_sigma, noise)
        return policy_loss(torch.stack([(slope * action).sum(1), (action**2).sum(1) + 9]), log_pi, 0.3)

    assert torch.autograd.gradcheck(loss, (mean, log_sigma), eps=1e-6, atol=1e-7)


def test_no_gradient_flows_into_the_targets():
    q, target = torch.ones(2, 3, requires_grad=True), torch.zeros(3, requires_grad=True)
    critics_loss(q, target).backward()
    assert q.grad is not None
    assert target.grad is None
    log_pi = torch.zeros(3, requires_grad=True)
    temperature_loss(torch.zeros(1, requires_grad=True), log_pi, -1.0).backward()
    assert log_pi.grad is None
