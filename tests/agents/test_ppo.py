import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import reverie  # noqa: E402
from reverie.agents.core import Stopwatch, Weights  # noqa: E402
from reverie.agents.distributions import Categorical  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402
from reverie.agents.ppo import agent as ppo  # noqa: E402
from reverie.agents.ppo import learner as learning  # noqa: E402
from reverie.agents.ppo.loss import advantages, ppo_loss, standardised  # noqa: E402

SPEC = describe("CartPole-v1")
CONFIG = ppo.load_preset("CartPole-v1").config


def tensors(*arrays):
    return [torch.tensor(a) for a in arrays]


@pytest.fixture
def harness(make_harness):
    """The fixture `make_harness` with the CartPole preset, and changes to it."""
    return lambda env_id="CartPole-v1", **changes: make_harness(ppo, CONFIG, env_id, **changes)


def test_a_hand_worked_unroll_gives_its_advantages():
    # With discount 0.5 and lambda 0.5: delta = 1 + 0.5 * 4 - 2 = 1, 2 + 0.5 * 6 - 4 = 1, 3 + 0.5 * 8 - 6 = 1.
    ones = torch.ones(1, 3)
    out = advantages(torch.tensor([[1.0, 2.0, 3.0]]), ones / 2, ones / 2, torch.tensor([[2.0, 4.0, 6.0, 8.0]]))
    assert out.tolist() == [[1 + 0.25 * (1 + 0.25), 1 + 0.25, 1.0]]


def test_the_sum_stops_where_an_episode_ended_and_bootstraps_only_where_it_was_truncated():
    r_t = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    v = torch.tensor([[0.0, 0.0, 10.0, 0.0]] * 2)
    lambda_t = torch.tensor([[1.0, 0.0, 1.0]] * 2)  # both end in step 1
    terminated = advantages(r_t[:1], torch.tensor([[0.9, 0.0, 0.9]]), lambda_t[:1], v[:1])
    truncated = advantages(r_t[1:], torch.tensor([[0.9, 0.9, 0.9]]), lambda_t[1:], v[1:])
    assert terminated[0, :2].tolist() == pytest.approx([1 + 0.9 * 1, 1.0])
    assert truncated[0, :2].tolist() == pytest.approx([1 + 0.9 * (1 + 9), 1 + 9.0])


def test_with_lambda_one_the_advantage_is_the_return_minus_the_value():
    rng = np.random.default_rng(0)
    r, v = rng.normal(size=6), rng.normal(size=7)
    out = advantages(*(torch.tensor(x)[None] for x in (r, np.full(6, 0.9), np.ones(6), v)))
    returns = [sum(0.9 ** (k - t) * r[k] for k in range(t, 6)) + 0.9 ** (6 - t) * v[6] for t in range(6)]
    assert out[0].tolist() == pytest.approx((np.array(returns) - v[:6]).tolist())


def loss_of(logits, values, actions, old, advantage, target, **options):
    settings = {"clip": 0.2, "value_coefficient": 0.5, "entropy_coefficient": 0.0, **options}
    return ppo_loss(logits, values, actions, old, advantage, target, **settings)


def test_a_hand_worked_minibatch_gives_its_loss():
    # Two equal logits: pi = 0.5. Ratios 0.5 / 0.25 = 2 and 0.5 / 0.5 = 1; clipped to 1.2 and 1; advantages 3 and -1.
    out = loss_of(
        *tensors([[0.0, 0.0]] * 2, [1.0, 2.0], [0, 1], [np.log(0.25), np.log(0.5)], [3.0, -1.0], [2.0, 5.0]),
        entropy_coefficient=0.1,
    )
    surrogate = (1.2 * 3 - 1) / 2
    assert out.loss.item() == pytest.approx(-surrogate + 0.5 * 0.5 * (1 + 9) / 2 - 0.1 * np.log(2))
    assert out.clipped.item() == 0.5
    assert out.kl.item() == pytest.approx((2 - 1 - np.log(2)) / 2)
    assert out.entropy.item() == pytest.approx(np.log(2))


@pytest.mark.parametrize(
    ("ratio", "advantage", "moves"),
    [(1.5, 1, False), (0.5, -1, False), (1.5, -1, True), (0.5, 1, True), (1.1, 1, True)],
)
def test_the_surrogate_is_flat_where_going_further_is_not_rewarded(ratio, advantage, moves):
    logits = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    old = torch.log(torch.tensor([0.5 / ratio], dtype=torch.float64))
    zero = torch.zeros(1, dtype=torch.float64)
    out = loss_of(logits, zero, torch.tensor([0]), old, torch.tensor([float(advantage)]), zero)
    out.loss.backward()
    assert bool((logits.grad != 0).any()) == moves


def test_the_gradient_is_that_of_finite_differences():
    rng = np.random.default_rng(1)
    logits, values = (torch.tensor(rng.normal(size=s), requires_grad=True) for s in ((8, 3), (8,)))
    rest = tensors(rng.integers(3, size=8), rng.normal(size=8) - 1, rng.normal(size=8), rng.normal(size=8))

    def loss(logits, values):
        return loss_of(logits, values, *rest, entropy_coefficient=0.2).loss

    assert torch.autograd.gradcheck(loss, (logits, values), eps=1e-6, atol=1e-7)


def test_standardised_advantages_have_mean_zero_and_deviation_one_and_a_single_one_is_zero():
    out = standardised(torch.tensor([1.0, 2.0, 6.0]))
    assert out.mean().item() == pytest.approx(0, abs=1e-6)
    assert out.square().mean().item() == pytest.approx(1, rel=1e-5)
    assert standardised(torch.tensor([5.0])).tolist() == [0.0]


def test_actions_are_drawn_with_the_policys_probabilities():
    pi, draws = np.array([0.7, 0.2, 0.1]), 20_000
    logits, rng = torch.tensor(np.log(pi), dtype=torch.float32).expand(draws, 3), np.random.default_rng(0)
    for normal in (None, rng.standard_normal((draws, 3), np.float32)):
        counts = np.bincount(Categorical(3).draw(logits, rng, normal).numpy(), minlength=3)
        assert (np.abs(counts - draws * pi) < 5 * np.sqrt(draws * pi * (1 - pi))).all()
        twin = pi + np.array([-0.03, 0.02, 0.01])
        assert not (np.abs(counts - draws * twin) < 5 * np.sqrt(draws * twin * (1 - twin))).all()


def test_an_unroll_is_what_happened_with_its_ends_and_the_value_after_it(harness, counting_env):
    env_id, length, terminates = counting_env
    client, _, (actor,), config = harness(env_id, num_actors=1, envs_per_actor=2, unroll_length=2 * (length + 1) + 3)
    for _ in range(config.unroll_length):
        actor.act()
    data = client.sample_batch("unrolls", 2).data
    t = np.arange(config.unroll_length)
    step, episode = t % (length + 1), t // (length + 1)
    policy = ppo.make_policy(describe(env_id), config)
    network = ppo.make_learner(describe(env_id), config, None, seed=1, watch=Stopwatch())
    policy.load(network.latest(-1))
    for row in range(2):
        assert data["obs"][row].tolist() == np.stack([episode, step], axis=1).tolist()
        assert data["is_step"][row].tolist() == (step != length).tolist()
        assert data["ended"][row].tolist() == (step == length - 1).tolist()
        assert data["reward"][row].tolist() == np.where(step == length, 0, step + 1).tolist()
        gamma = np.float32(config.discount)
        assert data["discount"][row].tolist() == [0 if terminates and s == length - 1 else gamma for s in step]
        after = np.array([[t[-1] // (length + 1), step[-1] + 1]], np.float32)
        log_pi = policy.forward(torch.from_numpy(data["obs"][row])).detach().numpy()
        values = policy.values(data["obs"][row])
        assert data["value"][row] == pytest.approx(np.append(values, policy.values(after)), abs=1e-5)
        assert data["log_pi"][row] == pytest.approx(log_pi[t, data["action"][row]], abs=1e-5)


def test_every_unroll_is_used_once_by_the_weights_that_made_it(harness):
    client, learner, actors, config = harness(num_actors=2, envs_per_actor=3, unroll_length=8)
    for update in range(3):
        turns = 0
        while not client.can_sample("unrolls", config.batch_size):
            assert client.can_insert("unrolls", 3)
            actors[turns % 2].act()
            turns += 1
        assert turns == 2 * 8
        learner.learn()
        assert learner.metrics()["age_in_updates"] == 0
        assert learner.version == update + 1
    info = client.info().tables["unrolls"]
    assert (info.num_inserts, info.num_samples, info.current_size) == (18, 18, 0)
    with pytest.raises(reverie.DeadlineExceededError):
        learner.learn()


def test_an_unroll_restarts_when_newer_weights_arrive(harness):
    """After a resume one actor's unrolls are in the queue, and the other's arrive too late for the update."""
    client, learner, actors, config = harness(num_actors=2, envs_per_actor=3, unroll_length=8)
    for _ in range(16):
        actors[0].act()
    for _ in range(7):
        actors[1].act()
    learner.learn()  # from two unrolls of the first actor
    for turn in range(16):
        actors[turn % 2].act()
    assert client.can_sample("unrolls", config.batch_size)
    learner.learn()
    assert learner.metrics()["age_in_updates"] == 0


def test_the_first_pass_over_a_batch_finds_the_policy_where_the_actor_left_it(harness):
    client, learner, (actor,), config = harness(epochs=1, minibatch_size=10**6)
    while not client.can_sample("unrolls", config.batch_size):
        actor.act()
    learner.learn()
    metrics = learner.metrics()
    assert metrics["clipped"] == 0
    assert metrics["kl"] == pytest.approx(0, abs=1e-6)
    assert metrics["entropy"] == pytest.approx(np.log(2), abs=1e-3)


def test_the_learner_cuts_the_sum_where_episodes_end_and_leaves_resets_out(harness, counting_env, monkeypatch):
    env_id, length, _ = counting_env
    client, learner, (actor,), config = harness(env_id, num_actors=1, envs_per_actor=2, unroll_length=2 * (length + 1))
    while not client.can_sample("unrolls", config.batch_size):
        actor.act()
    given, sizes = [], []
    monkeypatch.setattr(learning, "advantages", lambda *args: given.append(args) or advantages(*args))
    monkeypatch.setattr(
        learning, "ppo_loss", lambda *args, **kwargs: sizes.append(len(args[0])) or ppo_loss(*args, **kwargs)
    )
    learner.learn()
    ((_, _, lambda_t, _),) = given
    expected = [0.0 if t % (length + 1) == length - 1 else config.gae_lambda for t in range(config.unroll_length)]
    assert lambda_t.tolist() == [pytest.approx(expected)] * 2
    assert sum(sizes) == config.epochs * 2 * 2 * length


def test_every_pass_takes_the_actors_probabilities_and_each_minibatch_standardised_advantages(harness, monkeypatch):
    client, learner, (actor,), config = harness(epochs=3, minibatch_size=64, learning_rate=1e-2, anneal_updates=10)
    while not client.can_sample("unrolls", config.batch_size):
        actor.act()
    batches, calls = [], []
    monkeypatch.setattr(learner, "_client", Tape(client, batches))
    monkeypatch.setattr(
        learning, "ppo_loss", lambda *args, **kwargs: calls.append((*args, kwargs["clip"])) or ppo_loss(*args, **kwargs)
    )
    for update in range(2):
        calls.clear()
        while not client.can_sample("unrolls", config.batch_size):
            actor.act()
        learner.learn()
        data = batches[-1].data
        steps = data["is_step"]
        parts = len(calls) // config.epochs
        assert parts == round(steps.sum() / config.minibatch_size) > 1
        orders = []
        for epoch in range(config.epochs):
            _, _, actions, old_log_pi, advantages, _, _ = zip(*calls[epoch * parts : (epoch + 1) * parts], strict=True)
            rows = np.stack([torch.cat(column).numpy() for column in (old_log_pi, actions)], axis=1)
            given = np.stack([data["log_pi"][steps], data["action"][steps]], axis=1)
            assert np.sort(rows, axis=0) == pytest.approx(np.sort(given, axis=0), rel=1e-6)
            orders.append(rows[:, 0].tolist())
            for advantage in advantages:
                assert advantage.mean().item() == pytest.approx(0, abs=1e-4)
                assert advantage.square().mean().item() == pytest.approx(1, abs=1e-3)
        assert orders[0] != orders[1] != orders[2]
        assert {clip for *_, clip in calls} == {config.clip * config.annealed(update)}
        assert learner._optimizer.param_groups[0]["lr"] == config.learning_rate * config.annealed(update)


class Tape:
    """The client, which keeps the batches that it gives."""

    def __init__(self, client, batches):
        self.client, self.batches = client, batches

    def sample_batch(self, *args, **kwargs):
        self.batches.append(self.client.sample_batch(*args, **kwargs))
        return self.batches[-1]


def test_rate_and_clip_fall_in_a_line_to_a_twentieth():
    config = dataclasses.replace(CONFIG, anneal_updates=100)
    assert [config.annealed(update) for update in (0, 50, 95, 1_000)] == pytest.approx([1.0, 0.5, 0.05, 0.05])
    assert dataclasses.replace(CONFIG, anneal_updates=0).annealed(10**6) == 1.0


@pytest.mark.long
def test_the_value_of_a_known_episode_is_learnt(harness):
    """Rewards 1 to 7 with discount 0.5: the value of the first observation is the discounted sum."""
    client, learner, (actor,), config = harness(
        "ReverieCountingTerminated-v0",
        num_actors=1,
        envs_per_actor=4,
        unroll_length=16,
        discount=0.5,
        gae_lambda=1.0,
        learning_rate=1e-2,
        max_grad_norm=100.0,
        anneal_updates=0,
    )
    policy = ppo.make_policy(describe("ReverieCountingTerminated-v0"), config)
    for _ in range(20):
        while not client.can_sample("unrolls", config.batch_size):
            actor.act()
            actor._obs[:, 0] = 0  # the number of the episode carries no information
        learner.learn()
    policy.load(Weights(0, learner.latest(-1).flat))
    expected = [sum(0.5 ** (k - t) * (k + 1) for k in range(t, 7)) for t in range(7)]
    values = policy.values(np.stack([np.zeros(7), np.arange(7)], axis=1).astype(np.float32))
    assert values == pytest.approx(np.array(expected), abs=0.4)


def test_an_unroll_of_one_step_is_refused():
    with pytest.raises(ValueError, match="unroll_length is 1, and must be at least 2"):
        dataclasses.replace(CONFIG, unroll_length=1)
