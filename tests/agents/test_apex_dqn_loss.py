import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie.agents.apex_dqn.loss import apex_dqn_loss, double_q_target, huber, td_errors  # noqa: E402


def tensors(*arrays):
    return [torch.tensor(a) for a in arrays]


def random_batch(rng, size=64, actions=3):
    q_tm1, q_t_value, q_t_selector = (rng.normal(size=(size, actions)) * 3 for _ in range(3))
    a_tm1 = rng.integers(actions, size=size)
    r_t, discount_t = rng.normal(size=size), rng.choice([0.0, 0.97, 0.99], size=size)
    return q_tm1, a_tm1, r_t, discount_t, q_t_value, q_t_selector, rng.uniform(0.1, 1.0, size=size)


def test_the_target_takes_the_selectors_action_at_the_target_networks_value():
    r_t, discount_t, value, selector = tensors([1.0], [0.5], [[10.0, 20.0, 30.0]], [[0.0, 5.0, 1.0]])
    assert double_q_target(r_t, discount_t, value, selector).tolist() == [1.0 + 0.5 * 20.0]


def test_a_terminated_end_gives_the_reward_alone_and_a_truncated_one_bootstraps():
    r_t, discount_t, value, selector = tensors([2.0, 2.0], [0.0, 0.9], [[7.0, 9.0]] * 2, [[1.0, 0.0]] * 2)
    assert double_q_target(r_t, discount_t, value, selector).tolist() == pytest.approx([2.0, 2.0 + 0.9 * 7.0])


def test_huber_is_a_parabola_within_delta_and_a_line_beyond():
    x = torch.tensor([-3.0, -1.0, -0.5, 0.0, 0.5, 2.0])
    assert huber(x, 1.0).tolist() == pytest.approx([2.5, 0.5, 0.125, 0.0, 0.125, 1.5])
    assert huber(x, 0.5).tolist() == pytest.approx([1.375, 0.375, 0.125, 0.0, 0.125, 0.875])


def test_a_hand_worked_batch_gives_its_loss_and_priorities():
    # td: 1 + 0.9 * 2 - 0.5 = 2.3, and -1 + 0 - 1 = -2; huber with delta 1: 1.8 and 1.5; weighted mean (1.8 + 0.75) / 2
    out = apex_dqn_loss(
        *tensors([[0.5, 9.0], [7.0, 1.0]], [0, 1], [1.0, -1.0], [0.9, 0.0]),
        *tensors([[2.0, 3.0], [4.0, 4.0]], [[1.0, 0.0], [0.0, 1.0]], [1.0, 0.5]),
        huber_delta=1.0,
        priority_eps=0.01,
    )
    assert out.loss.item() == pytest.approx(1.275)
    assert out.priorities.tolist() == pytest.approx([2.31, 2.01])


def test_loss_and_priorities_agree_with_a_loop_over_the_batch():
    batch = random_batch(np.random.default_rng(0))
    out = apex_dqn_loss(*tensors(*batch), huber_delta=1.3, priority_eps=1e-3)
    losses, priorities = [], []
    for q, a, r, d, value, selector, weight in zip(*batch, strict=True):
        td = r + d * value[max(range(len(selector)), key=selector.__getitem__)] - q[a]
        losses.append(weight * (td * td / 2 if abs(td) <= 1.3 else 1.3 * (abs(td) - 0.65)))
        priorities.append(abs(td) + 1e-3)
    assert out.loss.item() == pytest.approx(sum(losses) / len(losses), rel=1e-12)
    assert out.priorities.tolist() == pytest.approx(priorities, rel=1e-12)


def test_the_gradient_is_that_of_finite_differences():
    q_tm1, *rest = tensors(*random_batch(np.random.default_rng(1), size=8))

    def loss(q):
        return apex_dqn_loss(q, *rest, huber_delta=1.0, priority_eps=0.0).loss

    assert torch.autograd.gradcheck(loss, q_tm1.requires_grad_(), eps=1e-6, atol=1e-7)


def test_no_gradient_flows_into_the_target_or_the_priorities():
    batch = tensors(*random_batch(np.random.default_rng(2)))
    for index in (0, 4, 5):
        batch[index].requires_grad_()
    out = apex_dqn_loss(*batch, huber_delta=1.0, priority_eps=0.0)
    out.loss.backward()
    assert batch[0].grad is not None
    assert batch[4].grad is None
    assert batch[5].grad is None
    assert not out.priorities.requires_grad


def test_only_the_action_taken_moves():
    q_tm1, a_tm1, *rest = tensors(*random_batch(np.random.default_rng(3)))
    q_tm1.requires_grad_()
    apex_dqn_loss(q_tm1, a_tm1, *rest, huber_delta=1.0, priority_eps=0.0).loss.backward()
    taken = torch.zeros_like(q_tm1, dtype=torch.bool).scatter_(1, a_tm1[:, None], True)
    assert (q_tm1.grad[~taken] == 0).all()
    assert (q_tm1.grad[taken] != 0).all()


def test_td_errors_are_target_minus_prediction():
    q_tm1, a_tm1, target = tensors([[1.0, 2.0]], [1], [5.0])
    assert td_errors(q_tm1, a_tm1, target).tolist() == [3.0]
