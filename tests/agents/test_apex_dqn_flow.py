"""Actor, table and learner together on the real replay buffer: each passes the right data to the next."""

import dataclasses

import numpy as np
import pytest

pytest.importorskip("torch")

import reverie
from reverie.agents.apex_dqn import agent as apex_dqn
from reverie.agents.core import Stopwatch
from reverie.agents.environments import describe

CARTPOLE = describe("CartPole-v1")
PRESET = apex_dqn.load_preset("CartPole-v1").config


@pytest.fixture
def harness():
    """A function that makes an actor, a learner and the agent's own table under another limiter."""
    closing = []

    def make(env_id="CartPole-v1", *, acts=0, sampler=None, limiter=None, client=None, **changes):
        config = dataclasses.replace(PRESET, num_actors=1, **changes)
        spec = describe(env_id)
        if client is None:
            (table,) = apex_dqn.make_tables(spec, config, seed=0)
            table = table.replace(rate_limiter=limiter or reverie.rate_limiters.MinSize(1))
            table = table if sampler is None else table.replace(sampler=sampler)
            server = reverie.Server([table], listen=False)
            closing.append(server.stop)
            client = server.client()
        learner = apex_dqn.make_learner(spec, config, client, seed=1, watch=Stopwatch())
        actor = apex_dqn.make_actor(spec, config, client, learner, index=0, seed=2, watch=Stopwatch())
        closing.append(actor.close)
        for _ in range(acts):
            actor.act()
        return client, learner, actor, config

    yield make
    for close in reversed(closing):
        close()


def five_sigma(counts, probabilities):
    draws = counts.sum()
    return 5 * np.sqrt(draws * probabilities * (1 - probabilities)) + 1


@pytest.mark.parametrize("env_id", ["CartPole-v1", "ReverieCountingTerminated-v0", "ReverieCountingTruncated-v0"])
@pytest.mark.parametrize("n_step", [1, 3, 9])
def test_the_items_of_an_actor_are_those_of_a_brute_force_over_its_episodes(harness, make_fake_replay, env_id, n_step):
    fake = make_fake_replay(max_size=5_000)
    harness(env_id, acts=100, n_step=n_step, discount=0.9, client=fake)
    client, *_ = harness(env_id, acts=100, n_step=n_step, discount=0.9, sampler=reverie.selectors.Fifo())
    assert client.info().tables["replay"].num_inserts == fake.inserts > 100
    client.configure("replay", max_times_sampled=1)  # every item once
    batch = client.sample_batch("replay", fake.inserts, timeout=0)
    assert len(set(batch.info.key.tolist())) == fake.inserts
    assert sorted(batch.data) == sorted(fake.columns)
    ours = as_sorted_rows(batch.data, batch.info.priority)
    brute_force = as_sorted_rows(fake.columns, fake.raw, fake.inserts)
    np.testing.assert_allclose(ours, brute_force, rtol=1e-5, atol=1e-5)


def as_sorted_rows(columns, priorities, count=None):
    """Items as rows of numbers, in an order that does not depend on when they were inserted."""
    flat = [
        np.asarray(columns[name][:count], np.float64).reshape(len(priorities[:count]), -1) for name in sorted(columns)
    ]
    rows = np.concatenate([*flat, np.asarray(priorities)[:count, None]], axis=1)
    return rows[np.lexsort(np.round(rows, 4).T)]


def test_the_table_draws_by_the_actors_priorities_raised_to_alpha_once(harness):
    client, _, _, config = harness(acts=30)
    first = client.sample_batch("replay", 100_000, timeout=0)
    keys, index, counts = np.unique(first.info.key, return_index=True, return_counts=True)
    weights = first.info.priority[index] ** config.priority_exponent
    size = client.info().tables["replay"].current_size
    assert len(keys) == size
    probabilities = weights / weights.sum()
    np.testing.assert_allclose(first.info.probability[index], probabilities, rtol=1e-9)
    assert (np.abs(counts - counts.sum() * probabilities) < five_sigma(counts, probabilities)).all()
    # The check can tell: alpha left out, or applied twice, is far outside.
    for wrong in (1.0, config.priority_exponent**2):
        other = first.info.priority[index] ** wrong
        other /= other.sum()
        assert (np.abs(counts - counts.sum() * other) > five_sigma(counts, other)).any()


@pytest.mark.parametrize(("first_priority", "largest"), [("td_error", None), ("max", 7.0)])
def test_new_items_have_the_actors_errors_or_the_largest_priority_of_the_table(harness, first_priority, largest):
    client, _, actor, config = harness(acts=20, first_priority=first_priority, sampler=reverie.selectors.Fifo())
    first = client.sample_batch("replay", 1, timeout=0)
    client.update_priorities("replay", first.info.key, np.array([7.0]))
    before = client.info().tables["replay"].num_inserts
    for _ in range(20):
        actor.act()
    count = client.info().tables["replay"].current_size
    client.configure("replay", max_times_sampled=2)
    # In order, each twice; the first item was drawn once before.
    batch = client.sample_batch("replay", 2 * count - 1, timeout=0)
    priorities = batch.info.priority
    if largest is not None:
        found = priorities.tolist()
        assert (found.count(largest), found.count(1.0)) == (2 * (count - before) + 1, 2 * (before - 1))
        return
    # The network has not changed since the actor computed them.
    q, data = actor._policy.q_values, batch.data
    taken = np.take_along_axis(q(data["obs"]), data["action"][:, None].astype(np.int64), axis=1)[:, 0]
    errors = np.abs(data["reward"] + data["discount"] * q(data["next_obs"]).max(axis=1) - taken) + config.priority_eps
    np.testing.assert_allclose(priorities[1:], errors[1:], rtol=1e-4, atol=1e-5)
    assert (priorities[0], len(set(priorities.tolist())) > 20) == (7.0, True)


def test_the_learners_priorities_reach_the_table_and_change_what_is_drawn(harness):
    client, learner, _, config = harness(acts=30, batch_size=256)
    asked = []
    update = client.update_priorities

    class Spy:
        def __getattr__(self, name):
            return getattr(client, name)

        def update_priorities(self, table, keys, priorities):
            asked.append((keys, priorities))
            return update(table, keys, priorities)

    learner._client = Spy()
    before = client.get("replay", client.sample_batch("replay", 1, timeout=0).info.key).info.priority
    assert before.shape == (1,)
    learner.learn()
    ((keys, priorities),) = asked
    sent = dict(zip(keys.tolist(), priorities.tolist(), strict=True))
    now = client.get("replay", np.array(list(sent)))
    np.testing.assert_allclose(now.info.priority, list(sent.values()), rtol=1e-12)
    drawn = client.sample_batch("replay", 50_000, timeout=0)
    total = float((1 / drawn.info.probability * drawn.info.priority**config.priority_exponent).mean())
    np.testing.assert_allclose(drawn.info.probability, drawn.info.priority**config.priority_exponent / total, rtol=1e-6)
    for key in list(sent)[:20]:
        count = (drawn.info.key == key).sum()
        expected = sent[key] ** config.priority_exponent / total
        assert abs(count - 50_000 * expected) < 5 * np.sqrt(50_000 * expected) + 1
    assert client.info().tables["replay"].num_updates == learner.metrics()["priorities_applied"] == config.batch_size


@pytest.mark.parametrize("normalise", ["batch", "table"])
def test_importance_weights_are_n_p_to_minus_beta_over_the_largest_of_batch_or_table(harness, normalise):
    client, _, _, config = harness(acts=30)
    everything = client.sample_batch("replay", 20_000, timeout=0).info.probability
    batch = client.sample_batch("replay", 16, timeout=0)
    raw = (batch.info.table_size * batch.info.probability) ** -config.importance_exponent
    size = batch.info.table_size[0]
    largest = raw.max() if normalise == "batch" else (size * everything.min()) ** -config.importance_exponent
    weights = batch.weights(config.importance_exponent, normalise=normalise)
    np.testing.assert_allclose(weights, raw / largest, rtol=1e-9)


def test_a_learner_does_not_wait_for_a_batch(harness):
    _, learner, _, _ = harness(limiter=reverie.rate_limiters.MinSize(10_000), acts=5)
    with pytest.raises(reverie.DeadlineExceededError, match=r"10.?000"):
        learner.learn()
    assert learner.version == 0
