import dataclasses

import numpy as np
import pytest

pytest.importorskip("torch")

import reverie
from reverie.agents.apex_dqn import agent as apex_dqn
from reverie.agents.apex_dqn.networks import GreedyPolicy, make_network
from reverie.agents.core import Stopwatch, Weights
from reverie.agents.environments import describe
from reverie.agents.epsilon_ladder import epsilon_ladder


class Shelf:
    """A source of weights that the test fills."""

    def __init__(self):
        self.weights, self.asked = None, []

    def latest(self, newer_than):
        self.asked.append(newer_than)
        return self.weights if self.weights is not None and self.weights.version > newer_than else None


@pytest.fixture
def setting(make_fake_replay):
    """A function that makes an actor on a fake replay, with changes to the CartPole preset."""
    actors = []

    def make(env_id="CartPole-v1", *, index=0, seed=0, weights=None, **changes):
        config = dataclasses.replace(apex_dqn.load_preset("CartPole-v1").config, **changes)
        replay = make_fake_replay(max_size=50_000)
        source = Shelf()
        source.weights = weights
        actor = apex_dqn.make_actor(describe(env_id), config, replay, source, index=index, seed=seed, watch=Stopwatch())
        actors.append(actor)
        return actor, replay, source, config

    yield make
    for actor in actors:
        actor.close()


def test_the_rungs_of_all_actors_together_are_the_ladder(setting):
    rungs = [setting(index=i, num_actors=4, envs_per_actor=3, epsilon_base=0.4)[0].epsilons for i in range(4)]
    assert np.concatenate(rungs) == pytest.approx(epsilon_ladder(12, 0.4, 7.0))
    assert len(set(np.concatenate(rungs))) == 12


def test_an_actor_outside_the_ladder_is_refused(setting):
    with pytest.raises(ValueError, match=r"actor 2 of 2"):
        setting(index=2, num_actors=2)


@pytest.mark.long
def test_each_environment_explores_with_its_own_epsilon(setting):
    actor, replay, _, config = setting(num_actors=1, envs_per_actor=4, epsilon_base=0.4, epsilon_alpha=3.0)
    acts = 1_500
    for _ in range(acts):
        actor.act()
    policy = GreedyPolicy(describe("CartPole-v1"), config)
    departed = sum(row["action"] != policy(row["obs"]) for row in replay.writers[0].log)
    expected = actor.epsilons * 0.5  # half of the random actions of two are the greedy one
    sigma = np.sqrt(acts * expected * (1 - expected))
    assert (np.abs(departed - acts * expected) < 5 * sigma).all()
    # The check can tell: none of the others departs as often as the first.
    as_the_first = np.abs(departed - acts * expected[0]) < 5 * sigma[0]
    assert as_the_first.tolist() == [True, False, False, False]


@pytest.mark.long
def test_epsilon_of_a_single_environment_decays(setting):
    actor, replay, _, config = setting(num_actors=1, envs_per_actor=1, single_env_decay_steps=2_000, epsilon_base=0.4)
    while actor.act() + actor.env_steps < 4_000:
        pass
    policy = GreedyPolicy(describe("CartPole-v1"), config)
    departed = np.array([(row["action"] != policy(row["obs"]))[0] for row in replay.writers[0].log])
    early, late = departed[:500], departed[2_500:]
    assert early.mean() > config.epsilon_alone(500) / 2 * 0.5
    assert late.mean() < 0.05


def test_q_taken_and_bootstrap_value_are_those_of_the_observation_appended(setting):
    spec = describe("CartPole-v1")
    network = make_network(spec, apex_dqn.load_preset("CartPole-v1").config, seed=9, trainable=False)
    actor, replay, _, config = setting(weights=Weights(7, network.numpy()))
    for _ in range(100):
        actor.act()
    policy = GreedyPolicy(spec, config)
    policy.load(Weights(7, network.numpy()))
    for row in replay.writers[0].log:
        q = policy.q_values(row["obs"])
        assert row["v"] == pytest.approx(q.max(axis=1))
        assert row["q"] == pytest.approx(q[np.arange(4), row["action"]])
        assert (row["extras"]["weights_version"] == 7).all()


def test_weights_are_pulled_by_version_once_per_period(setting):
    spec = describe("CartPole-v1")
    flat = make_network(spec, apex_dqn.load_preset("CartPole-v1").config, seed=9, trainable=False).numpy()
    actor, replay, shelf, _ = setting(weights_period=5)
    for act in range(20):
        if act == 7:
            shelf.weights = Weights(3, flat)
        actor.act()
    assert shelf.asked == [-1, -1, -1, 3]
    versions = [int(row["extras"]["weights_version"][0]) for row in replay.writers[0].log]
    assert versions == [-1] * 10 + [3] * 10


def test_a_restored_actor_pulls_weights_in_its_first_act_or_as_soon_as_there_are_some(setting):
    spec = describe("CartPole-v1")
    flat = make_network(spec, apex_dqn.load_preset("CartPole-v1").config, seed=9, trainable=False).numpy()
    for published in (0, 2):
        actor, replay, shelf, _ = setting(weights_period=5)
        actor.load_state_dict({**actor.state_dict(), "acts": 6})
        for act in range(6):
            if act == published:
                shelf.weights = Weights(3, flat)
            actor.act()
        assert shelf.asked == [-1] * (published + 1) + [3], "once it has weights, it asks every fifth act"
        versions = [int(row["extras"]["weights_version"][0]) for row in replay.writers[0].log]
        assert versions == [-1] * published + [3] * (6 - published)


def test_reset_steps_are_neither_counted_nor_part_of_a_return(setting, counting_env):
    env_id, length, _ = counting_env
    actor, _, _, _ = setting(env_id, num_actors=1, envs_per_actor=2)
    counts = [actor.act() for _ in range(3 * (length + 1))]
    assert counts == ([2] * length + [0]) * 3
    assert actor.drain_returns() == [sum(range(1, length + 1))] * 6
    assert actor.drain_returns() == []


def test_items_end_where_the_episode_does_and_bootstrap_only_through_truncation(setting, counting_env):
    env_id, length, terminates = counting_env
    actor, replay, _, _ = setting(env_id, num_actors=1, envs_per_actor=1, n_step=3, discount=0.9)
    for _ in range(2 * (length + 1)):
        actor.act()
    columns = {name: column[: replay.inserts] for name, column in replay.columns.items()}
    assert replay.inserts == 2 * length
    for i in range(replay.inserts):
        episode, step = divmod(i, length)
        end = min(step + 3, length)
        assert columns["obs"][i].tolist() == [episode, step]
        assert columns["next_obs"][i].tolist() == [episode, end]
        assert columns["reward"][i] == pytest.approx(sum(0.9**k * (step + 1 + k) for k in range(end - step)))
        assert columns["discount"][i] == pytest.approx(0.0 if terminates and end == length else 0.9 ** (end - step))


def test_one_seed_gives_one_run_and_another_gives_another(setting):
    def actions(seed):
        actor, replay, _, _ = setting(seed=seed)
        for _ in range(50):
            actor.act()
        return np.stack([row["action"] for row in replay.writers[0].log])

    assert (actions(3) == actions(3)).all()
    assert (actions(3) != actions(4)).any()


def test_closing_an_actor_does_not_wait_for_a_full_table(setting):
    config = apex_dqn.load_preset("CartPole-v1").config
    limiter = reverie.rate_limiters.SampleToInsertRatio(1.0, 4, error_buffer=2.0)
    (table,) = apex_dqn.make_tables(describe("CartPole-v1"), config, seed=0)
    with reverie.Server([table.replace(rate_limiter=limiter)], listen=False) as server:
        actor = apex_dqn.make_actor(
            describe("CartPole-v1"), config, server.client(), Shelf(), index=0, seed=0, watch=Stopwatch()
        )
        for _ in range(10):
            actor.act()
        actor.close()
        assert server.client().info().tables["replay"].num_inserts < 10
