import copy
import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie.agents.core import Stopwatch  # noqa: E402
from reverie.agents.discrete import falling_epsilon  # noqa: E402
from reverie.agents.dqn import agent as dqn  # noqa: E402
from reverie.agents.dqn.loss import dqn_loss, q_learning_target  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402

SPEC = describe("CartPole-v1")
CONFIG = dqn.load_preset("CartPole-v1").config


def tensors(*arrays):
    return [torch.tensor(a) for a in arrays]


def test_the_target_is_the_reward_and_the_discounted_maximum_or_the_reward_alone_where_the_episode_terminated():
    r_t, discount_t, q_t = tensors([1.0, 2.0], [0.5, 0.0], [[10.0, 30.0, 20.0], [7.0, 8.0, 9.0]])
    assert q_learning_target(r_t, discount_t, q_t).tolist() == [16.0, 2.0]


def test_a_hand_worked_batch_gives_its_loss():
    # td: 1 + 0.9 * 3 - 0.5 = 3.2, and -1 - (-0.6) = -0.4; huber with delta 1: 2.7 and 0.08; their mean
    batch = tensors([[0.5, 9.0], [7.0, -0.6]], [0, 1], [1.0, -1.0], [0.9, 0.0], [[2.0, 3.0], [4.0, 5.0]])
    assert dqn_loss(*batch, huber_delta=1.0).item() == pytest.approx(1.39)


def test_the_gradient_is_that_of_finite_differences_and_none_reaches_the_target():
    rng = np.random.default_rng(0)
    q_tm1, q_t = (torch.tensor(rng.normal(size=(8, 3)) * 3, requires_grad=True) for _ in range(2))
    a_tm1, r_t, discount_t = tensors(rng.integers(3, size=8), rng.normal(size=8), rng.choice([0.0, 0.9], size=8))

    def loss(q):
        return dqn_loss(q, a_tm1, r_t, discount_t, q_t.detach(), huber_delta=1.0)

    assert torch.autograd.gradcheck(loss, q_tm1, eps=1e-6, atol=1e-7)
    dqn_loss(q_tm1, a_tm1, r_t, discount_t, q_t, huber_delta=1.0).backward()
    assert q_t.grad is None


def test_epsilon_falls_in_a_line_and_then_stays():
    config = dataclasses.replace(CONFIG, epsilon_start=1.0, epsilon_end=0.1, epsilon_steps=100)
    assert [falling_epsilon(step, config) for step in (0, 50, 100, 10_000)] == pytest.approx([1.0, 0.55, 0.1, 0.1])


@pytest.mark.long
def test_environments_explore_with_probability_epsilon(make_fake_replay):
    config = dataclasses.replace(CONFIG, epsilon_start=0.4, epsilon_end=0.4)
    replay = make_fake_replay(max_size=50_000)
    learner = dqn.make_learner(SPEC, config, replay, seed=0, watch=Stopwatch())
    actor = dqn.make_actor(SPEC, config, replay, learner, index=0, seed=0, watch=Stopwatch())
    acts = 500
    for _ in range(acts):
        actor.act()
    actor.close()
    policy = dqn.make_policy(SPEC, config)
    policy.load(learner.latest(-1))
    departed = sum(int((row["action"] != policy(row["obs"])).sum()) for row in replay.writers[0].log)
    draws, share = acts * config.envs_per_actor, 0.4 / 2  # half of the random actions of two are the greedy one
    bound = 5 * np.sqrt(draws * share * (1 - share))
    assert abs(departed - draws * share) < bound
    # The twin: random actions that are never the greedy one. And one that is wrong by a third.
    assert abs(departed - draws * 2 * share) > abs(departed - draws * share * 4 / 3) > bound


@pytest.mark.long
@pytest.mark.parametrize("num_actors", [1, 4])
def test_each_actor_counts_the_steps_of_all_actors_for_epsilon(make_fake_replay, num_actors):
    """Epsilon decays with the steps of the run, of which each of four actors makes a quarter."""
    config = dataclasses.replace(
        CONFIG, epsilon_start=1.0, epsilon_end=0.0, epsilon_steps=800, num_actors=num_actors, envs_per_actor=2
    )
    replay = make_fake_replay(max_size=50_000)
    learner = dqn.make_learner(SPEC, config, replay, seed=0, watch=Stopwatch())
    actor = dqn.make_actor(SPEC, config, replay, learner, index=0, seed=0, watch=Stopwatch())
    policy = dqn.make_policy(SPEC, config)
    policy.load(learner.latest(-1))
    last = 0
    for _ in range(600):
        before = actor.env_steps
        actor.act()
        row = replay.writers[0].log[-1]
        if (row["action"] != policy(row["obs"])).any():
            last = before
    actor.close()
    # It departs until the known steps of the run are 800, and one in ten actions departs at the end or before.
    assert 800 // num_actors * 0.6 < last < 800 // num_actors


def test_the_target_follows_the_online_network_only_every_target_period(make_fake_replay, networks_of):
    config = dataclasses.replace(CONFIG, target_period=3)
    replay = filled(make_fake_replay)
    learner = dqn.make_learner(SPEC, config, replay, seed=0, watch=Stopwatch())
    first = networks_of(learner)["target"]
    for _ in range(2):
        learner.learn()
    assert (networks_of(learner)["target"] == first).all()
    learner.learn()
    networks = networks_of(learner)
    assert (networks["target"] == networks["online"]).all()
    assert (networks["target"] != first).any()


def filled(make_fake_replay):
    replay = make_fake_replay(max_size=1_000, priority_exponent=0.0)
    rng = np.random.default_rng(1)
    for _ in range(300):
        obs, next_obs = rng.normal(size=(2, 4)).astype(np.float32)
        numbers = {"action": np.int64(rng.integers(2)), "reward": np.float32(rng.normal()), "discount": np.float32(0.9)}
        replay.insert({"obs": obs, "next_obs": next_obs, "weights_version": np.int64(0), **numbers}, priority=1.0)
    return replay


def test_loading_a_state_does_not_change_it(make_fake_replay, networks_of):
    config = dataclasses.replace(CONFIG, target_period=3)
    replay = filled(make_fake_replay)
    first, second = (dqn.make_learner(SPEC, config, replay, seed=seed, watch=Stopwatch()) for seed in (0, 1))
    for _ in range(2):
        first.learn()
    state = first.state_dict()
    kept = copy.deepcopy(state)
    second.load_state_dict(state)
    second.learn()
    first.learn()
    for name, optimizer in kept["optimizers"].items():
        now = state["optimizers"][name]
        assert now["step"] == optimizer["step"]
        for moment in ("exp_avg", "exp_avg_sq"):
            for parameter, value in optimizer[moment].items():
                assert (now[moment][parameter] == value).all(), (moment, parameter)
    for name, flat in networks_of(kept).items():
        assert (networks_of(state)[name] == flat).all()
