"""Environments that are vectors already: every autoreset mode, seeds, and wrappers."""

import dataclasses

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorObservationWrapper
from vector_envs import MODES, Counting, Nested, next_step, of_mode

import reverie
from reverie import agents
from reverie.agents.core import RunSettings, Stopwatch
from reverie.agents.env_ids import id_of
from reverie.agents.env_settings import EnvSettings
from reverie.agents.environments import describe, make_one, make_vector
from reverie.agents.unrolls import UnrollRows
from reverie.runners import Evaluator, plan, train


def stepped(agent_name, env, acts, *, num_envs=3, environment=None, seed=0, **changes):
    """An agent's actor after `acts` calls, its table's client, and the actor's configuration."""
    agent = agents.find(agent_name)
    spec = describe(env, environment)
    config = agent.load_preset("CartPole-v1").config
    config = dataclasses.replace(config, num_actors=1, envs_per_actor=num_envs, **changes)
    tables = agent.make_tables(spec, config, seed=0)
    free = [one.replace(rate_limiter=reverie.rate_limiters.MinSize(1)) for one in tables]
    server = reverie.Server(tables if agent_name in ("ppo", "impala") else free, listen=False)
    client = server.client(timeout=0)
    learner = agent.make_learner(spec, config, client, seed=1, watch=Stopwatch())
    actor = agent.make_actor(spec, config, client, learner, index=0, seed=2, watch=Stopwatch())
    if seed is not None:
        actor._begin(seed)
    for _ in range(acts):
        actor.act()
    return actor, client, config, server


def items(agent_name, env, acts, **changes):
    """All different items that an actor has written, as (obs, next_obs, reward, discount)."""
    actor, client, config, _ = stepped(agent_name, env, acts, learning_starts=1, **changes)
    actor.close()
    data = client.sample_batch("replay", 4000, timeout=10).data
    rows = np.column_stack([data["obs"], data["next_obs"], data["reward"], data["discount"]])
    return {tuple(np.round(row, 4).tolist()) for row in rows}, config


@pytest.mark.parametrize("mode", MODES)
def test_transitions_end_in_the_true_last_observation_and_none_spans_two_episodes(mode):
    found, config = items("dqn", of_mode(mode), 30)
    for episode, t, next_episode, next_t, reward, discount in found:
        place, number = int(episode) % 1000, int(episode) // 1000
        assert next_episode == episode
        assert next_t == t + 1 == reward
        ends = next_t == 2 + place
        assert discount == pytest.approx(0.0 if ends and number % 2 == 0 else config.discount)
    # Whole episodes: none of their steps is missing.
    for place in range(3):
        assert {(place + 1000.0 * k, float(t)) for k in range(4) for t in range(2 + place)} <= {
            one[:2] for one in found
        }


@pytest.mark.parametrize("mode", MODES)
def test_items_of_several_steps_stay_within_their_episode(mode):
    """Ape-X computes values of last observations for first priorities, where an episode was truncated."""
    found, config = items("apex-dqn", of_mode(mode), 40, n_step=3)
    for episode, t, next_episode, next_t, _, discount in found:
        place, number = int(episode) % 1000, int(episode) // 1000
        end = 2 + place
        assert next_episode == episode
        assert next_t == min(t + 3, end)
        terminated = next_t == end and number % 2 == 0
        assert discount == pytest.approx(0.0 if terminated else config.discount ** (next_t - t), abs=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_returns_and_steps_of_episodes_are_counted(mode):
    actor, *_ = stepped("dqn", of_mode(mode), 12)
    reset = 1 if mode == "NEXT_STEP" else 0
    episodes = [12 // (2 + i + reset) + (12 % (2 + i + reset) == 2 + i) for i in range(3)]
    expected = sorted(sum(range(1, 3 + i)) for i in range(3) for _ in range(episodes[i]))
    assert sorted(actor.drain_returns()) == expected
    assert actor.env_steps == 36 - sum(12 // (3 + i) for i in range(3)) * reset


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["ppo", "impala"])
def test_unrolls_of_every_mode_are_the_same(name, mode):
    """There is one environment; a reset has a row of its own, with the true last observation."""
    small = {"unroll_length": 11} | ({"batch_size": 1} if name == "impala" else {})
    actor, client, config, _ = stepped(name, of_mode(mode), 0, num_envs=1, **small)
    while client.info().tables["unrolls"].num_inserts == 0:
        actor.act()
    data = client.sample_batch("unrolls", 1, timeout=10).data
    t = np.arange(11)
    step, episode = t % 3, t // 3
    assert data["obs"][0, :11, 1].tolist() == step.tolist()
    assert data["obs"][0, :11, 0].tolist() == (1000 * episode).tolist()
    assert data["is_step"][0].tolist() == (step != 2).tolist()
    assert data["ended"][0].tolist() == (step == 1).tolist()
    assert data["reward"][0].tolist() == [(1, 2, 0)[s] for s in step]
    gamma = np.float32(config.discount)
    assert data["discount"][0].tolist() == [0 if s == 1 and e % 2 == 0 else gamma for s, e in zip(step, episode)]  # noqa: B905
    if name == "impala":
        assert data["obs"][0, 11, 1] == 2, "the unroll ends before the last observation of an episode"
    else:
        assert data["value"][0, 2] == pytest.approx(actor._policy.values(data["obs"][0, 2:3])[0], abs=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_unrolls_of_environments_with_unequal_episodes_have_no_gap(mode):
    actor, client, _, _ = stepped("impala", of_mode(mode), 0, batch_size=3, unroll_length=16, queue_capacity=5)
    while client.info().tables["unrolls"].num_inserts < 3:
        actor.act()
    data = client.sample_batch("unrolls", 3, timeout=10).data
    for row in range(3):
        obs, is_step, ended = (data[name][row] for name in ("obs", "is_step", "ended"))
        for t in range(16):
            if is_step[t]:
                assert obs[t + 1, 1] == obs[t, 1] + 1
                assert obs[t + 1, 0] == obs[t, 0]
            else:
                assert ended[t - 1]
                assert obs[t + 1].tolist() == [obs[t, 0] + 1000, 0]


def test_rows_of_a_full_unroll_are_left_out_until_all_are_full():
    rows = UnrollRows(2, 2)
    for k in range(2):
        rows.add({"x": np.array([k, 10 + k])}, np.array([[k], [k]]), np.array([True, True]) if k == 0 else None)
        if k == 0:
            rows.add({"x": np.array([7])}, np.array([[70], [71]]), np.array([True, False]))
    assert rows.full
    taken, after = rows.take()
    assert taken["x"].tolist() == [[0, 7], [10, 11]]
    assert after.tolist() == [[70], [1]]
    assert rows.empty


def test_environments_begin_with_the_seed_and_their_number_is_that_of_the_preset():
    actor, *_ = stepped("dqn", of_mode("NEXT_STEP"), 0, num_envs=5, seed=None)
    assert actor._obs[:, 0].tolist() == [np.float32(actor._seed + i) for i in range(5)]


class Lucky(Counting):
    """Ignores the seed of a reset, as libraries do that take seeds only when environments are made."""

    def reset(self, *, seed=None, options=None):
        assert seed is None
        return super().reset(seed=self.first, options=options)


def lucky(num_envs, seed=7):
    envs = Lucky(num_envs, "NEXT_STEP")
    envs.first = seed
    return envs


def test_a_factory_with_a_seed_is_called_again_for_each_reset_with_one():
    spec = describe(lucky)
    env = make_one(spec)
    assert [env.reset(seed=seed)[0][0] for seed in (50, 60, 50)] == [50, 60, 50]
    assert make_vector(spec, 2).reset(seed=40)[0][:, 0].tolist() == [40, 41]


@pytest.mark.parametrize("mode", MODES)
def test_evaluations_see_whole_episodes(mode):
    seen = []

    def policy(observations):
        seen.append(observations.copy())
        return np.zeros(len(observations), np.int64)

    evaluator = Evaluator(describe(of_mode(mode)), 3)
    assert evaluator.evaluate(policy, (4, 5, 6)).returns == (3.0, 3.0, 3.0)
    assert [one.tolist() for one in seen] == [[[4, 0], [5, 0], [6, 0]], [[4, 1], [5, 1], [6, 1]]]
    env = make_one(of_mode(mode))
    env.reset(seed=9)
    env.step(0)
    last, _, terminated, _, _ = env.step(0)
    assert terminated
    assert last.tolist() == [9, 2]


def synchronous(num_envs):
    return SyncVectorEnv([Nested] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def apart(num_envs):
    return AsyncVectorEnv([Nested] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def disabled(num_envs):
    return SyncVectorEnv([Nested] * num_envs, autoreset_mode=AutoresetMode.DISABLED)


@pytest.mark.long
@pytest.mark.parametrize("factory", [synchronous, apart, disabled])
def test_vectors_of_gymnasium_with_nested_observations_are_rows_with_true_ends(factory):
    spec = describe(factory)
    single = gymnasium.register("ReverieNested-v0", Nested) or describe("ReverieNested-v0")
    assert dataclasses.replace(spec, env_id="") == dataclasses.replace(single, env_id="")
    envs = make_vector(spec, 2)
    first, _ = envs.reset(seed=1)
    for _ in range(4):
        rows, _, _, truncated, info = envs.step(np.zeros((2, 1), np.float32))
    envs.close()
    assert truncated.all()
    assert rows.dtype == np.uint8, "numbers next to categories are bytes"
    assert np.array_equal(rows, first)
    env = make_one(spec)
    env.reset(seed=1)
    assert np.array_equal([env.step([0.0])[0] for _ in range(4)][-1], info["final_obs"][0])
    env.close()


class Halved(VectorObservationWrapper):
    def observations(self, observations):
        return observations / 2


def test_wrappers_of_vectors_wrap_actors_and_evaluators():
    settings = EnvSettings(wrappers=(Halved,))
    spec = describe(next_step, settings)
    assert make_vector(spec, 1).reset(seed=8)[0].tolist() == [[4, 0]]
    assert make_one(spec).reset(seed=8)[0].tolist() == [4, 0]


def test_a_factory_has_the_name_under_which_other_processes_import_it():
    assert id_of(next_step) == "vector_envs:next_step"
    assert plan(agents.find("dqn"), next_step).env.env_id == "vector_envs:next_step"
    with pytest.raises(TypeError, match="is a lambda or defined within a function"):
        describe(lambda num_envs: None)


def test_an_id_that_is_registered_as_a_vector_only_is_one():
    gymnasium.register("ReverieVectorOnly-v0", vector_entry_point=next_step, reward_threshold=3.0)
    spec = describe("ReverieVectorOnly-v0")
    assert spec.reward_threshold == 3.0
    assert make_vector(spec, 4).reset(seed=2)[0][:, 0].tolist() == [2, 3, 4, 5]


@pytest.mark.long
@pytest.mark.parametrize("name", ["dqn", "ppo"])
def test_runs_on_a_factory_train_and_evaluations_leave_their_statistics(name, monkeypatch):
    found = []
    evaluate = Evaluator.evaluate

    def watched(self, policy, *rest):
        before = [one.detach().clone() for one in policy.module.parameters()]
        result = evaluate(self, policy, *rest)
        found.append(all(torch.equal(a, b) for a, b in zip(before, policy.module.parameters(), strict=True)))
        return result

    monkeypatch.setattr(Evaluator, "evaluate", watched)
    agent = agents.find(name)
    preset = agent.load_preset("CartPole-v1")
    config = preset.config if name == "ppo" else dataclasses.replace(preset.config, learning_starts=100)
    run = RunSettings(
        target_return=None, max_env_steps=1200, evaluate_every=600, screening_episodes=2, confirmation_episodes=2
    )
    environment = EnvSettings(normalise_observations=True, normalise_rewards=True)
    result = train(agent, of_mode("SAME_STEP"), config=config, run=run, environment=environment)
    assert result.learner["updates"] > 0
    assert found
    assert all(found)
