import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import reverie  # noqa: E402
from reverie.agents.core import Stopwatch  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402
from reverie.agents.impala import agent as impala  # noqa: E402
from reverie.agents.impala.loss import impala_loss, vtrace  # noqa: E402
from reverie.agents.optimizers import rmsprop  # noqa: E402

SPEC = describe("CartPole-v1")
CONFIG = impala.load_preset("CartPole-v1").config
SMALL = {"num_actors": 1, "envs_per_actor": 2, "batch_size": 2, "queue_capacity": 3, "trace_lambda": 1.0}


def rows(*arrays):
    return [torch.tensor(np.atleast_2d(a), dtype=torch.float64) for a in arrays]


@pytest.fixture
def harness(make_harness):
    """The fixture `make_harness` with the CartPole preset, and changes to it."""
    return lambda env_id="CartPole-v1", **changes: make_harness(impala, CONFIG, env_id, **changes)


def random_unrolls(rng, unrolls=6, length=9):
    """Importance ratios on both sides of 1, ends of both kinds; `ended` marks steps that another episode follows."""
    shape = (unrolls, length)
    ended = rng.random(shape) < 0.2
    terminated = ended & (rng.random(shape) < 0.5)
    return (
        rng.normal(size=shape),  # log rho
        rng.normal(size=shape),  # r
        np.where(terminated, 0.0, 0.9),
        ended,
        rng.normal(size=(unrolls, length + 1)),
    )


def direct(log_rho, r, discount, ended, v, *, rho_bar, c_bar, trace_lambda):
    """Equation 1 as it stands: for every s a sum over t, for every t a product over i; O(T^2) and more."""
    unrolls, length = r.shape
    v_s, advantage = v[:, :-1].copy(), np.zeros_like(r)
    for b in range(unrolls):
        for s in range(length):
            for t in range(s, length):
                between = range(s, t)
                if any(ended[b, i] for i in between):
                    break
                c = np.prod([trace_lambda * min(c_bar, np.exp(log_rho[b, i])) for i in between])
                gamma = np.prod([discount[b, i] for i in between])
                rho = min(rho_bar, np.exp(log_rho[b, t]))
                v_s[b, s] += gamma * c * rho * (r[b, t] + discount[b, t] * v[b, t + 1] - v[b, t])
        for s in range(length):
            goes_on = s + 1 < length and not ended[b, s]
            after = v[b, s + 1]
            if goes_on:
                after = trace_lambda * v_s[b, s + 1] + (1 - trace_lambda) * after
            rho = min(rho_bar, np.exp(log_rho[b, s]))
            advantage[b, s] = rho * (r[b, s] + discount[b, s] * after - v[b, s])
    return v_s, advantage


@pytest.mark.parametrize(("rho_bar", "c_bar"), [(1.0, 1.0), (2.5, 0.7), (100.0, 100.0)])
@pytest.mark.parametrize("trace_lambda", [1.0, 0.9])
def test_the_recursion_is_the_papers_sum(rho_bar, c_bar, trace_lambda):
    log_rho, r, discount, ended, v = random_unrolls(np.random.default_rng(0))
    lambda_t = trace_lambda * (1 - ended)
    out = vtrace(*rows(log_rho, r, discount, lambda_t, v), rho_bar=rho_bar, c_bar=c_bar)
    v_s, advantage = direct(log_rho, r, discount, ended, v, rho_bar=rho_bar, c_bar=c_bar, trace_lambda=trace_lambda)
    np.testing.assert_allclose(out.v_s, v_s, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(out.advantage, advantage, rtol=1e-12, atol=1e-12)


def test_a_hand_worked_unroll_gives_its_targets():
    # Ratios 2 and 0.5, truncated at 1; discount 0.5; V = 2, 4, 6.
    # delta = 1 * (1 + 0.5 * 4 - 2) = 1 and 0.5 * (3 + 0.5 * 6 - 4) = 1; v_1 = 4 + 1, v_0 = 2 + 1 + 0.5 * 1 * 1
    ones = np.ones(2)
    batch = rows(np.log([2.0, 0.5]), [1.0, 3.0], ones / 2, ones, [2.0, 4.0, 6.0])
    out = vtrace(*batch, rho_bar=1.0, c_bar=1.0)
    assert out.v_s[0].tolist() == pytest.approx([3.5, 5.0])
    assert out.advantage[0].tolist() == pytest.approx([1 + 0.5 * 5 - 2, 0.5 * (3 + 0.5 * 6 - 4)])
    # c_bar 0.25 shortens the trace alone: v_0 = 2 + 1 + 0.5 * 0.25 * 1
    out = vtrace(*batch, rho_bar=1.0, c_bar=0.25)
    assert out.v_s[0].tolist() == pytest.approx([3.125, 5.0])
    # rho_bar 2 lets the first difference count twice, and the trace goes on by c_bar = 1
    out = vtrace(*batch, rho_bar=2.0, c_bar=1.0)
    assert out.v_s[0].tolist() == pytest.approx([4.5, 5.0])
    assert out.advantage[0, 0].item() == pytest.approx(2 * 1.5)


def test_on_the_policy_that_acted_the_target_is_the_n_step_return():
    rng = np.random.default_rng(1)
    r, v, gamma = rng.normal(size=7), rng.normal(size=8), 0.9
    out = vtrace(*rows(np.zeros(7), r, np.full(7, gamma), np.ones(7), v), rho_bar=1.0, c_bar=1.0)
    returns = [sum(gamma ** (t - s) * r[t] for t in range(s, 7)) + gamma ** (7 - s) * v[7] for s in range(7)]
    assert out.v_s[0].tolist() == pytest.approx(returns)
    assert out.advantage[0].tolist() == pytest.approx((np.array(returns) - v[:7]).tolist())


@pytest.mark.parametrize("discount_at_the_end", [0.0, 0.9], ids=["terminated", "truncated"])
def test_nothing_of_the_next_episode_reaches_the_one_before(discount_at_the_end):
    """Step 2 ends the episode, step 3 is the reset: its observation is the true last one of the episode."""
    rng = np.random.default_rng(2)
    log_rho, r, v = rng.normal(size=6), rng.normal(size=6), rng.normal(size=7)
    discount = np.full(6, 0.9)
    discount[2] = discount_at_the_end
    lambda_t = np.array([1.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    before = vtrace(*rows(log_rho, r, discount, lambda_t, v), rho_bar=1.0, c_bar=1.0)
    log_rho[3:], r[3:], v[4:] = 7.0, 7.0, 7.0
    after = vtrace(*rows(log_rho, r, discount, lambda_t, v), rho_bar=1.0, c_bar=1.0)
    assert torch.equal(before.v_s[:, :3], after.v_s[:, :3])
    assert torch.equal(before.advantage[:, :3], after.advantage[:, :3])
    v[3] += 1.0
    moved = vtrace(*rows(log_rho, r, discount, lambda_t, v), rho_bar=1.0, c_bar=1.0)
    assert bool((moved.v_s[:, 2] != after.v_s[:, 2]).all()) == (discount_at_the_end > 0)


def test_a_hand_worked_batch_gives_its_loss():
    out = impala_loss(
        *(torch.tensor(a) for a in ([[0.0, 0.0]] * 2, [1.0, 2.0], [0, 1], [3.0, 0.0], [4.0, -1.0])),
        value_coefficient=0.5,
        entropy_coefficient=0.1,
    )
    log_half = np.log(0.5)
    values = 0.5 * ((3 - 1) ** 2 + (0 - 2) ** 2) / 2
    assert out.loss.item() == pytest.approx(-(4 - 1) * log_half / 2 + 0.5 * values + 0.1 * log_half)
    assert out.entropy.item() == pytest.approx(-log_half)


def test_the_gradient_is_that_of_finite_differences_and_none_reaches_the_targets():
    rng = np.random.default_rng(3)
    logits, values, v_s, advantage = (
        torch.tensor(rng.normal(size=s), requires_grad=True) for s in ((8, 3), (8,), (8,), (8,))
    )
    actions = torch.tensor(rng.integers(3, size=8))
    options = {"value_coefficient": 0.5, "entropy_coefficient": 0.2}

    def loss(logits, values):
        return impala_loss(logits, values, actions, v_s, advantage, **options).loss

    assert torch.autograd.gradcheck(loss, (logits, values), eps=1e-6, atol=1e-7)
    loss(logits, values).backward()
    assert v_s.grad is None
    assert advantage.grad is None


def test_an_unroll_is_what_happened_by_one_policy_with_the_observation_after_it(harness, counting_env):
    env_id, length, terminates = counting_env
    client, learner, (actor,), config = harness(env_id, **SMALL, unroll_length=2 * (length + 1) + 3)
    policy = impala.make_policy(describe(env_id), config)
    policy.load(learner.latest(-1))
    for _ in range(config.unroll_length):
        actor.act()
    data = client.sample_batch("unrolls", 2).data
    assert "value" not in data
    t = np.arange(config.unroll_length + 1)
    step, episode = t % (length + 1), t // (length + 1)
    for row in range(2):
        assert data["obs"][row].tolist() == np.stack([episode, step], axis=1).tolist()
        assert data["is_step"][row].tolist() == (step[:-1] != length).tolist()
        assert data["ended"][row].tolist() == (step[:-1] == length - 1).tolist()
        gamma = np.float32(config.discount)
        assert data["discount"][row].tolist() == [0 if terminates and s == length - 1 else gamma for s in step[:-1]]
        log_pi = policy.forward(torch.from_numpy(data["obs"][row, :-1])).detach().numpy()
        assert data["log_mu"][row] == pytest.approx(log_pi[t[:-1], data["action"][row]], abs=1e-5)
        assert (data["weights_version"][row] == 0).all()


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_items_that_a_deadline_interrupted_are_sent_later_and_none_twice(harness, taken):
    """The deadline may also pass between the last item and its confirmation."""
    _, _, (actor,), config = harness(**SMALL, unroll_length=4)
    for _ in range(config.unroll_length - 1):
        actor.act()
    sent = []

    def insert_batch(table, items, timeout):
        if sent:
            sent.append(items["action"])
            return
        sent.append(items["action"][:taken])
        raise reverie.DeadlineExceededError("too late", partial=np.arange(taken) if taken else None)

    actor._client = SimpleNamespace(insert_batch=insert_batch)
    actor.act()
    actor.settle()
    actor.settle()
    assert np.concatenate(sent).shape == (config.envs_per_actor, config.unroll_length)
    assert len(sent) == (1 if taken == 2 else 2)


def test_weights_are_taken_at_an_unrolls_start_and_never_within(harness):
    client, learner, (actor,), _ = harness(**SMALL, unroll_length=8)
    for version in range(1, 4):
        for _ in range(4):
            actor.act()
        learner.version = version  # as if the learner had gone on
        for _ in range(4):
            actor.act()
        assert (client.sample_batch("unrolls", 2).data["weights_version"] == version - 1).all()


def take_turns(client, learner, actors, config, updates):
    """Alternates actors and the learner as the local runner does; returns the figures of every update."""
    figures, turn = [], 0
    while learner.version < updates:
        if client.can_sample("unrolls", config.batch_size):
            learner.learn()
            figures.append(learner.metrics())
            continue
        assert client.can_insert("unrolls", config.envs_per_actor)
        actors[turn % len(actors)].act()
        turn += 1
    return figures


def test_alternating_actors_lag_behind_the_learner_and_the_log_has_the_lag(harness):
    """Four actors whose unrolls are a batch each: the learner makes four updates from unrolls of one version."""
    sizes = {"num_actors": 4, "envs_per_actor": 2, "batch_size": 2, "queue_capacity": 8, "unroll_length": 4}
    figures = take_turns(*harness(**sizes), updates=8)
    assert [one["age_in_updates"] for one in figures] == [0, 1, 2, 3] * 2
    assert [one["oldest_in_updates"] for one in figures] == [0, 1, 2, 3] * 2
    assert figures[0]["kl"] == pytest.approx(0, abs=1e-6)
    assert all(one["kl"] != pytest.approx(0, abs=1e-6) for one in figures[1:4])


def test_every_unroll_is_used_once(harness):
    client, learner, actors, config = harness()
    take_turns(client, learner, actors, config, updates=6)
    info = client.info().tables["unrolls"]
    assert info.num_samples == 6 * config.batch_size
    assert info.num_inserts == info.num_samples + info.current_size


def test_the_resets_give_no_gradient(harness, counting_env):
    """The update does not depend on the action in the reset step or on its result."""
    env_id, length, _ = counting_env
    client, _, (actor,), config = harness(env_id, **SMALL, unroll_length=2 * (length + 1))
    for _ in range(config.unroll_length):
        actor.act()
    data = client.sample_batch("unrolls", 2).data
    other = {name: column.copy() for name, column in data.items()}
    reset = ~data["is_step"]
    assert reset.sum() == 4
    other["action"][reset] = 2 - other["action"][reset]
    other["log_mu"][reset] = -5.0
    other["reward"][reset] = 9.0
    assert (updated(data, config, env_id) == updated(other, config, env_id)).all()
    other["reward"][~reset] = 9.0
    assert (updated(data, config, env_id) != updated(other, config, env_id)).any()


def updated(data, config, env_id="CartPole-v1", updates=1):
    """The weights after a few updates from one batch."""
    client = SimpleNamespace(sample_batch=lambda *args, **kwargs: SimpleNamespace(data=data))
    learner = impala.make_learner(describe(env_id), config, client, seed=1, watch=Stopwatch())
    for _ in range(updates):
        learner.learn()
    return learner.latest(-1).flat


@pytest.fixture
def batch():
    rng = np.random.default_rng(4)
    shape = (4, 8)
    return {
        "obs": rng.normal(size=(4, 9, 4)).astype(np.float32),
        "action": rng.integers(2, size=shape),
        "log_mu": np.log(rng.uniform(0.2, 0.9, size=shape)).astype(np.float32),
        "reward": rng.normal(size=shape).astype(np.float32),
        "discount": np.full(shape, 0.9, np.float32),
        "ended": np.zeros(shape, bool),
        "is_step": np.ones(shape, bool),
        "weights_version": np.zeros(shape, np.int64),
    }


@pytest.mark.parametrize(
    "change",
    [
        {"rho_bar": 2.0},
        {"c_bar": 0.5},
        {"trace_lambda": 0.5},
        {"value_coefficient": 0.25},
        {"entropy_coefficient": 0.3},
        {"learning_rate": 1e-2},
        {"rmsprop_decay": 0.5},
        {"rmsprop_epsilon": 0.2},
        {"max_grad_norm": 0.01},
        {"anneal_updates": 4},
        {"hidden": (32,)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_setting_of_the_learner_changes_the_update(batch, change):
    config = dataclasses.replace(CONFIG, trace_lambda=1.0, max_grad_norm=100.0, anneal_updates=0)
    plain, changed = updated(batch, config, updates=3), updated(batch, dataclasses.replace(config, **change), updates=3)
    assert plain.shape != changed.shape or np.abs(plain - changed).max() > 1e-6


def test_the_learners_loss_is_that_of_the_papers_sum_over_its_unrolls(batch):
    rng = np.random.default_rng(5)
    ended = rng.random((4, 8)) < 0.2
    batch |= {"ended": ended, "discount": np.where(rng.random((4, 8)) < 0.5, batch["discount"], 0.9 * ~ended)}
    batch["is_step"][:, 1:] = ~ended[:, :-1]  # the step after an end is a reset
    config = dataclasses.replace(CONFIG, trace_lambda=0.7, rho_bar=2.0, c_bar=0.8)
    client = SimpleNamespace(sample_batch=lambda *args, **kwargs: SimpleNamespace(data=batch))
    learner = impala.make_learner(SPEC, config, client, seed=1, watch=Stopwatch())
    with torch.no_grad():
        logits, values = learner._network.module(torch.from_numpy(batch["obs"]).flatten(0, 1))
    logits, values = logits.view(4, 9, -1)[:, :-1], values.view(4, 9)
    log_pi = torch.log_softmax(logits, dim=2).numpy()
    log_rho = np.take_along_axis(log_pi, batch["action"][:, :, None], axis=2)[:, :, 0] - batch["log_mu"]
    assert (log_rho > np.log(2.0)).any()
    assert (log_rho < np.log(0.8)).any()

    def loss(**bars):
        v_s, advantage = direct(
            log_rho, batch["reward"], batch["discount"], ended, values.numpy(), trace_lambda=0.7, **bars
        )
        here = batch["is_step"]
        return impala_loss(
            logits[here],
            values[:, :-1][here],
            torch.from_numpy(batch["action"])[here],
            torch.from_numpy(v_s)[here],
            torch.from_numpy(advantage)[here],
            value_coefficient=config.value_coefficient,
            entropy_coefficient=config.entropy_coefficient,
        ).loss.item()

    learner.learn()
    assert learner.metrics()["loss"] == pytest.approx(loss(rho_bar=2.0, c_bar=0.8), rel=1e-4)
    for bars in ({"rho_bar": 0.8, "c_bar": 2.0}, {"rho_bar": 2.0, "c_bar": 2.0}, {"rho_bar": 0.8, "c_bar": 0.8}):
        assert learner.metrics()["loss"] != pytest.approx(loss(**bars), rel=1e-3)


def test_rmsprop_divides_by_the_root_of_the_mean_square():
    class One:
        flat = torch.nn.Parameter(torch.tensor([1.0, 2.0]))

    optimizer = rmsprop(One, learning_rate=0.1, decay=0.9, epsilon=0.01)
    One.flat.grad = torch.tensor([3.0, -0.1])
    optimizer.step()
    expected = [1 - 0.1 * 3 / (np.sqrt(0.1 * 9) + 0.01), 2 + 0.1 * 0.1 / (np.sqrt(0.1 * 0.01) + 0.01)]
    assert One.flat.tolist() == pytest.approx(expected)


def test_the_rate_falls_in_a_line_to_a_twentieth():
    config = dataclasses.replace(CONFIG, learning_rate=1.0, anneal_updates=100)
    assert [config.rate(update) for update in (0, 50, 95, 1_000)] == pytest.approx([1.0, 0.5, 0.05, 0.05])
    assert dataclasses.replace(config, anneal_updates=0).rate(10**6) == 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unroll_length": 1}, "unroll_length is 1, and must be at least 2"),
        ({"rho_bar": 0.5}, r"rho_bar is 0.5, and must not be below c_bar \(1.0\)"),
        ({"queue_capacity": 3}, r"queue_capacity is 3, and must be at least \d+: with less, an actor could wait"),
        ({"trace_lambda": 1.5}, r"trace_lambda is 1.5, and must lie in \[0, 1\]"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **change)
