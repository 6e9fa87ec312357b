"""CQL: its loss, data sets of discrete actions, and what it learns where plain Q-learning fails."""

import dataclasses
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pa = pytest.importorskip("pyarrow")

import reverie  # noqa: E402
from reverie.agents import env_actor, find  # noqa: E402
from reverie.agents.actions import ActionEnumeration  # noqa: E402
from reverie.agents.core import Stopwatch  # noqa: E402
from reverie.agents.cql.loss import conservative_gap, cql_loss  # noqa: E402
from reverie.agents.environments import UnsupportedEnvironmentError, describe  # noqa: E402
from reverie.runners import plan, train  # noqa: E402

CQL, DQN = find("cql"), find("dqn")
PRESET = CQL.load_preset("CartPole-v1")
CONFIG = PRESET.config
ROLE = {"index": 0, "seed": 0, "watch": Stopwatch()}


def numbers(seed=0, rows=16, actions=4):
    rng = np.random.default_rng(seed)
    q_tm1, q_t = rng.normal(size=(2, rows, actions))
    discount = np.where(rng.random(rows) < 0.3, 0.0, 0.9)
    return q_tm1, rng.integers(actions, size=rows), rng.normal(size=rows), discount, q_t


def tensors(arrays):
    return [torch.tensor(one) for one in arrays]


@pytest.mark.parametrize("weight", [0.0, 0.5, 4.0])
def test_the_loss_is_that_of_numpy(weight):
    q_tm1, a_tm1, r_t, discount_t, q_t = numbers()
    taken = q_tm1[np.arange(16), a_tm1]
    gap = np.mean(np.log(np.exp(q_tm1).sum(axis=1)) - taken)
    errors = np.mean((r_t + discount_t * q_t.max(axis=1) - taken) ** 2) / 2
    out = cql_loss(*tensors(numbers()), conservative_weight=weight, huber_delta=100.0)
    assert out.gap.item() == pytest.approx(gap)
    assert out.loss.item() == pytest.approx(weight * gap + errors)


def test_a_hand_worked_batch_gives_its_gap():
    # log(1 + 3) - 0 and log(e + 2) - 1: of the second row the action of the data is the best one.
    q = torch.tensor([[0.0, 3.0], [1.0, 2.0]], dtype=torch.float64)
    q[0, 1], q[1, 1] = np.log(3.0), np.log(2.0)
    gaps = [np.log(4.0), np.log(np.e + 2.0) - 1.0]
    assert conservative_gap(q, torch.tensor([0, 0])).item() == pytest.approx(np.mean(gaps))


def test_the_terms_gradient_is_the_softmax_without_the_actions_of_the_data():
    q = torch.tensor(numbers(1)[0], requires_grad=True)
    actions = torch.tensor(numbers(1)[1])
    conservative_gap(q, actions).backward()
    softmax = np.exp(q.detach().numpy())
    softmax /= softmax.sum(axis=1, keepdims=True)
    softmax[np.arange(16), actions.numpy()] -= 1.0
    assert q.grad.numpy() == pytest.approx(softmax / 16)


def test_no_gradient_flows_into_the_targets_values():
    batch = tensors(numbers(2))
    batch[0].requires_grad_()
    batch[4].requires_grad_()
    cql_loss(*batch, conservative_weight=1.0, huber_delta=1.0).loss.backward()
    assert batch[4].grad is None
    assert batch[0].grad.abs().min() > 0


def updated(agent, config, updates=3):
    """The weights after a few updates from one batch."""
    rng = np.random.default_rng(0)
    data = {
        "obs": rng.normal(size=(32, 4)).astype(np.float32),
        "next_obs": rng.normal(size=(32, 4)).astype(np.float32),
        "action": rng.integers(2, size=32),
        "reward": rng.normal(size=32).astype(np.float32),
        "discount": np.full(32, 0.9, np.float32),
        "weights_version": np.zeros(32, np.int64),
    }
    info = SimpleNamespace(key=np.arange(32))
    client = SimpleNamespace(sample_batch=lambda *args, **kwargs: SimpleNamespace(data=data, info=info))
    learner = agent.make_learner(describe("CartPole-v1"), config, client, seed=1, watch=Stopwatch())
    for _ in range(updates):
        learner.learn()
    return learner.latest(-1).flat, learner.metrics()


def test_without_its_weight_an_update_is_dqns_and_with_it_another_one():
    config = dataclasses.replace(CONFIG, hidden=(16,), target_period=2)
    known = {field.name for field in dataclasses.fields(DQN.config)}
    plain = DQN.config(**{name: value for name, value in vars(config).items() if name in known})
    expected, _ = updated(DQN, plain)
    same, metrics = updated(CQL, dataclasses.replace(config, conservative_weight=0.0))
    assert (same == expected).all()
    assert metrics["conservative_gap"] > 0
    assert (updated(CQL, config)[0] != expected).any()


def test_a_run_may_compute_on_a_gpu_and_compile_its_updates(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    run = dataclasses.replace(PRESET.run, device="cuda:0", compile="on")
    topology = plan(CQL, "CartPole-v1", run=run)
    assert (topology.run.device, topology.compiling.required) == ("cuda:0", True)


class Vectors(gymnasium.Env):
    """Actions that are two choices."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, True, False, {}


class Ledge(gymnasium.Env):
    """A place in [-1, 1]; the reward of a step is minus ten times the distance from 0. Ten steps.

    The first three actions move to the left, stay, and move to the right. Each of the others falls from the ledge: -20
    for every step that is left.
    """

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(6)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = self.np_random.uniform(-1, 1), 0
        return np.array([self.place], np.float32), {}

    def step(self, action):
        self.steps += 1
        if action > 2:
            return np.array([self.place], np.float32), -20.0 * (11 - self.steps), True, False, {}
        self.place = float(np.clip(self.place + 0.25 * (int(action) - 1), -1, 1))
        return np.array([self.place], np.float32), -10.0 * abs(self.place), False, self.steps == 10, {}


gymnasium.register("ReverieVectors-v0", Vectors)
gymnasium.register("ReverieLedge-v0", Ledge)


def careful_episodes(count):
    """Episodes of uniform random actions that do not fall, each with its last observation."""
    env, rng = gymnasium.make("ReverieLedge-v0"), np.random.default_rng(0)
    for episode in range(count):
        obs, _ = env.reset(seed=episode)
        steps, over = [], False
        while not over:
            action = int(rng.integers(3))
            after, reward, terminated, truncated, _ = env.step(action)
            steps.append((obs, action, reward, terminated, truncated))
            obs, over = after, terminated or truncated
        yield [*steps, (obs, 0, 0.0, False, False)]


class Harness:
    """A reader on the agent's own table."""

    def __init__(self, env_id, path, reward_bound=None, **changes):
        spec = dataclasses.replace(describe(env_id), reward_bound=reward_bound)
        config = dataclasses.replace(CONFIG, dataset=path, learning_starts=1, **changes)
        (table,) = CQL.make_tables(spec, config, seed=0)
        free = reverie.rate_limiters.MinSize(1)
        self.server = reverie.Server([table.replace(rate_limiter=free, sampler=reverie.selectors.Fifo())], listen=False)
        self.client = self.server.client()
        self.reader = CQL.make_actor(spec, config, self.client, None, **ROLE)

    def read(self, rows):
        for _ in range(rows):
            self.reader.act()
        self.reader._writer.flush()
        self.client.configure("replay", max_times_sampled=1)
        return self.client.sample_batch("replay", self.client.info().tables["replay"].current_size, timeout=5).data


def episode(actions, size=4):
    ones = [(np.full(size, float(k)), action, 1.0, False, k + 1 == len(actions)) for k, action in enumerate(actions)]
    return [*ones, (np.full(size, 9.0), np.zeros_like(actions[0]), 0.0, False, False)]


@pytest.mark.parametrize("actions", [pa.int64(), pa.int32(), pa.uint8(), pa.list_(pa.int64(), 1)], ids=str)
def test_a_reader_writes_the_numbers_of_actions_however_they_are_stored(actions, tmp_path, write_episodes):
    stored = [[1], [0], [1]] if actions.num_fields else [1, 0, 1]
    one = Harness("CartPole-v1", write_episodes(tmp_path / "data.parquet", [episode(stored)], actions))
    data = one.read(3)
    assert data["action"].tolist() == [1, 0, 1]
    assert data["action"].dtype == np.int64
    assert data["next_obs"][:, 0].tolist() == [1.0, 2.0, 9.0]
    assert one.reader.drain_returns() == [3.0]


def test_rewards_of_a_game_are_bounded_for_learning_and_its_returns_are_not(tmp_path, write_episodes):
    steps = [(obs, action, 4.0 * k - 3.0, *ends) for k, (obs, action, _, *ends) in enumerate(episode([1, 0, 1]))]
    one = Harness("CartPole-v1", write_episodes(tmp_path / "data.parquet", [steps], pa.int64()), reward_bound=1.0)
    assert one.read(3)["reward"].tolist() == [-1.0, 1.0, 1.0]
    assert one.reader.drain_returns() == [-3.0 + 1.0 + 5.0]


def test_a_reader_numbers_vectors_of_choices_as_the_policy_does(tmp_path, write_episodes):
    stored = [[0, 0], [1, 2], [1, 0]]
    path = write_episodes(tmp_path / "data.parquet", [episode(stored, size=1)], pa.list_(pa.int64(), 2))
    found = Harness("ReverieVectors-v0", path).read(3)["action"]
    assert found.tolist() == [0, 5, 3]
    assert ActionEnumeration((2, 3)).to_env(found).tolist() == stored


@pytest.mark.parametrize(
    ("stored", "actions", "message"),
    [
        ([1, 2, 0], pa.int64(), r"has the action 2, and actions of CartPole-v1 are Discrete\(2\)"),
        ([1, -1, 0], pa.int64(), r"has the action -1, and"),
        ([1.0, 0.0, 0.0], pa.float32(), r"has action of dtype float32, and actions of CartPole-v1 are Discrete\(2\)"),
        ([[1, 0]] * 3, pa.list_(pa.int64(), 2), r"has action of shape \(2,\), and CartPole-v1 has \(\)"),
    ],
    ids=["too large", "negative", "not whole", "vectors"],
)
def test_actions_that_the_environment_does_not_have_are_refused(stored, actions, message, tmp_path, write_episodes):
    path = write_episodes(tmp_path / "data.parquet", [episode(stored)], actions)
    with pytest.raises(UnsupportedEnvironmentError, match=message):
        Harness("CartPole-v1", path).read(3)


def test_settings_that_cannot_work_are_refused_by_name():
    with pytest.raises(ValueError, match=r"conservative_weight is -1\.0, and must not be below 0"):
        dataclasses.replace(CONFIG, conservative_weight=-1.0)
    with pytest.raises(ValueError, match="num_actors is 1 and envs_per_actor 2: a dataset is read by one actor"):
        dataclasses.replace(CONFIG, dataset="data.parquet", envs_per_actor=2)
    with pytest.raises(ValueError, match="her is 'final', and a dataset is read with its own goals"):
        dataclasses.replace(CONFIG, dataset="data.parquet", her="final")


@pytest.mark.long
def test_cql_learns_where_plain_q_learning_takes_actions_that_no_row_has(tmp_path, monkeypatch, write_episodes):
    """Its twin is the same run without the conservative term: values of actions that no row has are never corrected."""
    episodes = list(careful_episodes(100))
    behaviour = np.mean([sum(step[2] for step in steps) for steps in episodes])
    path = write_episodes(tmp_path / "data.parquet", episodes, pa.int64())
    monkeypatch.setattr(env_actor, "make_vector", lambda *args, **kwargs: pytest.fail("made an environment to act in"))
    run = dataclasses.replace(
        PRESET.run, target_return=None, max_env_steps=1_600, evaluate_every=1_600, screening_episodes=1
    )
    run = dataclasses.replace(run, confirmation_episodes=50)
    config = dataclasses.replace(
        CONFIG,
        dataset=path,
        learning_starts=1_000,
        batch_size=64,
        samples_per_insert=64.0,
        hidden=(64,),
        discount=0.9,
        learning_rate=3e-3,
        huber_delta=10.0,
        target_period=25,
    )
    results = []
    for weight in (1.0, 0.0):
        tried = dataclasses.replace(config, conservative_weight=weight)
        results.append(train(CQL, "ReverieLedge-v0", config=tried, run=run, seed=1).evaluation.mean_return)
    conservative, plain = results
    assert conservative > behaviour / 2 > 2 * behaviour > plain
