"""Hindsight replay for Stable-Baselines3, with SB3's own buffer and a count by hand as the models."""

from __future__ import annotations

import itertools
import pickle

import pytest

pytest.importorskip("stable_baselines3")

import gymnasium as gym
import numpy as np
import stable_baselines3 as sb3
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

import reverie
from reverie.integrations.stable_baselines3 import HerReplayBuffer, PrioritizedDQN, her, infos

POINT = spaces.Box(-1e4, 1e4, (1,), np.float32)
SPACE = spaces.Dict({"observation": POINT, "achieved_goal": POINT, "desired_goal": POINT})
ACTIONS = spaces.Discrete(4)
STRATEGIES = ["final", "episode", "future"]
CHOICES = {"goals are read": 1 << 30, "goals are chosen by the table": 0}


def rewards_of(achieved, desired, infos=()):
    """1 where the goal is not further than two steps, plus what the infos add."""
    near = (np.abs(achieved - desired) <= 2).all(axis=-1).astype(np.float32)
    return near + np.array([info.get("bonus", 0.0) for info in infos] or 0.0, np.float32)


class Env:
    """The part of an environment that the buffer calls; it keeps the arguments of the last call."""

    def env_method(self, name, achieved, desired, infos, indices):
        assert (name, indices) == ("compute_reward", [0])
        self.seen = (achieved.copy(), desired.copy(), infos)
        return [rewards_of(achieved, desired, infos)]


def episodes(lengths, n_envs=1, infos=None):
    """The calls of `add`: an observation of environment e is 1000 e and its number, its desired goal is -1.

    The last step of the second episode is a timeout.
    """
    number = np.arange(n_envs) * 1000.0
    for episode, length in enumerate(lengths):
        for step in range(length):
            obs, next_obs = (
                {"observation": n, "achieved_goal": n + 0.5} for n in (number[:, None], number[:, None] + 1)
            )
            for part in (obs, next_obs):
                part["desired_goal"] = np.full((n_envs, 1), -1.0)
            last = step == length - 1
            info = {"TimeLimit.truncated": True} if last and episode == 1 else {}
            extra = [{} for _ in range(n_envs)] if infos is None else [infos(float(n)) for n in number]
            action, reward = number[:, None] % 4, number / 100
            yield obs, next_obs, action, reward, np.full(n_envs, last), [{**info, **more} for more in extra]
            number = number + 1
        number = number + 1  # The last observation of the episode.


def filled(kind=HerReplayBuffer, lengths=(3, 5, 2), capacity=600, n_envs=1, more=None, **options):
    buffer = kind(capacity, SPACE, ACTIONS, Env(), "cpu", n_envs=n_envs, **options)
    for call in episodes(lengths, n_envs, more):
        buffer.add(*call)
    return buffer


def rows(samples):
    """The sampled transitions as a set, and the dtypes and shapes of their columns."""
    columns = [*samples.observations.values(), samples.actions, *samples.next_observations.values()]
    columns += [samples.dones, samples.rewards]
    found = np.unique(np.concatenate([column.numpy() for column in columns], axis=1, dtype=np.float64), axis=0)
    return set(map(tuple, found.tolist())), [(column.dtype, column.shape[1:]) for column in columns]


@pytest.fixture(params=CHOICES.values(), ids=CHOICES)
def choice(request, monkeypatch):
    monkeypatch.setattr(her, "_CHOICE_BYTES", request.param)


@pytest.mark.usefixtures("choice")
@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("options", [{}, {"handle_timeout_termination": False}, {"n_sampled_goal": 0}])
def test_the_same_steps_give_the_transitions_and_goals_of_sb3(n_envs, strategy, options):
    options = {"n_envs": n_envs, "goal_selection_strategy": strategy, **options}
    ours, model = filled(**options), filled(sb3.HerReplayBuffer, **options)
    assert rows(ours.sample(4000)) == rows(model.sample(4000))
    assert ours.size() == model.size() == 10


#: Chi-square of 199 degrees of freedom at most: five sigma above its mean.
def limit(degrees):
    return degrees + 5 * np.sqrt(2 * degrees)


def expected_goals(strategy, lengths):
    """The probability of each pair of a step and the step whose goal replaces its own."""
    shares, start = {}, 0
    for length in lengths:
        for step in range(length):
            first, last = {"final": (length - 1, length), "episode": (0, length), "future": (step, length)}[strategy]
            for goal in range(first, last):
                # The achieved goal of a step is that of its next observation.
                shares[start + step, start + goal + 1.5] = 1 / sum(lengths) / (last - first)
        start += length + 1
    return shares


def chi_square(pairs, shares):
    """Infinite for a pair that cannot be."""
    found, counts = np.unique(pairs, axis=0, return_counts=True)
    seen = dict(zip(map(tuple, found.tolist()), counts, strict=True))
    if not seen.keys() <= shares.keys():
        return np.inf
    return sum((seen.get(pair, 0) - len(pairs) * share) ** 2 / (len(pairs) * share) for pair, share in shares.items())


@pytest.mark.usefixtures("choice")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_transition_and_each_goal_of_the_strategy_is_equally_likely(strategy):
    lengths = (3, 6, 4)
    ours = filled(lengths=lengths, goal_selection_strategy=strategy, seed=7, n_sampled_goal=4)
    drawn = ours.sample(20_000)
    pairs = np.stack([drawn.observations["observation"][:, 0], drawn.observations["desired_goal"][:, 0]], axis=1)
    virtual = pairs[pairs[:, 1] != -1]
    assert len(virtual) == 16_000
    for other in STRATEGIES:
        shares = expected_goals(other, lengths)
        assert (chi_square(virtual, shares) < limit(len(shares) - 1)) == (other == strategy)
    # The twin: one goal is a little more likely.
    shares = expected_goals(strategy, lengths)
    if strategy != "final":
        twin = {pair: share * (1.3 if pair[1] == 3.5 else 1.0) for pair, share in shares.items()}
        total = sum(twin.values())
        assert chi_square(virtual, {pair: share / total for pair, share in twin.items()}) > limit(len(shares) - 1)


@pytest.mark.parametrize("ratio", [1, 4, 9])
def test_rewards_of_virtual_transitions_are_computed_again_and_those_of_real_ones_are_kept(ratio):
    ours = filled(n_sampled_goal=ratio)
    drawn = ours.sample(500)
    desired, rewards = drawn.observations["desired_goal"].numpy(), drawn.rewards.numpy()[:, 0]
    achieved, number = drawn.next_observations["achieved_goal"].numpy(), drawn.observations["observation"].numpy()[:, 0]
    real = desired[:, 0] == -1
    assert real.sum() == 500 - int((1 - 1 / (ratio + 1)) * 500)
    np.testing.assert_array_equal(desired, drawn.next_observations["desired_goal"])
    np.testing.assert_array_equal(rewards[real], (number[real] / 100).astype(np.float32))
    np.testing.assert_array_equal(rewards[~real], rewards_of(achieved, desired)[~real])
    assert 0 < rewards[~real].mean() < 1
    np.testing.assert_array_equal(np.sort(ours.env.seen[0], axis=0), np.sort(achieved[~real], axis=0))


def test_a_compute_reward_of_single_goals_is_refused():
    ours = filled()
    ours.env.env_method = lambda *args, **options: [np.float32(0.0)]
    with pytest.raises(ValueError, match=r"returned the shape \(\) for 8 goals"):
        ours.sample(10)


def test_a_reward_of_a_virtual_transition_that_is_not_finite_is_refused_with_its_goals():
    ours = filled()
    ours.env.env_method = lambda name, achieved, *rest, **options: [np.full(len(achieved), np.nan)]
    with pytest.raises(
        ValueError, match=r"compute_reward returned nan for the achieved goal \[.*\] and the desired goal"
    ):
        ours.sample(10)


def test_infos_reach_compute_reward_where_they_are_copied():
    def info(number):
        return {"bonus": number, "of": {"array": np.arange(2, dtype=np.int8), "flag": np.float32(number)}, "name": "x"}

    ours = filled(copy_info_dict=True, more=info, n_envs=2)
    drawn = ours.sample(300)
    number = drawn.observations["observation"].numpy()[drawn.observations["desired_goal"].numpy() != -1]
    seen = ours.env.seen[2]
    assert sorted(entry["bonus"] for entry in seen) == sorted(number.tolist())
    assert all(entry["of"]["flag"] == entry["bonus"] and entry["of"]["array"].dtype == np.int8 for entry in seen)
    model = filled(sb3.HerReplayBuffer, copy_info_dict=True, more=info, n_envs=2)
    assert rows(ours.sample(4000)) == rows(model.sample(4000))
    assert filled(more=info).sample(10) is not None
    without = filled(more=info)
    without.sample(10)
    assert without.env.seen[2] == [{}] * 8


def test_an_info_comes_back_as_it_was_without_the_terminal_observation():
    info = {
        "terminal_observation": object(),
        "is_success": True,
        "nothing": None,
        "text": "Grüße",
        "scalar": np.float32(0.1),
        "deep": [1, {"x": np.array([[1.5, np.nan]], np.float64)}],
        "flags": np.array([True, False]),
    }
    back = infos.from_cell(infos.to_cell(info, 1000))
    np.testing.assert_equal(back, {key: value for key, value in info.items() if key != "terminal_observation"})
    assert (back["scalar"].dtype, back["flags"].dtype, back["deep"][1]["x"].dtype) == (np.float32, np.bool_, np.float64)


def test_infos_that_cannot_be_stored_are_refused_by_name():
    with pytest.raises(TypeError, match="info 'a/b' is object"):
        filled(copy_info_dict=True, more=lambda number: {"a": {"b": object()}})
    with pytest.raises(TypeError, match="info 'a' is dict"):
        filled(copy_info_dict=True, more=lambda number: {"a": {1: 2}})
    with pytest.raises(ValueError, match="info_bytes is 16; raise info_bytes"):
        filled(copy_info_dict=True, info_bytes=16, more=lambda number: {"name": "x" * 20})


@pytest.mark.usefixtures("choice")
def test_the_oldest_transitions_leave_and_the_others_keep_the_goals_of_their_episode():
    ours = filled(lengths=(4, 4, 4), capacity=10)
    drawn = ours.sample(4000)
    pairs = {
        (int(row[0]), float(goal[0]))
        for row, goal in zip(drawn.observations["observation"], drawn.observations["desired_goal"], strict=True)
    }
    kept = [2, 3, 5, 6, 7, 8, 10, 11, 12, 13]
    want = {pair for pair in expected_goals("future", (4, 4, 4)) if pair[0] in kept}
    assert pairs == want | {(number, -1.0) for number in kept}


def test_an_episode_longer_than_the_buffer_keeps_its_last_steps():
    ours = filled(lengths=(25, 9), capacity=6, goal_selection_strategy="episode")
    drawn = ours.sample(2000)
    assert sorted(set(drawn.observations["observation"][:, 0].tolist())) == [29, 30, 31, 32, 33, 34]
    only = filled(lengths=(25,), capacity=6, goal_selection_strategy="episode").sample(2000)
    assert sorted(set(only.observations["observation"][:, 0].tolist())) == [19, 20, 21, 22, 23, 24]
    assert sorted(set(only.observations["desired_goal"][:, 0].tolist())) == [-1, 20.5, 21.5, 22.5, 23.5, 24.5, 25.5]


def test_the_open_episode_cannot_be_sampled_until_it_ends():
    ours = filled(lengths=(5,))
    calls = list(episodes((5, 4)))[5:]
    for call in calls[:3]:
        ours.add(*call)
    assert set(ours.sample(500).observations["observation"][:, 0].tolist()) == {0, 1, 2, 3, 4}
    ours.add(*calls[3])
    assert set(ours.sample(500).observations["observation"][:, 0].tolist()) == {0, 1, 2, 3, 4, 6, 7, 8, 9}
    with pytest.raises(ValueError, match="no complete episode yet; raise learning_starts"):
        filled(lengths=()).sample(1)


def test_many_episodes_of_one_writer_are_those_of_sb3(monkeypatch):
    from reverie.integrations.stable_baselines3 import episodes as module

    monkeypatch.setattr(module, "_HISTORY", 8)
    lengths = (3, 5, 2, 1, 7, 4, 1, 6)
    ours, model = filled(lengths=lengths), filled(sb3.HerReplayBuffer, lengths=lengths)
    assert rows(ours.sample(6000)) == rows(model.sample(6000))


def test_each_observation_and_goal_is_stored_once():
    image = spaces.Box(0, 255, (32, 32), np.uint8)
    space = spaces.Dict({"observation": image, "achieved_goal": image, "desired_goal": POINT})
    with pytest.raises(ValueError, match="achieved_goal has the shape"):
        HerReplayBuffer(500, space, ACTIONS, Env(), "cpu")
    space["desired_goal"] = image
    ours = HerReplayBuffer(500, space, ACTIONS, Env(), "cpu", compression="none", goal_selection_strategy="episode")
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (300, 1, 32, 32), dtype=np.uint8)
    for step, (now, after) in enumerate(itertools.pairwise(images)):
        parts = ({"observation": image, "achieved_goal": image, "desired_goal": images[0]} for image in (now, after))
        ours.add(*parts, np.array([0]), np.array([0.0]), np.array([step == 298]), [{}])
    stored = ours.client.server_info()["replay"].size_bytes
    assert 300 * 3 * 1024 <= stored < 1.2 * 300 * 3 * 1024


def test_a_saved_buffer_goes_on_with_its_open_episodes_or_ends_them():
    calls = list(episodes((4, 6), n_envs=2))
    half = HerReplayBuffer(600, SPACE, ACTIONS, Env(), "cpu", n_envs=2)
    for call in calls[:7]:
        half.add(*call)
    saved = pickle.dumps(half)
    assert half.env is not None
    again, ended = pickle.loads(saved), pickle.loads(saved)
    with pytest.raises(ValueError, match="call set_env"):
        again.sample(10)
    again.set_env(Env())
    with pytest.raises(ValueError, match="already initialized"):
        again.set_env(Env())
    for call in calls[7:]:
        again.add(*call)
    assert rows(again.sample(4000)) == rows(filled(lengths=(4, 6), n_envs=2).sample(4000))
    ended.set_env(Env())
    with pytest.warns(UserWarning, match="truncate_last_traj=False"):
        ended.truncate_last_trajectory()
    assert ended.size() == 7
    ended.truncate_last_trajectory()
    assert set(ended.sample(900).dones[:, 0].tolist()) == {0.0, 1.0}
    drawn = ended.sample(5000)
    shortened = drawn.observations["observation"][:, 0] == 7
    # The last step is not a terminal one, and its only goal is its own.
    assert drawn.dones[shortened].max() == 0
    assert set(drawn.observations["desired_goal"][shortened][:, 0].tolist()) == {-1.0, 8.5}


def test_a_loaded_buffer_keeps_its_seed_and_a_reset_one_is_empty():
    def drawn(buffer):
        return rows(buffer.sample(20))

    assert drawn(filled(seed=3)) == drawn(filled(seed=3)) != drawn(filled(seed=4))
    ours = filled()
    ours.reset()
    assert ours.size() == 0
    for call in episodes((2,)):
        ours.add(*call)
    assert ours.size() == 2


@pytest.mark.usefixtures("choice")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_servers_hold_the_episodes_of_several_buffers(strategy):
    def table():
        return reverie.Table("replay", reverie.selectors.Uniform(), reverie.selectors.Fifo(), max_size=500)

    options = {"n_envs": 2, "goal_selection_strategy": strategy}
    model = filled(sb3.HerReplayBuffer, **options)
    with reverie.Server([table()], shard=0) as first, reverie.Server([table()], shard=1) as second:
        for addresses in (first.address, [first.address, second.address]):
            ours = filled(server=addresses, **options)
            assert ours.size() == 10
            other = HerReplayBuffer(1, SPACE, ACTIONS, Env(), "cpu", server=addresses, **options)
            for trajectory in other._trajectories:
                trajectory.longest = 6
            assert rows(other.sample(4000)) == rows(model.sample(4000))
            other.reset()
            for buffer in (ours, other):
                buffer.client.close()


def test_vec_normalize_normalises_goals_and_rewards_after_they_were_replaced():
    class Walk(gym.Env):
        observation_space, action_space = SPACE, ACTIONS

    env = VecNormalize(make_vec_env(Walk), clip_reward=0.7, clip_obs=3.0)
    env.obs_rms["desired_goal"].mean, env.ret_rms.var = np.array([5.0]), np.float64(0.25)
    ours, model = filled(), filled(sb3.HerReplayBuffer)
    assert rows(ours.sample(4000, env)) == rows(model.sample(4000, env))
    assert rows(ours.sample(4000, env)) != rows(ours.sample(4000))
    env.close()


def test_invalid_options_are_refused_with_what_to_do():
    def make(space=SPACE, **options):
        return HerReplayBuffer(100, space, ACTIONS, Env(), "cpu", **options)

    for options, words in (
        ({"goal_selection_strategy": "past"}, "must be one of"),
        ({"n_sampled_goal": -1}, "n_sampled_goal"),
        ({"info_bytes": 1}, "info_bytes"),
        ({"space": POINT}, "use ReplayBuffer"),
        ({"space": spaces.Dict({"observation": POINT})}, "no \\['achieved_goal', 'desired_goal'\\]"),
        ({"server": "localhost:1", "seed": 1}, "seed is an option of the table in this process"),
    ):
        with pytest.raises(ValueError, match=words):
            make(**options)
    with pytest.raises(TypeError, match="needs a PrioritizedReplayBuffer"):
        PrioritizedDQN("MultiInputPolicy", Bits(2), replay_buffer_class=HerReplayBuffer)


class Bits(gym.Env):
    """Bit flipping (Andrychowicz et al. 2017, section 3.1): -1 for each step until the bits are those of the goal."""

    def __init__(self, size, continuous=False):
        bits = spaces.MultiBinary(size)
        self.observation_space = spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), bits))
        self.action_space = spaces.Box(-1, 1, (size,)) if continuous else spaces.Discrete(size)
        self.size = size

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.bits, self.goal = self.np_random.integers(0, 2, (2, self.size), dtype=np.int8)
        self.left = self.size
        return self.observe(), {}

    def step(self, action):
        self.bits = self.bits.copy()
        flipped = action if isinstance(self.action_space, spaces.Discrete) else np.argmax(action)
        self.bits[flipped] ^= 1
        self.left -= 1
        reward = float(self.compute_reward(self.bits, self.goal, {}))
        return self.observe(), reward, reward == 0, self.left == 0, {"is_success": reward == 0}

    def observe(self):
        return {"observation": self.bits, "achieved_goal": self.bits, "desired_goal": self.goal}

    def compute_reward(self, achieved, desired, info):
        return -(achieved != desired).any(axis=-1).astype(np.float32)


def success(model, size, episodes=50):
    env, reached = Bits(size), 0
    for episode in range(episodes):
        obs, _ = env.reset(seed=1000 + episode)
        over = False
        while not over:
            obs, reward, ended, truncated, _ = env.step(int(model.predict(obs, deterministic=True)[0]))
            over = ended or truncated
        reached += reward == 0
    return reached / episodes


SMALL = {"learning_starts": 60, "batch_size": 32, "device": "cpu", "seed": 2, "policy_kwargs": {"net_arch": [16]}}


@pytest.mark.parametrize(
    ("kind", "strategy"),
    [(sb3.DQN, "future"), (sb3.SAC, "final"), (sb3.TD3, "episode"), (sb3.DDPG, "future")],
    ids=["dqn", "sac", "td3", "ddpg"],
)
def test_the_algorithms_of_sb3_train_save_and_load_the_buffer(kind, strategy, tmp_path):
    env = make_vec_env(lambda: Bits(4, continuous=kind is not sb3.DQN), n_envs=2, seed=1)
    options = {"goal_selection_strategy": strategy, "copy_info_dict": strategy == "final"}
    settings = {**SMALL, "policy_kwargs": {"net_arch": [8]}, "train_freq": 4}
    model = kind("MultiInputPolicy", env, replay_buffer_class=HerReplayBuffer, replay_buffer_kwargs=options, **settings)
    model.learn(100)
    assert model._n_updates > 0
    count = model.replay_buffer.size()
    assert 40 <= count <= 50
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "replay")
    again = kind.load(tmp_path / "model", env=env)
    again.load_replay_buffer(tmp_path / "replay", truncate_last_traj=False)
    assert again.replay_buffer.size() == count
    again.learn(20, reset_num_timesteps=False)
    assert again.replay_buffer.size() > count
    env.close()


@pytest.mark.long
def test_dqn_reaches_goals_that_it_does_not_reach_without_hindsight():
    def learnt(ratio):
        model = sb3.DQN(
            "MultiInputPolicy",
            Bits(8),
            replay_buffer_class=HerReplayBuffer,
            replay_buffer_kwargs={"n_sampled_goal": ratio},
            learning_rate=2e-3,
            train_freq=2,
            target_update_interval=100,
            exploration_fraction=0.4,
            gamma=0.95,
            **{**SMALL, "batch_size": 64, "policy_kwargs": {"net_arch": [64]}},
        )
        return success(model.learn(2500), 8)

    with_goals, without = learnt(4), learnt(0)
    assert with_goals > 0.8
    assert without < 0.4
