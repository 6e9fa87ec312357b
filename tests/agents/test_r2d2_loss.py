"""R2D2's loss against hand-worked numbers and a plain loop over steps."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie.agents.r2d2.loss import (  # noqa: E402
    n_step_returns,
    r2d2_loss,
    rescale,
    sequence_priorities,
    td_errors,
    unrescale,
)

EPS = 1e-3


def h(x):
    return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + EPS * x


def h_inverse(x):
    return np.sign(x) * (((np.sqrt(1 + 4 * EPS * (np.abs(x) + 1 + EPS)) - 1) / (2 * EPS)) ** 2 - 1)


def direct_return(r, discount, v, steps, t, n):
    """The return of step t of a sequence with `steps` steps, as a sum with an explicit product of discounts."""
    total, product = 0.0, 1.0
    last = min(t + n, steps)
    for k in range(t, last):
        total += product * r[k]
        product *= discount[k]
    return total + product * v[last]


def random_sequences(rng, count=5, length=7, actions=3):
    steps = rng.integers(1, length + 1, count)
    mask = np.arange(length) < steps[:, None]
    discount = np.where(rng.random((count, length)) < 0.2, 0.0, 0.9)
    return {
        "q": rng.normal(size=(count, length + 1, actions)),
        "target": rng.normal(size=(count, length + 1, actions)),
        "a": rng.integers(actions, size=(count, length)),
        "r": rng.normal(size=(count, length)) * 5,
        "discount": discount,
        "mask": mask,
        "steps": steps,
        "weights": rng.random(count) + 0.5,
    }


def tensors(*arrays):
    return [torch.from_numpy(np.asarray(one)) for one in arrays]


def test_values_are_rescaled_as_in_the_paper_and_back():
    # sqrt(4) - 1 + 0.003, and its mirror
    assert rescale(torch.tensor([3.0, -3.0, 0.0], dtype=torch.float64), EPS).tolist() == pytest.approx(
        [1.003, -1.003, 0.0]
    )
    x = torch.tensor([-1e5, -30.0, -1e-3, 0.0, 0.5, 1.0, 200.0, 1e6], dtype=torch.float64)
    for epsilon in (EPS, 1e-2, 0.0):
        torch.testing.assert_close(unrescale(rescale(x, epsilon), epsilon), x, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(unrescale(x, EPS).numpy(), h_inverse(x.numpy()), rtol=1e-9, atol=1e-9)


def test_the_inverse_keeps_its_digits_in_float32():
    x = torch.linspace(0.01, 10.0, 200)
    error = (unrescale(rescale(x, EPS), EPS) - x).abs() / x
    assert error.max() < 64 * torch.finfo(torch.float32).eps / 0.01  # relative to 1 + x, of which h is a function


@pytest.mark.parametrize("n", [1, 2, 5, 7])
def test_returns_are_the_sums_of_a_loop_over_steps(n):
    one = random_sequences(np.random.default_rng(n))
    v = one["q"].max(axis=2)
    returns = n_step_returns(*tensors(one["r"], one["discount"], v, one["mask"]), n)
    for b, steps in enumerate(one["steps"]):
        expected = [direct_return(one["r"][b], one["discount"][b], v[b], steps, t, n) for t in range(steps)]
        assert returns[b, :steps].tolist() == pytest.approx(expected)


def test_a_hand_worked_sequence_gives_its_returns():
    # Three steps, truncated there: v = 10 after them; discount 0.5, n = 2.
    mask = torch.tensor([[True, True, True, False]])
    r, discount = torch.tensor([[1.0, 2.0, 4.0, 99.0]]), torch.tensor([[0.5, 0.5, 0.5, 99.0]])
    v = torch.tensor([[7.0, 7.0, 8.0, 10.0, 99.0]])
    returns = n_step_returns(r, discount, v, mask, 2)
    assert returns[0, :3].tolist() == [1 + 0.5 * 2 + 0.25 * 8, 2 + 0.5 * 4 + 0.25 * 10, 4 + 0.5 * 10]


def test_the_loss_and_the_priorities_are_those_of_a_loop_in_numpy():
    one = random_sequences(np.random.default_rng(3))
    n, eta, count, length = 3, 0.9, 5, 7
    best = one["q"].argmax(axis=2)
    v = h_inverse(np.take_along_axis(one["target"], best[..., None], axis=2)[..., 0])
    total, priorities = 0.0, []
    for b, steps in enumerate(one["steps"]):
        errors = [
            h(direct_return(one["r"][b], one["discount"][b], v[b], steps, t, n)) - one["q"][b, t, one["a"][b, t]]
            for t in range(steps)
        ]
        total += one["weights"][b] * 0.5 * np.sum(np.square(errors))
        priorities.append(eta * np.max(np.abs(errors)) + (1 - eta) * np.mean(np.abs(errors)) + 1e-6)
    out = r2d2_loss(
        *tensors(*(one[k] for k in ("q", "a", "r", "discount", "target", "mask", "weights"))),
        n_step=n,
        rescale_epsilon=EPS,
        priority_eta=eta,
        priority_eps=1e-6,
    )
    assert out.loss.item() == pytest.approx(total / (count * length))
    assert out.priorities.tolist() == pytest.approx(priorities)


def test_priorities_mix_the_largest_error_and_the_mean_of_the_steps():
    errors = torch.tensor([[1.0, -3.0, 2.0, 99.0], [2.0, 99.0, 99.0, 99.0]])
    mask = torch.tensor([[True, True, True, False], [True, False, False, False]])
    found = sequence_priorities(errors, mask, eta=0.9, eps=0.5, clip=0.0)
    assert found.tolist() == pytest.approx([0.9 * 3 + 0.1 * 2 + 0.5, 2.0 + 0.5])
    assert sequence_priorities(errors, mask, eta=0.0, eps=0.0, clip=1.5).tolist() == pytest.approx([1.5, 1.5])


def test_padding_and_what_follows_an_end_give_neither_loss_nor_gradient():
    one = random_sequences(np.random.default_rng(4))

    def loss_of(changes):
        q = torch.from_numpy(one["q"].copy()).requires_grad_()
        rest = {**one, **changes}
        out = r2d2_loss(
            q,
            *tensors(*(rest[k] for k in ("a", "r", "discount", "target", "mask", "weights"))),
            n_step=3,
            rescale_epsilon=EPS,
            priority_eta=0.9,
            priority_eps=0.0,
        )
        out.loss.backward()
        return out.loss.item(), q.grad.numpy()

    padding = np.arange(8) > one["steps"][:, None]
    changed = {
        "r": np.where(one["mask"], one["r"], 1e6),
        "discount": np.where(one["mask"], one["discount"], 7.0),
        "target": np.where(padding[..., None], 1e6, one["target"]),
    }
    (before, gradient), (after, same) = loss_of({}), loss_of(changed)
    assert before == after
    assert (gradient == same).all()
    assert (gradient[:, :-1][~one["mask"]] == 0).all()
    assert (gradient[:, :-1][one["mask"]] != 0).any(axis=1).all()
    assert (gradient[:, -1] == 0).all()


def test_a_terminated_step_bootstraps_from_nothing_and_a_truncated_one_from_its_last_observation():
    mask, r, q = torch.tensor([[True, False]]), torch.zeros(1, 2), torch.zeros(1, 2)
    for discount, expected in ((0.0, 0.0), (0.5, h(0.5 * 8))):
        d, v = torch.tensor([[discount, 0.0]]), torch.tensor([[1.0, 8.0, 99.0]])
        errors = td_errors(q, r, d, v, mask, n_step=2, rescale_epsilon=EPS)
        assert errors.tolist() == [[pytest.approx(expected), 0.0]]
