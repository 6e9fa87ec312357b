"""The buffers for Stable-Baselines3, with SB3's own as the model: the same steps in, the same transitions out."""

from __future__ import annotations

import itertools
import pickle

import pytest

pytest.importorskip("stable_baselines3")

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common import buffers as sb3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

import reverie
from reverie.integrations.stable_baselines3 import DictReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer

BOX, BOX4 = (spaces.Box(-10, 10, (size,), np.float32) for size in (3, 4))
PARTS = spaces.Dict({"image": spaces.Box(0, 255, (2, 2), np.uint8), "place": spaces.Discrete(50)})
DISCRETE, CONTINUOUS = spaces.Discrete(4), spaces.Box(-1, 1, (2,), np.float64)


def steps(count, n_envs=1, space=BOX, actions=DISCRETE, seed=0):
    """The calls of `add` of environments whose episodes end by themselves or by their time limit."""
    rng = np.random.default_rng(seed)
    space.seed(seed)

    def observe():
        rows = [space.sample() for _ in range(n_envs)]
        if isinstance(space, spaces.Dict):
            return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        return np.stack(rows)

    obs = observe()
    for _ in range(count):
        drawn, next_obs = rng.random(n_envs), observe()
        done, late = drawn < 0.2, drawn < 0.1
        action = np.stack([rng.integers(4) if actions is DISCRETE else rng.normal(size=2) for _ in range(n_envs)])
        infos = [{"TimeLimit.truncated": True} if cut else {} for cut in late]
        yield obs, next_obs, action, rng.normal(size=n_envs), done, infos
        # A new episode begins with an observation of its own.
        fresh = observe()
        if isinstance(space, spaces.Dict):
            obs = {name: part.copy() for name, part in next_obs.items()}
            for name in obs:
                obs[name][done] = fresh[name][done]
        else:
            obs = next_obs.copy()
            obs[done] = fresh[done]


def rows(samples):
    """The sampled transitions as a set of bytes, each field with its dtype and shape."""
    columns = []
    for field in (samples.observations, samples.actions, samples.next_observations, samples.dones, samples.rewards):
        columns += list(field.values()) if isinstance(field, dict) else [field]
    if samples.discounts is not None:
        columns.append(samples.discounts)
    parts = [np.ascontiguousarray(column.numpy().round(5)) for column in columns]
    kinds = tuple((str(part.dtype), part.shape[1:]) for part in parts)
    rows = np.concatenate([part.reshape(len(part), -1).view(np.uint8) for part in parts], axis=1)
    return {(kinds, row) for row in map(bytes, rows)}


def filled(kind, count=40, capacity=1000, n_envs=1, space=BOX, actions=DISCRETE, stream=0, **options):
    buffer = kind(capacity, space, actions, "cpu", n_envs=n_envs, **options)
    buffer.extend(*zip(*steps(count, n_envs, space, actions, stream), strict=True))
    return buffer


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("actions", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])
@pytest.mark.parametrize("timeouts", [True, False])
@pytest.mark.parametrize("capacity", [1000, 30])
def test_the_same_steps_give_the_transitions_of_sb3(n_envs, actions, timeouts, capacity):
    options = {"n_envs": n_envs, "actions": actions, "capacity": capacity, "handle_timeout_termination": timeouts}
    ours, model = filled(ReplayBuffer, **options), filled(sb3.ReplayBuffer, **options)
    assert (ours.size(), ours.buffer_size, ours.pos, ours.full) == (
        model.size(),
        model.buffer_size,
        model.pos,
        model.full,
    )
    assert rows(ours.sample(3000)) == rows(model.sample(3000))


@pytest.mark.parametrize("n_envs", [1, 2])
def test_dict_observations_give_the_transitions_of_sb3(n_envs):
    ours = filled(DictReplayBuffer, space=PARTS, n_envs=n_envs)
    assert rows(ours.sample(3000)) == rows(filled(sb3.DictReplayBuffer, space=PARTS, n_envs=n_envs).sample(3000))


def test_discrete_observations_give_the_transitions_of_sb3():
    space = spaces.Discrete(9)
    ours = filled(ReplayBuffer, space=space, n_envs=2)
    assert rows(ours.sample(3000)) == rows(filled(sb3.ReplayBuffer, space=space, n_envs=2).sample(3000))


def test_shared_observations_give_the_transitions_of_sb3_with_optimize_memory_usage():
    options = {"optimize_memory_usage": True, "handle_timeout_termination": False}
    # SB3 overwrites the last observation of an episode with the first of the next one: compared without episode ends.
    ours, model = (
        ReplayBuffer(100, BOX, DISCRETE, "cpu", **options),
        sb3.ReplayBuffer(100, BOX, DISCRETE, "cpu", **options),
    )
    walk = np.random.default_rng(1).normal(size=(40, 1, 3)).astype(np.float32)
    for now, after in itertools.pairwise(walk):
        for buffer in (ours, model):
            buffer.add(now, after, np.array([1]), np.array([0.5]), np.array([False]), [{}])
    assert rows(ours.sample(2000)) == rows(model.sample(2000))


def test_each_observation_is_stored_once():
    space = spaces.Box(0, 255, (64, 64), np.uint8)
    ours = ReplayBuffer(100, space, DISCRETE, "cpu", compression="none")
    frames = np.random.default_rng(1).integers(0, 255, (51, 1, 64, 64), dtype=np.uint8)
    for now, after in itertools.pairwise(frames):
        ours.add(now, after, np.array([0]), np.array([0.0]), np.array([False]), [{}])
    stored = ours.client.server_info()["replay"].size_bytes
    assert 51 * 64 * 64 <= stored < 1.2 * 51 * 64 * 64


def test_observations_that_are_changed_after_add_stay_as_they_were():
    ours = ReplayBuffer(100, BOX, DISCRETE, "cpu")
    obs, next_obs = np.zeros((1, 3), np.float32), np.ones((1, 3), np.float32)
    ours.add(obs, next_obs, np.array([0]), np.array([0.0]), np.array([False]), [{}])
    next_obs[:] = 7
    ours.add(next_obs, np.full((1, 3), 8.0, np.float32), np.array([0]), np.array([0.0]), np.array([False]), [{}])
    drawn = ours.sample(200)
    assert set(drawn.observations[:, 0].tolist()) == {0.0, 7.0}
    assert set(drawn.next_observations[:, 0].tolist()) == {1.0, 8.0}


@pytest.mark.parametrize("n_envs", [1, 2])
@pytest.mark.parametrize("timeouts", [True, False])
def test_n_step_transitions_are_those_of_sb3_but_for_the_windows_that_are_not_complete(n_envs, timeouts):
    options = {"n_steps": 3, "gamma": 0.9, "n_envs": n_envs, "handle_timeout_termination": timeouts}
    ours, model = filled(ReplayBuffer, **options), filled(sb3.NStepReplayBuffer, **options)
    open_windows = sum(len(trajectory._pending) for trajectory in ours._trajectories)
    assert 0 < open_windows <= 2 * n_envs
    got, want = rows(ours.sample(4000)), rows(model.sample(4000))
    assert got < want
    assert len(want - got) == open_windows
    # Once the trajectories end, the short windows are there too.
    ours.dones[0] = True
    assert rows(ours.sample(4000)) == want


@pytest.mark.parametrize("n_envs", [1, 2])
def test_a_full_buffer_of_n_step_transitions_has_the_newest(n_envs):
    options = {"n_steps": 3, "gamma": 0.9, "n_envs": n_envs}
    ours = filled(ReplayBuffer, capacity=30, **options)
    ours.dones[0] = True
    got = rows(ours.sample(4000))
    assert len(got) == 30
    if n_envs == 1:
        assert got == rows(filled(sb3.NStepReplayBuffer, capacity=30, **options).sample(4000))
    # Environments whose windows were completed later have later transitions: 30 of the newest 34.
    assert got < rows(filled(sb3.NStepReplayBuffer, capacity=34, **options).sample(4000))


def test_an_episode_that_begins_where_the_last_one_ended_is_another_trajectory():
    options = {"space": spaces.Discrete(1), "n_steps": 3, "gamma": 0.9}
    ours, model = filled(ReplayBuffer, **options), filled(sb3.NStepReplayBuffer, **options)
    ours.dones[0] = True
    assert rows(ours.sample(4000)) == rows(model.sample(4000))


def test_vec_normalize_normalises_observations_and_each_reward():
    env = VecNormalize(make_vec_env("CartPole-v1"), clip_reward=0.7)
    env.obs_rms.mean, env.ret_rms.var = np.arange(4.0), np.float64(0.25)
    space = env.observation_space
    for options, model in (
        ({}, sb3.ReplayBuffer),
        ({"n_steps": 3, "gamma": 0.9}, sb3.NStepReplayBuffer),
    ):
        ours, theirs = filled(ReplayBuffer, space=BOX4, **options), filled(model, space=BOX4, **options)
        ours.dones[0] = True
        assert rows(ours.sample(3000, env)) == rows(theirs.sample(3000, env))
        assert rows(ours.sample(3000, env)) != rows(theirs.sample(3000))
    assert space.shape == BOX4.shape
    env.close()


def test_a_gamma_argument_is_the_discount_of_single_steps():
    assert set(filled(ReplayBuffer, gamma=0.5).sample(10).discounts.flatten().tolist()) == {0.5}
    assert filled(ReplayBuffer).sample(10).discounts is None


def test_saved_transitions_come_back_with_their_options_and_go_on(tmp_path):
    ours = filled(ReplayBuffer, n_envs=2, n_steps=3, gamma=0.9)
    ours.dones[0] = True
    again = pickle.loads(pickle.dumps(ours))
    del ours.__dict__["_table"]
    model = filled(sb3.NStepReplayBuffer, n_envs=2, n_steps=3, gamma=0.9)
    assert rows(again.sample(4000)) == rows(model.sample(4000))
    assert again.size() == 40
    again.extend(*zip(*steps(40, 2, seed=9), strict=True))
    assert again.size() > 70


def test_priorities_are_saved_too():
    ours = filled(PrioritizedReplayBuffer, count=4, alpha=1.0)
    keys = np.unique(ours.sample(200).keys)
    ours.update_priorities(keys, np.arange(4) == 2)
    again = pickle.loads(pickle.dumps(ours))
    assert set(again.sample(300).keys.tolist()) >= {int(keys[2])}
    assert np.mean(again.sample(300).keys == keys[2]) > 0.98


def test_a_reset_buffer_is_empty_and_takes_new_steps():
    ours = filled(ReplayBuffer, n_steps=3, gamma=0.9)
    ours.reset()
    assert (ours.size(), ours.pos, ours.full) == (0, 0, False)
    with pytest.raises(ValueError, match="no complete transition"):
        ours.sample(1)
    ours.extend(*zip(*steps(5, seed=3), strict=True))
    assert ours.size() > 0


def test_a_seed_fixes_the_draws_and_pytorch_gives_one():
    def drawn(**options):
        return filled(ReplayBuffer, **options).sample(50).rewards.flatten().tolist()

    assert drawn(seed=1) == drawn(seed=1) != drawn(seed=2)

    def seeded(number):
        torch.manual_seed(number)
        return drawn()

    assert seeded(1) == seeded(1) != seeded(2)


def test_a_server_holds_the_transitions_of_several_buffers():
    table = reverie.Table("replay", reverie.selectors.Uniform(), reverie.selectors.Fifo(), max_size=500)
    with reverie.Server([table]) as server:
        client = reverie.Client(server.address, transport="grpc")
        mine = filled(ReplayBuffer, server=client, n_envs=2)
        assert mine.size() == 40
        assert mine.buffer_size == 250
        model = filled(sb3.ReplayBuffer, n_envs=2)
        second = ReplayBuffer(7, BOX, DISCRETE, "cpu", n_envs=2, server=server.address)
        assert rows(second.sample(3000)) == rows(model.sample(3000))
        second.extend(*zip(*steps(10, 2, seed=5), strict=True))
        assert second.size() == mine.size() == 50
        client.close()


def test_several_servers_are_one_replay():
    def table():
        return reverie.Table("replay", reverie.selectors.Uniform(), reverie.selectors.Fifo(), max_size=500)

    with reverie.Server([table()], shard=0) as first, reverie.Server([table()], shard=1) as second:
        ours = filled(ReplayBuffer, server=[first.address, second.address], n_envs=2)
        assert ours.size() == 40
        assert ours.buffer_size == 500
        assert [server.tables[0].info.current_size for server in (first, second)] == [40, 40]
        assert rows(ours.sample(3000)) == rows(filled(sb3.ReplayBuffer, n_envs=2).sample(3000))
        ours.client.close()


def test_a_pickled_buffer_of_a_server_finds_its_transitions_there():
    table = reverie.Table("mine", reverie.selectors.Uniform(), reverie.selectors.Fifo(), max_size=500)
    with reverie.Server([table]) as server:
        mine = filled(ReplayBuffer, server=server.address, table="mine")
        again = pickle.loads(pickle.dumps(mine))
        again.extend(*zip(*steps(10, seed=5), strict=True))
        assert again.size() == mine.size() == 50


def test_invalid_options_are_refused_with_what_to_do():
    def make(kind=ReplayBuffer, space=BOX, **options):
        return kind(100, space, DISCRETE, "cpu", **options)

    for options, words in (
        ({"n_steps": 2}, "needs gamma"),
        ({"space": PARTS}, "DictReplayBuffer is for Dict"),
        ({"kind": DictReplayBuffer}, "use ReplayBuffer"),
        ({"kind": DictReplayBuffer, "space": PARTS, "frame_stack": 4}, "not for Dict spaces"),
        ({"frame_stack": 2}, "does not divide axis 0"),
        ({"frame_stack": 3, "stack_axis": 1}, "stack_axis is 1"),
        ({"server": "localhost:1", "seed": 3}, "seed is an option of the table in this process"),
        ({"server": "localhost:1", "compression": "lz4"}, "compression is an option"),
        ({"kind": PrioritizedReplayBuffer, "server": "localhost:1", "alpha": 0.5}, "alpha is an option"),
    ):
        with pytest.raises(ValueError, match=words):
            make(**options)


def test_a_table_of_a_server_is_checked_when_the_buffer_is_made():
    table = reverie.Table("replay", reverie.selectors.Uniform(), reverie.selectors.Fifo(), max_size=500)
    with reverie.Server([table]) as server:
        with pytest.raises(ValueError, match="needs a table with"):
            PrioritizedReplayBuffer(100, BOX, DISCRETE, "cpu", server=server.address)
        with pytest.raises(reverie.UnknownTableError, match="replay"):
            ReplayBuffer(100, BOX, DISCRETE, "cpu", server=server.address, table="other")


def stacked(count, length=4, axis=0, seed=0):
    """The steps of one environment whose observations are stacks of frames, as SB3's VecFrameStack makes them."""
    rng = np.random.default_rng(seed)

    def frame():
        return rng.integers(0, 255, (6, 6), dtype=np.uint8)

    blank = np.zeros((6, 6), np.uint8)
    frames = [blank] * (length - 1) + [frame()]
    for _ in range(count):
        following = [*frames[1:], frame()]
        done = rng.random() < 0.2
        obs, next_obs = np.stack(frames, axis)[None], np.stack(following, axis)[None]
        yield obs, next_obs, np.array([1]), rng.normal(size=1), np.array([done]), [{}]
        frames = [blank] * (length - 1) + [frame()] if done else following


@pytest.mark.parametrize("axis", [0, 2, -1])
@pytest.mark.parametrize("n_steps", [1, 3])
def test_stacks_of_frames_are_assembled_at_sampling(axis, n_steps):
    space = spaces.Box(0, 255, next(stacked(1, axis=axis))[0].shape[1:], np.uint8)
    options = {} if n_steps == 1 else {"n_steps": 3, "gamma": 0.9}
    ours = ReplayBuffer(200, space, DISCRETE, "cpu", frame_stack=4, stack_axis=axis, compression="none", **options)
    model = (sb3.ReplayBuffer if n_steps == 1 else sb3.NStepReplayBuffer)(200, space, DISCRETE, "cpu", **options)
    for buffer in (ours, model):
        buffer.extend(*zip(*stacked(100, axis=axis), strict=True))
    ours.dones[0] = True
    assert rows(ours.sample(3000)) == rows(model.sample(3000))


def test_each_frame_of_a_stack_is_stored_once():
    space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    ours = ReplayBuffer(200, space, DISCRETE, "cpu", frame_stack=4, compression="none")
    frames = np.random.default_rng(1).integers(0, 255, (104, 84, 84), dtype=np.uint8)
    for first in range(100):
        now, after = frames[first : first + 4][None], frames[first + 1 : first + 5][None]
        ours.add(now, after, np.array([0]), np.array([0.0]), np.array([False]), [{}])
    stored = ours.client.server_info()["replay"].size_bytes
    assert 104 * 84 * 84 <= stored < 1.1 * 104 * 84 * 84


def test_observations_that_do_not_continue_their_stack_are_stored_whole():
    ours, model = (
        kind(200, BOX4, DISCRETE, "cpu", **options)
        for kind, options in (
            (ReplayBuffer, {"frame_stack": 2, "n_steps": 3, "gamma": 0.9}),
            (sb3.NStepReplayBuffer, {"n_steps": 3, "gamma": 0.9}),
        )
    )
    for buffer in (ours, model):
        buffer.extend(*zip(*steps(60, space=BOX4), strict=True))
    ours.dones[0] = True
    assert rows(ours.sample(3000)) == rows(model.sample(3000))


def test_draws_follow_the_priorities_and_weights_undo_them():
    ours = filled(PrioritizedReplayBuffer, count=5, alpha=1.0, priority_eps=0.0, seed=3)
    keys = np.unique(ours.sample(500).keys)
    priorities = np.array([1.0, 2.0, 3.0, 4.0, 10.0])
    ours.update_priorities(keys, -priorities[:, None])
    drawn = ours.sample(20_000, beta=1.0)
    counts = np.array([(drawn.keys == key).sum() for key in keys])
    assert chi_square(counts, priorities) < LIMIT
    # The twin: the same draws against other priorities.
    assert chi_square(counts, priorities[::-1]) > LIMIT
    assert chi_square(counts, np.ones(5)) > LIMIT
    weights = np.array([drawn.weights[drawn.keys == key].mean() for key in keys])
    np.testing.assert_allclose(weights, 1 / priorities, rtol=1e-5)
    assert ours.sample(100, beta=0.0).weights.unique().tolist() == [1.0]


#: Chi-square of four degrees of freedom: a probability of about 1e-6.
LIMIT = 33.4


def chi_square(counts, weights):
    expected = counts.sum() * weights / weights.sum()
    return float(((counts - expected) ** 2 / expected).sum())


def test_new_transitions_have_the_largest_priority():
    ours = filled(PrioritizedReplayBuffer, count=5)
    keys = np.unique(ours.sample(500).keys)
    ours.update_priorities(keys, [1, 2, 3, 4, 50])
    ours.extend(*zip(*steps(1, seed=4), strict=True))
    table = ours.client.query("replay")
    assert table.priority[-1] == 50 + ours.priority_eps


def test_alpha_zero_draws_uniformly_and_beta_of_the_constructor_counts():
    def counts_and_weights(**options):
        ours = filled(PrioritizedReplayBuffer, count=2, seed=5, **options)
        keys = np.unique(ours.sample(100).keys)
        ours.update_priorities(keys, [1.0, 9.0])
        drawn = ours.sample(2000)
        return np.mean(drawn.keys == keys[1]), float(drawn.weights.min())

    share, weight = counts_and_weights(alpha=0.0)
    assert abs(share - 0.5) < 0.1
    assert weight == 1.0
    share, weight = counts_and_weights(alpha=1.0, beta=0.5)
    assert share > 0.85
    assert weight == pytest.approx(1 / 3, rel=1e-4)


def test_priorities_reach_a_server():
    table = reverie.Table("replay", reverie.selectors.Prioritized(1.0), reverie.selectors.Fifo(), max_size=500)
    with reverie.Server([table]) as server:
        ours = filled(PrioritizedReplayBuffer, count=5, server=reverie.Client(server.address, transport="grpc"))
        assert ours.size() == 5
        keys = np.unique(ours.sample(500).keys)
        ours.update_priorities(keys, [0, 0, 0, 7, 0])
        assert np.mean(ours.sample(300).keys == keys[3]) > 0.98


def test_terminal_observations_of_gymnasium_end_an_episode():
    env = make_vec_env("CartPole-v1", n_envs=2, seed=0, wrapper_class=lambda env: gym.wrappers.TimeLimit(env, 7))
    buffers = [
        kind(500, env.observation_space, env.action_space, "cpu", n_envs=2) for kind in (ReplayBuffer, sb3.ReplayBuffer)
    ]
    obs = env.reset()
    for _ in range(60):
        action = np.array([env.action_space.sample() for _ in range(2)])
        new_obs, reward, done, infos = env.step(action)
        next_obs = new_obs.copy()
        for index in np.flatnonzero(done):
            next_obs[index] = infos[index]["terminal_observation"]
        for buffer in buffers:
            buffer.add(obs, next_obs, action, reward, done, infos)
        obs = new_obs
    env.close()
    assert rows(buffers[0].sample(4000)) == rows(buffers[1].sample(4000))
