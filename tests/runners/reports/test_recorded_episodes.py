"""Episodes of a trained policy as a data set: the rows are those of the environment, and agents train from them."""

import copy
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("torch")
pytest.importorskip("pyarrow")

import reverie
from reverie.agents.core import EnvironmentCrashedError
from reverie.integrations.datasets import open_dataset
from reverie.runners import Evaluator, record_episodes

SHORT = {"max_env_steps": 60, "evaluate_every": 60, "screening_episodes": 1, "confirmation_episodes": 1}


class Spaces(gymnasium.Env):
    """Observations of a space, drawn from the reset's seed; an episode ends after five steps."""

    observation_space: spaces.Space = spaces.Dict({"arm": spaces.Box(-9, 9, (2,)), "hand": spaces.Box(-9, 9, (1,))})
    action_space = spaces.MultiDiscrete([2, 3])
    broken = False

    def __init__(self, **_):
        pass

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self._draws = 0, copy.deepcopy(self.observation_space)
        self._draws.seed(seed)
        return self._draws.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        if self.broken:
            raise RuntimeError("the arm is stuck")
        self.at += 1
        return self._draws.sample(), float(action.sum()), self.at == 5, False, {}


class Mixed(Spaces):
    observation_space = spaces.Dict(
        {"arm": spaces.Box(-9, 9, (2,)), "grip": spaces.Tuple([spaces.Discrete(4, start=2), spaces.MultiBinary(3)])}
    )


class Rooms(Spaces):
    observation_space = spaces.Discrete(16, start=1)


class Places(Spaces):
    observation_space = spaces.MultiDiscrete([3, 4], start=[1, 1])


class Camera(Spaces):
    observation_space = spaces.Box(0, 255, (12, 12, 3), np.uint8)


class Halved(gymnasium.RewardWrapper):
    def reward(self, reward):
        return reward / 2


def policy_of(agent, env, **settings):
    run = SHORT | {"learning_starts": 30} | settings
    return reverie.train(agent, env, seed=3, **run).policy


@pytest.fixture(scope="module")
def cartpole():
    return policy_of("dqn", "CartPole-v1")


@pytest.fixture(scope="module")
def pendulum():
    return policy_of("sac", "Pendulum-v1", policy_hidden=[8], critic_hidden=[8])


def rows_of(path):
    """The columns `[rows, ...]` by name, and the episode of each row."""
    source = open_dataset(path)
    assert source.layout == "steps"
    found = list(source.steps())
    columns = {name: np.stack([row.data[name] for row in found]) for name in found[0].data}
    return columns, np.array([row.episode for row in found])


def test_the_rows_are_the_steps_of_the_environment_and_a_last_observation(cartpole, tmp_path):
    found = record_episodes(cartpole, tmp_path / "a.parquet", episodes=11, random_actions=0.3, seed=7)
    columns, episodes = rows_of(found.path)
    assert (len(episodes), found.num_rows) == (found.num_steps + 11,) * 2
    env = gymnasium.make("CartPole-v1")
    for number in range(11):
        rows = {name: column[episodes == number] for name, column in columns.items()}
        obs, _ = env.reset(seed=7 + number)
        for t, action in enumerate(rows["action"][:-1]):
            assert (rows["obs"][t] == obs).all()
            obs, reward, terminated, truncated, _ = env.step(action)
            assert (rows["reward"][t], rows["terminated"][t], rows["truncated"][t]) == (reward, terminated, truncated)
        assert terminated or truncated
        assert (rows["obs"][-1] == obs).all()
        assert not any(rows[name][-1] for name in ("action", "reward", "terminated", "truncated"))
        assert (found.episodes.seeds[number], found.episodes.lengths[number]) == (7 + number, t + 1)
        assert found.episodes.returns[number] == rows["reward"].sum()


@pytest.mark.parametrize("agent", ["dqn", "r2d2"])
def test_greedy_episodes_are_those_of_an_evaluator(agent, tmp_path):
    sequences = {"sequence_length": 4, "sequence_period": 2, "burn_in": 1, "learning_starts": 8}
    policy = policy_of(agent, "CartPole-v1", **(sequences if agent == "r2d2" else {}))
    found = record_episodes(policy, tmp_path / "a.parquet", episodes=9, greedy=True)
    wanted = Evaluator(policy.spec, 8).evaluate(policy, found.episodes.seeds)
    assert found.episodes == wanted


def test_the_same_arguments_give_the_same_rows_and_another_seed_others(pendulum, tmp_path):
    def rows(name, **options):
        record_episodes(pendulum, tmp_path / name, steps=1, **options)
        return rows_of(tmp_path / name)[0]["action"]

    assert (rows("a.parquet", seed=1) == rows("b.parquet", seed=1)).all()
    assert (rows("c.parquet", seed=2) != rows("a2.parquet", seed=1)).any()
    assert (rows("d.parquet", seed=1, greedy=True) != rows("a3.parquet", seed=1)).any(), "an actor's actions explore"


@pytest.mark.parametrize(("share", "fits"), [(0.5, True), (0.25, False)])
def test_random_actions_are_the_share_that_is_asked_for(cartpole, tmp_path, share, fits):
    record_episodes(cartpole, tmp_path / "a.parquet", steps=2_000, greedy=True, random_actions=share)
    columns, _ = rows_of(tmp_path / "a.parquet")
    ends = columns["reward"] == 0
    others = (columns["action"] != cartpole(columns["obs"]))[~ends].mean()  # of two actions half are the greedy one
    assert (abs(others - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 2_000)) == fits


def test_actions_are_in_the_units_of_the_environment(pendulum, tmp_path):
    record_episodes(pendulum, tmp_path / "a.parquet", steps=400, random_actions=1.0)
    actions = rows_of(tmp_path / "a.parquet")[0]["action"]
    assert actions.shape[1:] == (1,)
    assert (actions.min() < -1.9, actions.max() > 1.9, np.abs(actions).max() <= 2) == (True, True, True)


def test_episodes_are_whole_and_end_with_the_steps_that_are_asked_for(cartpole, tmp_path):
    said = []
    found = record_episodes(
        cartpole, tmp_path / "a.parquet", steps=100, random_actions=1.0, progress=lambda *counts: said.append(counts)
    )
    assert found.num_steps - found.episodes.lengths[-1] < 100 <= found.num_steps
    assert said[-1] == (found.num_steps, found.episodes.num_episodes)
    assert [count for _, count in said] == list(range(1, len(said) + 1))
    columns, episodes = rows_of(found.path)
    ends = np.flatnonzero(columns["terminated"] | columns["truncated"])
    assert len(ends) == len(np.unique(episodes)) == found.episodes.num_episodes


def test_the_environment_is_that_of_training_and_rewards_are_as_it_gives_them(tmp_path):
    name = f"{__name__}:Halved"
    policy = policy_of("dqn", "CartPole-v1", wrappers=(name,), evaluation_wrappers=(), normalise_rewards=True)
    record_episodes(policy, tmp_path / "a.parquet", episodes=2)
    assert set(rows_of(tmp_path / "a.parquet")[0]["reward"]) == {0.5, 0.0}


@pytest.mark.parametrize("env", [Spaces, Mixed, Rooms, Places, Camera])
def test_observations_of_any_space_are_as_the_environment_returns_them_and_agents_train_from_them(env, tmp_path):
    policy = policy_of("dqn", env)
    found = record_episodes(policy, tmp_path / "a.parquet", episodes=8, random_actions=0.5)
    one, episode = env(), -1
    for row in open_dataset(found.path).steps():
        if row.episode != episode:
            episode, (obs, _) = row.episode, one.reset(seed=found.episodes.seeds[row.episode])
        wanted, got = (_leaves(nest) for nest in (obs, row.data["obs"]))
        assert [np.array_equal(*pair) for pair in zip(wanted, got, strict=True)] == [True] * len(wanted)
        if not row.is_last:
            obs, reward, terminated, *_ = one.step(row.data["action"])
            assert (reward, terminated) == (row.data["reward"], row.data["terminated"])
    result = reverie.train("cql", env, dataset=str(found.path), learning_starts=30, max_env_steps=40, evaluate_every=40)
    assert result.learner["updates"] > 0


def _leaves(nest):
    parts = nest.values() if isinstance(nest, dict) else nest if isinstance(nest, tuple | list) else None
    return [np.asarray(nest)] if parts is None else [leaf for part in parts for leaf in _leaves(part)]


@pytest.mark.parametrize(("format", "needs"), [("minari", "minari"), ("lerobot", "pyarrow")])
def test_the_other_formats_have_the_same_steps(pendulum, tmp_path, format, needs):
    pytest.importorskip(needs)
    options = {"fps": 20} if format == "lerobot" else {}
    path = tmp_path / "pendulum" / "noisy-v0"
    found = record_episodes(pendulum, path, episodes=2, format=format, **options)
    same = record_episodes(pendulum, tmp_path / "a.parquet", episodes=2)
    assert found.num_rows == same.num_rows - (2 if format == "lerobot" else 0)
    rewards = [
        [float(row.data["reward"]) for row in open_dataset(one).steps() if np.any(row.data["reward"])]
        for one in (path, same.path)
    ]
    assert rewards[0] == rewards[1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "give either steps or episodes"),
        ({"steps": 1, "episodes": 1}, "give either steps or episodes"),
        ({"steps": 0}, "steps must be"),
        ({"episodes": 1, "random_actions": 1.1}, "random_actions is 1.1, and must be a share from 0 to 1"),
        ({"episodes": 1, "random_actions": float("nan")}, "random_actions"),
        ({"episodes": 1, "seed": -1}, "seed must be"),
        ({"episodes": 1, "format": "csv"}, "format must be one of 'parquet', 'minari', 'lerobot', got 'csv'"),
        ({"episodes": 1, "compression": "lzma"}, "compression must be one of 'zstd', .*, got 'lzma'"),
    ],
)
def test_wrong_arguments_are_refused_and_nothing_is_written(cartpole, tmp_path, options, words):
    with pytest.raises(ValueError, match=words):
        record_episodes(cartpole, tmp_path / "a.parquet", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_stays_as_it_is(cartpole, tmp_path):
    (tmp_path / "a.parquet").write_text("mine")
    with pytest.raises(FileExistsError, match="exists already; name another file or folder"):
        record_episodes(cartpole, tmp_path / "a.parquet", episodes=1)
    assert (tmp_path / "a.parquet").read_text() == "mine"


def test_an_environment_that_raises_leaves_no_file(cartpole, tmp_path, monkeypatch):
    policy = policy_of("dqn", Spaces)
    monkeypatch.setattr(Spaces, "broken", True)
    with pytest.raises(EnvironmentCrashedError, match="the arm is stuck"):
        record_episodes(policy, tmp_path / "a.parquet", episodes=1)
    assert list(tmp_path.iterdir()) == []


def test_a_format_that_refuses_its_options_leaves_no_file(pendulum, tmp_path):
    with pytest.raises(ValueError, match="fps must be above 0"):
        record_episodes(pendulum, tmp_path / "a", episodes=1, format="lerobot", fps=0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format", ["parquet", "lerobot"])
def test_a_data_set_that_another_writer_completed_meanwhile_stays(pendulum, tmp_path, format):
    path = tmp_path / "same"
    options = {"format": format, **({"fps": 5} if format == "lerobot" else {})}

    def interfere(steps, episodes):
        if episodes == 2:
            record_episodes(pendulum, path, episodes=1, **options)

    with pytest.raises(FileExistsError):
        record_episodes(pendulum, path, episodes=3, progress=interfere, **options)
    assert open_dataset(path).count_episodes() == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_policy_without_exploration_is_refused_before_anything_is_written(cartpole, tmp_path):
    class Greedy:
        def __call__(self, observations):
            return np.zeros(len(observations), np.int64)

    policy = replace(cartpole, policy=Greedy())
    with pytest.raises(ValueError, match="the policy of dqn has no `sample`, and so no exploration: give greedy=True"):
        record_episodes(policy, tmp_path / "a.parquet", episodes=1)
    assert list(tmp_path.iterdir()) == []
    assert record_episodes(policy, tmp_path / "a.parquet", episodes=1, greedy=True).num_steps > 0


def test_few_steps_do_not_take_eight_episodes(pendulum, tmp_path, monkeypatch):
    played, evaluate = [], Evaluator.evaluate

    def counted(evaluator, policy, seeds, **options):
        played.append(len(seeds))
        return evaluate(evaluator, policy, seeds, **options)

    monkeypatch.setattr(Evaluator, "evaluate", counted)
    assert record_episodes(pendulum, tmp_path / "a.parquet", steps=200).num_steps == 200
    assert played == [1]
    assert record_episodes(pendulum, tmp_path / "b.parquet", steps=600).num_steps == 600
    assert played[1:] == [1, 2]


def test_a_file_records_its_environment_and_agent(cartpole, tmp_path):
    found = record_episodes(cartpole, tmp_path / "a.parquet", episodes=2, random_actions=0.25, seed=9)
    details = open_dataset(found.path).details
    assert (details["env"], details["agent"], details["trained_steps"]) == (
        "CartPole-v1",
        "dqn",
        cartpole.run.env_steps,
    )
    assert (details["exploration"], details["random_actions"], details["first_seed"]) == ("the policy's", 0.25, 9)
    assert details["mean_return"] == pytest.approx(found.episodes.mean_return, abs=1e-3)


def test_recordings_in_one_folder_are_one_data_set(cartpole, tmp_path):
    parts = [
        record_episodes(cartpole, tmp_path / "set" / f"{seed}.parquet", episodes=3, seed=seed, random_actions=share)
        for seed, share in ((100, 0.0), (200, 1.0))
    ]
    source = open_dataset(tmp_path / "set")
    rows = list(source.steps())
    assert (source.num_rows, source.num_episodes) == (sum(part.num_rows for part in parts), 6)
    assert [sum(row.episode == number for row in rows) - 1 for number in range(6)] == [
        length for part in parts for length in part.episodes.lengths
    ]


def test_the_environment_of_minaris_metadata_is_the_policys(pendulum, tmp_path):
    pytest.importorskip("minari")
    options = {"episodes": 1, "format": "minari"}
    with pytest.raises(ValueError, match="environment is 'CartPole-v1', and the policy plays Pendulum-v1"):
        record_episodes(pendulum, tmp_path / "a-v0", environment="CartPole-v1", **options)
    found = record_episodes(pendulum, tmp_path / "pendulum" / "a-v0", environment="Pendulum-v1", **options)
    assert open_dataset(found.path).details["env"] == "Pendulum-v1"


def test_a_folder_that_cannot_get_its_name_leaves_nothing(pendulum, tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("pathlib.Path.rename", refused)
    with pytest.raises(OSError, match="Input/output error"):
        record_episodes(pendulum, tmp_path / "a", episodes=1, format="lerobot", fps=5)
    assert list(tmp_path.iterdir()) == []
