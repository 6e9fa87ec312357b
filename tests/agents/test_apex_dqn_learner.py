import copy
import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie.agents.apex_dqn import agent as apex_dqn  # noqa: E402
from reverie.agents.core import Stopwatch  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402
from reverie.agents.outcomes import DivergedError  # noqa: E402

SPEC = describe("CartPole-v1")
PRESET = apex_dqn.load_preset("CartPole-v1")


@pytest.fixture
def setting(make_fake_replay):
    """A function that makes a learner on a fake replay of random items, with changes to the CartPole preset."""

    def make(*, items=500, max_size=1_000, seed=0, reward=None, **changes):
        config = dataclasses.replace(PRESET.config, **changes)
        replay = make_fake_replay(max_size=max_size, priority_exponent=config.priority_exponent)
        rng = np.random.default_rng(1)
        for _ in range(items):
            item = {
                "obs": rng.normal(size=4).astype(np.float32),
                "action": np.int64(rng.integers(2)),
                "reward": np.float32(rng.normal() if reward is None else reward),
                "discount": np.float32(rng.choice([0.0, 0.97])),
                "next_obs": rng.normal(size=4).astype(np.float32),
                "weights_version": np.int64(0),
            }
            replay.insert(item, priority=float(rng.uniform(0.1, 2.0)))
        return apex_dqn.make_learner(SPEC, config, replay, seed=seed, watch=Stopwatch()), replay, config

    return make


def expected_priorities(learner, data, config):
    """|td| + eps by NumPy from the learner's two networks."""
    with torch.no_grad():
        q, selector, value = (
            net.module(torch.from_numpy(x)).double().numpy()
            for net, x in (
                (learner._online, data["obs"]),
                (learner._online, data["next_obs"]),
                (learner._target, data["next_obs"]),
            )
        )
    rows = np.arange(len(q))
    target = data["reward"] + data["discount"] * value[rows, selector.argmax(axis=1)]
    return np.abs(target - q[rows, data["action"]]) + config.priority_eps


def test_the_priorities_that_reach_the_table_are_the_td_errors_of_the_batch_before_the_update(setting, networks_of):
    learner, replay, config = setting()
    drawn = []
    sample = replay.sample_batch
    replay.sample_batch = lambda *args, **kwargs: drawn.append(sample(*args, **kwargs)) or copy.copy(drawn[-1])
    for _ in range(3):
        learner.learn()
    learner.version = 0
    before = networks_of(learner)
    learner.learn()
    after = networks_of(learner)["online"]
    learner._online.load(before["online"])
    keys, priorities = replay.updates[-1]
    assert (keys == drawn[-1].info.key).all()
    assert priorities == pytest.approx(expected_priorities(learner, drawn[-1].data, config), rel=1e-4)
    assert (after != before["online"]).any()
    last = dict(zip(keys.tolist(), priorities.tolist(), strict=True))
    assert {k: replay.raw[k] for k in last} == last


def test_applied_and_stale_updates_are_counted(setting):
    learner, replay, config = setting(items=200, max_size=200)
    sample = replay.sample_batch

    def sample_then_evict(*args, **kwargs):
        batch = sample(*args, **kwargs)
        for slot in range(100):
            replay.insert({name: column[slot] for name, column in replay.columns.items()}, priority=1.0)
        return batch

    replay.sample_batch = sample_then_evict
    learner.learn()
    keys, _ = replay.updates[-1]
    stale = learner.metrics()["priorities_stale"]
    assert stale == (keys < 100).sum() > 0
    assert learner.metrics()["priorities_applied"] == config.batch_size - stale


def test_the_target_follows_the_online_network_only_every_target_period(setting, networks_of):
    learner, _, _ = setting(target_period=4)
    first = networks_of(learner)["target"]
    for _ in range(3):
        learner.learn()
    assert (networks_of(learner)["target"] == first).all()
    learner.learn()
    state = networks_of(learner)
    assert (state["target"] == state["online"]).all()
    assert (state["target"] != first).any()


@pytest.mark.parametrize("normalise", ["batch", "table"])
def test_importance_weights_scale_the_gradient_by_batch_or_table_maximum(setting, normalise):
    learner, replay, config = setting(importance_normalise=normalise, max_grad_norm=1e9)
    asked = []
    sample = replay.sample_batch

    def spy(*args, **kwargs):
        batch = sample(*args, **kwargs)
        weights = batch.weights
        batch.weights = lambda beta, normalise: asked.append((beta, normalise)) or weights(beta, normalise) * 0
        return batch

    replay.sample_batch = spy
    learner.learn()
    assert asked == [(config.importance_exponent, normalise)]
    assert (learner._online.flat.grad == 0).all()


def test_the_gradient_is_clipped_to_its_norm(setting):
    learner, _, _ = setting(max_grad_norm=1e-3)
    learner.learn()
    assert learner._online.flat.grad.norm().item() <= 1e-3 * (1 + 1e-4)


def test_a_td_error_that_is_not_finite_stops_learning_before_it_reaches_the_table(setting):
    learner, replay, _ = setting(reward=float("inf"))
    with pytest.raises(
        DivergedError, match=r"update 0: rewards .* too large.* lower learning_rate \(0.006\)"
    ) as caught:
        learner.learn()
    assert caught.value.version == 0
    assert replay.updates == []


def test_weights_are_given_once_per_version(setting):
    learner, _, _ = setting()
    first = learner.latest(newer_than=-1)
    assert first.version == 0
    assert learner.latest(newer_than=0) is None
    learner.learn()
    second = learner.latest(newer_than=0)
    assert second.version == 1
    assert (second.flat != first.flat).any()


def test_a_learner_with_the_state_of_another_continues_bit_for_bit(setting, networks_of):
    learner, _, _ = setting(target_period=3)
    for _ in range(4):
        learner.learn()
    other, _, _ = setting(seed=1, target_period=3)
    other.load_state_dict(learner.state_dict())
    batches = []
    for each in (learner, other):
        each._client = setting()[1]  # the same items, the same draws
        for _ in range(4):
            each.learn()
        batches.append(each.state_dict())
    assert batches[0]["version"] == batches[1]["version"] == 8
    one, two = map(networks_of, batches)
    assert (one["online"] == two["online"]).all()
    assert (one["target"] == two["target"]).all()


@pytest.mark.long
def test_the_values_of_two_known_decisions_are_learnt(setting):
    """From s0, action 0 leads to s1 (discount 0.9) and action 1 ends with 1; in s1 they end with 2 and with 0."""
    learner, replay, _ = setting(items=0, target_period=20)
    s0, s1 = np.eye(4, dtype=np.float32)[:2]
    for obs, action, reward, discount, next_obs in (
        (s0, 0, 0.0, 0.9, s1),
        (s0, 1, 1.0, 0.0, s1),
        (s1, 0, 2.0, 0.0, s0),
        (s1, 1, 0.0, 0.0, s0),
    ):
        numbers = {"action": np.int64(action), "reward": np.float32(reward), "discount": np.float32(discount)}
        replay.insert({"obs": obs, "next_obs": next_obs, "weights_version": np.int64(0), **numbers}, priority=1.0)
    for _ in range(500):
        learner.learn()
    with torch.no_grad():
        q = learner._online.module(torch.from_numpy(np.stack([s0, s1]))).numpy()
    assert q == pytest.approx(np.array([[1.8, 1.0], [2.0, 0.0]]), abs=0.02)


def test_td_errors_are_clipped_in_priorities_and_not_in_the_loss(setting):
    priorities, networks = [], []
    for clip in (0.0, 0.3):
        learner, replay, config = setting(priority_clip=clip)
        learner.learn()
        priorities.append(replay.updates[-1][1])
        networks.append(learner.latest(-1).flat)
    assert priorities[0].min() < 0.3 < priorities[0].max()
    assert priorities[1] == pytest.approx(np.minimum(priorities[0] - config.priority_eps, 0.3) + config.priority_eps)
    assert (networks[0] == networks[1]).all()
