"""The replay buffers for tianshou, with tianshou's own as the model: the same steps in, the same targets out."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

pytest.importorskip("tianshou", reason="tianshou needs numba, pandas and h5py, which tests do not install")

import gymnasium as gym
import numpy as np
import torch
from tianshou.algorithm.algorithm_base import Algorithm
from tianshou.algorithm.modelfree.dqn import DQN, DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net

import reverie
from reverie.integrations.tianshou import PrioritizedReplayBuffer, ReplayBuffer

ROOT = Path(__file__).resolve().parents[2]


def steps(count, n_envs, nested=False, seed=0):
    """Batches of `add`; an observation is a number that no other step has."""
    rng, number = np.random.default_rng(seed), np.arange(n_envs) * 1000.0

    def observe(n):
        column = n.astype(np.float32)[:, None]
        return Batch(a=Batch(b=column), c=column + 0.5) if nested else column

    for _ in range(count):
        drawn = rng.random(n_envs)
        yield Batch(
            obs=observe(number),
            obs_next=observe(number + 1),
            act=rng.integers(4, size=n_envs),
            rew=rng.normal(size=n_envs),
            terminated=drawn < 0.15,
            truncated=(drawn >= 0.15) & (drawn < 0.3),
            info=Batch(env_id=np.arange(n_envs)),
        )
        number = number + 1 + (drawn < 0.3)


def filled(kind, count=60, n_envs=2, nested=False, **options):
    buffer = kind(1000, n_envs, **options)
    results = [buffer.add(batch, np.arange(n_envs)) for batch in steps(count, n_envs, nested)]
    return buffer, results


def target(buffer, indices):
    """Values of the next observations that no two of them share."""
    obs = buffer[indices].obs_next
    return torch.as_tensor(np.sin(obs if isinstance(obs, np.ndarray) else obs.a.b))


def returns(buffer, batch, indices, n_step):
    return Algorithm.compute_nstep_return(batch, buffer, indices, target, 0.9, n_step).returns.numpy()


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])
def test_the_same_steps_give_the_transitions_and_n_step_returns_of_tianshou(n_envs, n_step, nested, kind):
    ours, results = filled(kind, n_envs=n_envs, nested=nested, n_step=n_step)
    model, theirs = filled(VectorReplayBuffer, n_envs=n_envs, nested=nested)
    for (_, *statistics), (_, *expected) in zip(results, theirs, strict=True):
        np.testing.assert_allclose(np.array(statistics[:2], float), np.array(expected[:2], float), atol=1e-12)

    def numbers(batch):
        return (batch.obs.a.b if nested else batch.obs)[:, 0].astype(int)

    everything, places = model.sample(0)
    place_of = dict(zip(numbers(everything), places, strict=True))
    batch, indices = ours.sample(2000)
    places = np.array([place_of[number] for number in numbers(batch)])
    expected = model[places]
    for name in ("act", "rew", "terminated", "truncated", "done"):
        np.testing.assert_array_equal(batch[name], expected[name])
    for name in ("obs", "obs_next"):
        assert batch[name] == expected[name] if nested else (batch[name] == expected[name]).all()
    np.testing.assert_allclose(
        returns(ours, batch, indices, n_step), returns(model, expected, places, n_step), rtol=1e-6, atol=1e-6
    )
    # Windows that are not complete are missing, and nothing else.
    waiting = sum(len(windows._pending) for windows in ours._windows)
    assert waiting <= (n_step - 1) * n_envs
    assert len(set(numbers(batch))) == len(ours) == 60 * n_envs - waiting


def test_the_newest_episode_of_each_environment_is_read_by_the_numbers_of_its_steps():
    ours, model = ReplayBuffer(1000, 3), VectorReplayBuffer(1000, 3)
    ended = 0
    for batch in steps(60, 3):
        numbers, _, lengths, starts = ours.add(batch, np.arange(3))
        places, _, expected, begins = model.add(batch, np.arange(3))
        np.testing.assert_array_equal(lengths, expected)
        for row in np.flatnonzero(lengths):
            mine = ours[ours.get_buffer_indices(int(starts[row]), int(numbers[row] + 1))]
            theirs = model[model.get_buffer_indices(int(begins[row]), int(places[row] + 1))]
            for name in ("act", "rew", "terminated", "truncated", "done"):
                np.testing.assert_array_equal(mine[name], theirs[name])
            ended += 1
    assert ended > 20
    first = np.arange(3) + (1 << 40)
    with pytest.raises(ValueError, match="before the newest one"):
        ours[first]


def stacks(count, length=3, size=32, seed=0):
    """Steps of one environment whose observations are stacks of frames of noise; an episode has five steps."""
    rng = np.random.default_rng(seed)
    frames = []
    for step in range(count):
        if step % 5 == 0:
            frames = [rng.integers(256, size=(size, size), dtype=np.uint8)] * length
        following = [*frames[1:], rng.integers(256, size=(size, size), dtype=np.uint8)]
        yield Batch(
            obs=np.stack(frames)[None],
            obs_next=np.stack(following)[None],
            act=np.array([step]),
            rew=np.array([float(step)]),
            terminated=np.array([step % 5 == 4]),
            truncated=np.array([False]),
        )
        frames = following


TIANSHOU_NAMES = {"stack_num": 3, "save_only_last_obs": True, "ignore_obs_next": True}


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("options", [{"frame_stack": 3}, TIANSHOU_NAMES])
def test_a_stack_of_frames_is_sampled_as_it_was_added_and_each_frame_is_stored_once(n_step, options):
    added = list(stacks(50))
    sizes = {}
    for name, given in (("once", options), ("whole", {})):
        ours = ReplayBuffer(100, 1, n_step=n_step, compression="none", seed=1, **given)
        for batch in added:
            ours.add(batch)
        assert len(ours) == 50
        batch, indices = ours.sample(400)
        assert set(batch.act) == set(range(50))  # The starts and the ends of episodes among them.
        last = indices
        for _ in range(n_step - 1):
            last = ours.next(last)
        behind = ours[last].obs_next
        for row, step in enumerate(batch.act):
            np.testing.assert_array_equal(batch.obs[row], added[step].obs[0])
            np.testing.assert_array_equal(batch.obs_next[row], added[step].obs_next[0])
            np.testing.assert_array_equal(behind[row], added[min(step + n_step - 1, step // 5 * 5 + 4)].obs_next[0])
        sizes[name] = ours.client.info().tables["replay"].size_bytes
    assert sizes["once"] < 0.6 * sizes["whole"]  # 8 frames of an episode, not 18.


def test_options_of_stacks_that_are_not_supported_are_refused_by_name():
    for options in ({"stack_num": 4}, {"save_only_last_obs": True}):
        with pytest.raises(ValueError, match="are supported together only"):
            ReplayBuffer(10, **options)
    with pytest.raises(ValueError, match="and not both"):
        ReplayBuffer(10, frame_stack=3, **TIANSHOU_NAMES)
    with pytest.raises(ValueError, match="does not divide axis 0"):
        ReplayBuffer(10, frame_stack=2).add(next(stacks(1)))
    with pytest.raises(ValueError, match="not for a dict of arrays"):
        ReplayBuffer(10, 2, frame_stack=2).add(next(steps(1, 2, nested=True)))


def test_observations_inside_of_a_window_are_refused_with_the_horizon():
    ours, _ = filled(ReplayBuffer, n_step=3)
    _, indices = ours.sample(50)
    with pytest.raises(ValueError, match="n_step_return_horizon"):
        ours[ours.next(indices)]


@pytest.mark.parametrize("n_step", [1, 3])
def test_an_add_that_failed_between_two_environments_and_is_tried_again_mixes_no_observations(n_step, monkeypatch):
    """The first environment has the step then, and the second does not; observations rise by one with each step."""

    def add(number):
        obs, no = np.full((2, 1), number, np.float32), np.zeros(2, np.bool_)
        step = Batch(obs=obs, obs_next=obs + 1, act=np.zeros(2), rew=np.zeros(2), terminated=no, truncated=no)
        buffer.add(step, np.arange(2))

    buffer = ReplayBuffer(1000, 2, n_step=n_step)
    add(0)
    with monkeypatch.context() as patch:
        patch.setattr(buffer._windows[1], "add", lambda *args, **options: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            add(1)
    for number in range(1, 8):
        add(number)
    len(buffer)
    batch, _ = buffer.sample(400)
    assert (batch.obs_next == batch.obs + 1).all()
    assert (buffer[buffer.unfinished_index()].obs_next[:, 0] == batch.obs[:, 0] + buffer._lengths).all()


def test_an_environment_that_is_named_twice_is_refused_and_nothing_is_added():
    buffer, _ = filled(ReplayBuffer, count=5)
    (step,) = steps(1, 2)
    with pytest.raises(ValueError, match=r"buffer_ids names an environment twice: \[1, 1\]"):
        buffer.add(step, [1, 1])
    assert len(buffer) == 10


def test_priorities_reach_the_table_and_weights_undo_them():
    ours, _ = filled(PrioritizedReplayBuffer, count=30, n_envs=1, n_step=2, alpha=1.0, beta=1.0, seed=1)
    batch, indices = ours.sample(500)
    keys = ours._keys.copy()
    ours.update_weight(indices, torch.tensor(np.where(keys == keys[0], -4.0, 1.0), requires_grad=True))
    drawn, _ = ours.sample(4000)
    chosen = ours._keys == keys[0]
    count = len(ours)
    share = 4 / (count + 3)
    assert abs(chosen.mean() - share) < 5 * np.sqrt(share / 4000)
    np.testing.assert_allclose(drawn.weight[chosen], 0.25, rtol=1e-4)
    np.testing.assert_allclose(drawn.weight[~chosen], 1.0, rtol=1e-4)
    ours.set_beta(0.0)
    assert set(ours.sample(10)[0].weight) == {1.0}
    assert (batch.weight == 1).all()


def test_a_server_holds_the_steps_of_several_buffers():
    table = reverie.Table("replay", reverie.selectors.Uniform(), reverie.selectors.Fifo(), max_size=500)
    with reverie.Server([table]) as server:
        ours, _ = filled(ReplayBuffer, server=server.address)
        other = ReplayBuffer(1, 2, server=server.address)
        assert len(ours) == len(other) == 120
        assert len(set(other.sample(4000)[0].obs[:, 0])) == 120
        with pytest.raises(ValueError, match=r"not by reverie.selectors.Prioritized"):
            PrioritizedReplayBuffer(10, server=server.address)
        other.reset()
        assert len(ours) == 0
        for buffer in (ours, other):
            buffer.client.close()


def test_methods_that_need_an_index_of_all_steps_are_refused():
    ours, _ = filled(ReplayBuffer)
    for call in (
        lambda: ours.sample_indices(3),
        lambda: ours.save_hdf5("x"),
        lambda: ours.set_array_at_key(np.ones(3), "x"),
    ):
        with pytest.raises(NotImplementedError, match="no index of all transitions"):
            call()
    for count in (0, None):
        with pytest.raises(ValueError, match="all steps is not supported"):
            ours.sample(count)
    with pytest.raises(ValueError, match="no complete step yet"):
        ReplayBuffer(10).sample(1)
    with pytest.raises(ValueError, match="seed is an option of the table in this process"):
        ReplayBuffer(10, server="localhost:1", seed=1)
    bad = next(steps(1, 2))
    bad.rew[1] = np.nan
    with pytest.raises(ValueError, match="column 'rew' has NaN"):
        ours.add(bad)


@pytest.mark.long
@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])
def test_dqn_of_tianshou_learns_to_balance(kind):
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002 (tianshou draws from it)
    envs = DummyVectorEnv([lambda: gym.make("CartPole-v1")] * 4)
    envs.seed(1)
    space = gym.make("CartPole-v1").action_space
    policy = DiscreteQLearningPolicy(
        model=Net(state_shape=4, action_shape=2, hidden_sizes=[64, 64]), action_space=space, eps_training=0.15
    )
    algorithm = DQN(
        policy=policy, optim=AdamOptimizerFactory(lr=2e-3), gamma=0.98, n_step_return_horizon=3, target_update_freq=100
    )
    collector = Collector(algorithm, envs, kind(20_000, 4, n_step=3, seed=1))
    collector.reset()
    collector.collect(n_step=400, random=True)
    lengths = []
    algorithm.run_training(
        OffPolicyTrainerParams(
            training_collector=collector,
            max_epochs=1,
            epoch_num_steps=4000,
            collection_step_num_env_steps=8,
            update_step_num_gradient_steps_per_sample=0.25,
            batch_size=64,
            test_step_num_episodes=0,
            training_fn=lambda epoch, step: lengths.append(len(collector.buffer)),
        )
    )
    policy.eps_training = 0.02
    stats = collector.collect(n_episode=8, reset_before_collect=True)
    assert stats.lens_stat.mean > 60
    assert len(lengths) > 100


@pytest.mark.long
def test_the_guide_collects_into_its_buffer():
    page = (ROOT / "docs" / "guides" / "use-with-tianshou.md").read_text()
    block = re.findall(r"^```py\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)[0]
    envs = DummyVectorEnv([lambda: gym.make("CartPole-v1")] * 4)
    policy = DiscreteQLearningPolicy(
        model=Net(state_shape=4, action_shape=2, hidden_sizes=[8]), action_space=gym.make("CartPole-v1").action_space
    )
    names = {"policy": policy, "optim": AdamOptimizerFactory(), "envs": envs}
    exec(block, names)
    names["collector"].reset()
    names["collector"].collect(n_step=80, random=True)
    sample, indices = names["buffer"].sample(16)
    assert len(names["buffer"]) >= 80 - 2 * 4
    assert sample.weight.tolist() == [1.0] * 16
    returns = names["algorithm"].compute_nstep_return(
        sample, names["buffer"], indices, lambda *_: torch.zeros(16, 1), gamma=1.0, n_step=3
    )
    assert set(returns.returns.flatten().tolist()) <= {1.0, 2.0, 3.0}


@pytest.mark.long
def test_the_example_trains(capsys, monkeypatch):
    example = runpy.run_path(str(ROOT / "examples" / "tianshou" / "dqn_on_a_server.py"))
    monkeypatch.setitem(example["main"].__globals__, "STEPS", 100)
    example["main"]()
    transitions, priorities = (int(part.split()[0]) for part in capsys.readouterr().out.split(", "))
    assert transitions > 250
    assert priorities >= 64
