"""Categorical projections, divergences and quantile losses, next to slow loops in NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from reverie.agents.value_distributions import (  # noqa: E402
    categorical_target,
    cross_entropy,
    divergence,
    fractions_of,
    midpoints,
    projected,
    quantile_losses,
    support,
)

CPU = torch.device("cpu")


def slowly(values, probabilities, v_min, v_max):
    """The projection by Bellemare et al.'s equation 7: the sum of each value's nearness to an atom, within one step."""
    atoms = np.linspace(v_min, v_max, probabilities.shape[1])
    step = (v_max - v_min) / (len(atoms) - 1)
    found = np.zeros_like(probabilities)
    for b in range(len(values)):
        for i, atom in enumerate(atoms):
            for value, probability in zip(values[b], probabilities[b], strict=True):
                nearness = 1 - abs(min(max(value, v_min), v_max) - atom) / step
                found[b, i] += probability * min(max(nearness, 0.0), 1.0)
    return found


@pytest.mark.parametrize("bounds", [(-3.0, 5.0), (0.0, 0.1), (-200.0, -100.0)])
def test_the_projection_is_that_of_a_slow_loop(bounds):
    rng = np.random.default_rng(0)
    v_min, v_max = bounds
    width = v_max - v_min
    values = rng.uniform(v_min - width, v_max + width, (40, 11))
    values[0], values[1] = np.linspace(v_min, v_max, 11), v_max  # on the atoms; all on the last one
    values[2, :3] = v_min, v_max, v_min + width / 20
    probabilities = rng.dirichlet(np.ones(11), 40)
    found = projected(torch.tensor(values), torch.tensor(probabilities), v_min, v_max).numpy()
    expected = slowly(values, probabilities, v_min, v_max)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    wrong = slowly(values + width / 10 / 3, probabilities, v_min, v_max)
    assert np.abs(found - wrong).max() > 0.1, "an error of a third of a step is seen"


def test_a_hand_worked_target():
    # Support 0, 1, 2; values 0.5 + 0.5 z = 0.5, 1, 1.5, of probabilities 0.2, 0.3, 0.5.
    p_t = torch.tensor([[0.2, 0.3, 0.5]] * 3, dtype=torch.float64, requires_grad=True)
    r_t = torch.tensor([0.5, 1.5, 9.0], dtype=torch.float64)
    discount_t = torch.tensor([0.5, 0.0, 1.0], dtype=torch.float64)
    found = categorical_target(r_t, discount_t, p_t, 0.0, 2.0)
    assert found[0].tolist() == pytest.approx([0.1, 0.1 + 0.3 + 0.25, 0.25])
    assert found[1].tolist() == pytest.approx([0.0, 0.5, 0.5]), "terminated: the reward alone"
    assert found[2].tolist() == pytest.approx([0.0, 0.0, 1.0]), "above the support"
    assert not found.requires_grad


def assert_a_terminal_reward_at_a_bound_has_a_distribution(v_min, v_max, atoms):
    r_t, p_t = torch.tensor([v_min, v_max, v_max]), torch.full((3, atoms), 1 / atoms)
    found = categorical_target(r_t, torch.tensor([0.0, 0.0, 1.0]), p_t, v_min, v_max)
    assert found.dtype == torch.float32
    assert float(found.min()) >= 0.0
    assert found.sum(dim=1).tolist() == pytest.approx([1.0] * 3, rel=1e-5)
    assert divergence(p_t.log(), found).isfinite().all(), "the priority"


def test_a_terminal_reward_of_the_highest_value_has_no_negative_probability():
    """In float32 `90 * (50 / 90)` is above 50."""
    assert float(torch.tensor([90.0]) * (50 / 90)) > 50
    assert_a_terminal_reward_at_a_bound_has_a_distribution(-10.0, 80.0, 51)


@given(v_min=st.floats(-1e4, 1e4, width=32), width=st.floats(0.125, 1e4, width=32), atoms=st.integers(2, 201))
def test_targets_on_any_support_are_probabilities_with_a_finite_divergence(v_min, width, atoms):
    assert_a_terminal_reward_at_a_bound_has_a_distribution(v_min, v_min + width, atoms)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_values_that_are_not_finite_are_not_hidden_by_the_bounds(bad):
    values = torch.tensor([[0.0, 1.0], [bad, 1.0]])
    found = projected(values, torch.full((2, 2), 0.5), 0.0, 1.0)
    assert found[0].tolist() == [0.5, 0.5]
    assert found[1].isnan().any()


def test_cross_entropy_and_divergence_are_those_of_numpy_and_differ_by_the_targets_entropy():
    rng = np.random.default_rng(1)
    p, target = rng.dirichlet(np.ones(7), (2, 20))
    target[0] = np.eye(7)[3]  # probabilities of 0
    log_p = torch.tensor(np.log(p), requires_grad=True)
    entropy = -(target * np.log(np.where(target > 0, target, 1.0))).sum(axis=1)
    crossed = -(target * np.log(p)).sum(axis=1)
    np.testing.assert_allclose(cross_entropy(log_p, torch.tensor(target)).detach().numpy(), crossed)
    found = divergence(log_p, torch.tensor(target))
    np.testing.assert_allclose(found.numpy(), crossed - entropy)
    assert not found.requires_grad
    assert divergence(torch.tensor(np.log(p)), torch.tensor(p)).abs().max() < 1e-12


def test_the_gradient_of_the_cross_entropy_moves_probabilities_towards_the_target():
    """With respect to logits it is `p - target`."""
    rng = np.random.default_rng(2)
    logits = torch.tensor(rng.normal(size=(5, 6)), requires_grad=True)
    target = torch.tensor(rng.dirichlet(np.ones(6), 5))
    cross_entropy(torch.log_softmax(logits, dim=1), target).sum().backward()
    np.testing.assert_allclose(logits.grad, torch.softmax(logits.detach(), 1) - target, atol=1e-12)


@pytest.mark.parametrize("kappa", [1.0, 0.3])
def test_quantile_losses_are_those_of_a_slow_loop(kappa):
    rng = np.random.default_rng(3)
    z, target, tau = rng.normal(size=(6, 4)) * 2, rng.normal(size=(6, 5)) * 2, rng.random((6, 4))
    expected = np.zeros(6)
    for b in range(6):
        for i in range(4):
            for j in range(5):
                u = target[b, j] - z[b, i]
                huber = 0.5 * u**2 if abs(u) <= kappa else kappa * (abs(u) - 0.5 * kappa)
                expected[b] += abs(tau[b, i] - (u < 0)) * huber / kappa / 5
    found = quantile_losses(*(torch.tensor(one) for one in (z, tau, target)), kappa)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    swapped = quantile_losses(torch.tensor(z), torch.tensor(1 - tau), torch.tensor(target), kappa)
    assert not np.allclose(swapped.numpy(), expected)


def test_the_quantiles_that_minimise_the_loss_are_those_of_the_draws():
    """The kappa is small, so that the loss is the quantile loss itself."""
    rng = np.random.default_rng(4)
    draws = torch.tensor(rng.exponential(size=(1, 2000)))
    fractions = midpoints(5, CPU).double().unsqueeze(0)
    z = torch.zeros((1, 5), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([z], lr=0.05)
    for _ in range(400):
        optimizer.zero_grad()
        quantile_losses(z, fractions, draws, 1e-3).mean().backward()
        optimizer.step()
    expected = np.quantile(draws.numpy()[0], fractions.numpy()[0])
    np.testing.assert_allclose(z.detach().numpy()[0], expected, atol=0.08)


def test_fractions_of_normal_numbers_are_uniform_and_in_their_order():
    normal = torch.randn(20_000, generator=torch.Generator().manual_seed(0)).sort().values
    found = fractions_of(normal)
    assert (found[1:] >= found[:-1]).all()
    ranks = (torch.arange(20_000) + 0.5) / 20_000
    assert (found - ranks).abs().max() < 5 * 0.5 / np.sqrt(20_000)
    assert (found.square() - ranks).abs().max() > 0.2, "the twin: their squares are not"


def test_the_support_has_its_bounds_and_equal_distances():
    assert support(-1.0, 3.0, 5, CPU).tolist() == [-1.0, 0.0, 1.0, 2.0, 3.0]
    assert midpoints(4, CPU).tolist() == [0.125, 0.375, 0.625, 0.875]
