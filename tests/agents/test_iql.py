"""IQL: its losses, the actor that reads a data set, and what it learns from one."""

import dataclasses
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("pyarrow")

import reverie  # noqa: E402
from reverie.agents import env_actor, find  # noqa: E402
from reverie.agents.core import Stopwatch  # noqa: E402
from reverie.agents.env_settings import EnvSettings  # noqa: E402
from reverie.agents.environments import UnsupportedEnvironmentError, describe  # noqa: E402
from reverie.agents.iql.loss import critics_loss, policy_loss, value_loss  # noqa: E402
from reverie.runners import train  # noqa: E402
from reverie.runners.roles.role import with_new_random_state  # noqa: E402

IQL = find("iql")
CONFIG = IQL.load_preset("Pendulum-v1").config


def double(*arrays):
    return [torch.tensor(one, dtype=torch.float64) for one in arrays]


def test_the_losses_are_those_of_numpy():
    rng = np.random.default_rng(0)
    q, v, v_t, r, log_pi = rng.normal(size=(2, 16)), *rng.normal(size=(4, 16))
    discount = np.where(rng.random(16) < 0.3, 0.0, 0.9)
    u = q.min(axis=0) - v
    expected = np.mean(np.where(u < 0, 0.2, 0.8) * u**2)
    assert value_loss(*double(v, q), 0.8).item() == pytest.approx(expected)
    assert value_loss(*double(v, q), 0.5).item() == pytest.approx(np.mean(u**2) / 2)
    expected = ((r + discount * v_t - q) ** 2).mean(axis=1).sum()
    assert critics_loss(*double(q, r, discount, v_t)).item() == pytest.approx(expected)
    for clip in (1.5, 100.0):
        weights = np.minimum(np.exp(3.0 * u), clip)
        assert policy_loss(*double(log_pi, q, v), 3.0, clip).item() == pytest.approx(-np.mean(weights * log_pi))
    assert policy_loss(*double(log_pi, q, v), 0.0, 100.0).item() == pytest.approx(-np.mean(log_pi)), "imitation"


def test_no_gradient_flows_into_what_the_losses_compare_with():
    q, v, v_t, log_pi = (torch.randn(n, requires_grad=True) for n in ((2, 4), (4,), (4,), (4,)))
    value_loss(v, q, 0.7).backward()
    assert q.grad is None
    assert v.grad.abs().min() > 0
    critics_loss(q, torch.zeros(4), torch.ones(4), v_t).backward()
    assert v_t.grad is None
    policy_loss(log_pi, q.detach().requires_grad_(), v, 1.0, 100.0).backward()
    assert (log_pi.grad < 0).all()


def test_the_value_that_minimises_the_loss_is_the_expectile():
    rng = np.random.default_rng(1)
    q = np.sort(rng.normal(size=400))
    v = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([v], max_iter=100)
    both = torch.tensor(np.stack([q, q + 1.0]))

    def closure():
        optimizer.zero_grad()
        loss = value_loss(v.expand(400), both, 0.9)
        loss.backward()
        return loss

    optimizer.step(closure)
    above, below = q[q > v.item()] - v.item(), v.item() - q[q < v.item()]
    assert 0.9 * above.sum() == pytest.approx(0.1 * below.sum(), rel=1e-4)


class Slide(gymnasium.Env):
    """A place in [-1, 1] that actions move; the reward of a step is minus the distance from 0. Ends after 20 steps."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-2, 2, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = self.np_random.uniform(-1, 1), 0
        return np.array([self.place], np.float32), {}

    def step(self, action):
        self.steps += 1
        self.place = float(np.clip(self.place + 0.15 * float(action[0]), -1, 1))
        return np.array([self.place], np.float32), -abs(self.place), False, self.steps == 20, {}


gymnasium.register("ReverieSlide-v0", Slide)


def random_episodes(env_id, seed, count):
    """Episodes of uniform random actions, each with its last observation."""
    env, rng = gymnasium.make(env_id), np.random.default_rng(seed)
    low, high = env.action_space.low, env.action_space.high
    for episode in range(count):
        obs, _ = env.reset(seed=seed + episode)
        steps, over = [], False
        while not over:
            action = rng.uniform(low, high).astype(np.float32)
            after, reward, terminated, truncated, _ = env.step(action)
            steps.append((obs, action, reward, terminated, truncated))
            obs, over = after, terminated or truncated
        yield [*steps, (obs, np.zeros_like(action), 0.0, False, False)]


@pytest.fixture
def small(tmp_path, write_episodes):
    """Two episodes of three and two steps, one cut off and one terminated, with their last observations."""
    first = [(np.full(3, float(k)), np.full(1, k - 1.0), float(k), False, k == 2) for k in range(3)]
    second = [(np.full(3, 10.0 + k), np.full(1, 2.0), 1.0, k == 1, False) for k in range(2)]
    ends = [[(np.full(3, last), np.zeros(1), 0.0, False, False)] for last in (3.0, 12.0)]
    return write_episodes(tmp_path / "small.parquet", [first + ends[0], second + ends[1]])


class Harness:
    def __init__(self, environment=None, **changes):
        spec = describe("Pendulum-v1", environment)
        self.config = dataclasses.replace(CONFIG, learning_starts=1, **changes)
        (table,) = IQL.make_tables(spec, self.config, seed=0)
        free = reverie.rate_limiters.MinSize(1)
        self.server = reverie.Server([table.replace(rate_limiter=free, sampler=reverie.selectors.Fifo())], listen=False)
        self.client = self.server.client()
        made = {"seed": 0, "watch": Stopwatch()}
        self.learner = IQL.make_learner(spec, self.config, self.client, **made)
        self.actor = IQL.make_actor(spec, self.config, self.client, self.learner, index=0, **made)

    def discounted_returns(self):
        self.actor.settle()
        self.actor._writer.flush()
        keys = self.client.query("replay").key
        return self.client.get("replay", keys).data["discounted_return"] if len(keys) else np.empty(0)

    def items(self):
        self.actor.settle()
        self.actor._writer.flush()
        self.client.configure("replay", max_times_sampled=1)
        size = self.client.info().tables["replay"].current_size
        if not size:
            return []
        data = self.client.sample_batch("replay", size, timeout=5).data
        rows = zip(*(data[name] for name in ("obs", "action", "reward", "discount", "next_obs")), strict=True)
        return [(o[0], float(a[0]), float(r), round(float(d), 4), n[0]) for o, a, r, d, n in rows]


def test_a_reader_writes_the_rows_in_order_with_scaled_actions_and_true_last_observations(small):
    one = Harness(dataset=small, discount=0.9)
    assert [one.actor.act() for _ in range(5)] == [1] * 5
    assert one.actor.drain_returns() == [3.0, 2.0]
    assert one.actor.drain_returns() == []
    expected = [(0.0, -0.5, 0.0, 0.9, 1.0), (1.0, 0.0, 1.0, 0.9, 2.0), (2.0, 0.5, 2.0, 0.9, 3.0)]
    assert one.items() == [*expected, (10.0, 1.0, 1.0, 0.9, 11.0), (11.0, 1.0, 1.0, 0.0, 12.0)]


def test_rows_of_a_data_set_have_no_age_in_updates(small):
    one = Harness(dataset=small, batch_size=2)
    for _ in range(5):
        one.actor.act()
    one.actor._writer.flush()
    for count in (1, 2):
        one.learner.learn()
        assert one.learner.metrics()["updates"] == count
        assert "age_in_updates" not in one.learner.metrics()


def test_a_reader_begins_again_after_the_last_row_and_continues_from_its_place(small):
    one = Harness(dataset=small)
    for _ in range(7):
        one.actor.act()
    again = Harness(dataset=small)
    again.actor.load_state_dict(one.actor.state_dict())
    assert again.actor.env_steps == 7
    for _ in range(3):
        one.actor.act()
        again.actor.act()
    assert [item[0] for item in one.items()] == [0.0, 1.0, 2.0, 10.0, 11.0] * 2
    assert [item[0] for item in again.items()] == [1.0, 2.0, 10.0, 11.0], "with the item that awaited the next row"


def test_a_reader_that_was_restarted_continues_from_its_place(small):
    one, again = Harness(dataset=small), Harness(dataset=small)
    for _ in range(2):
        one.actor.act()
    # As a role does after a restart: an actor that plays gets another random state, and a reader has none.
    state = with_new_random_state(SimpleNamespace(generation=1), one.actor.state_dict(), again.actor)
    again.actor.load_state_dict(state)
    again.actor.act()
    assert [item[0] for item in again.items()] == [1.0, 2.0]


def test_a_reader_gives_the_discounted_returns_that_normalise_rewards(small):
    one = Harness(dataset=small, discount=0.5, environment=EnvSettings(normalise_rewards=True))
    for _ in range(5):
        one.actor.act()
    one.actor.settle()
    one.actor._writer.flush()
    found = one.client.get("replay", one.client.query("replay").key).data["discounted_return"]
    assert found.tolist() == [0.0, 1.0, 2.5, 1.0, 1.5], "it begins again with each episode"


@pytest.mark.parametrize("row", range(1, 9))
def test_a_reader_that_continues_within_an_episode_writes_the_items_and_returns_of_one_that_was_not_stopped(small, row):
    options = {"dataset": small, "n_step": 2, "discount": 0.5, "environment": EnvSettings(normalise_rewards=True)}
    whole, begun, again, at_once = (Harness(**options) for _ in range(4))
    for _ in range(10):
        whole.actor.act()
    for _ in range(row):
        begun.actor.act()
    # Stopped twice, the second time before it has read anything.
    at_once.actor.load_state_dict(begun.actor.state_dict())
    again.actor.load_state_dict(at_once.actor.state_dict())
    for _ in range(10 - row):
        again.actor.act()
    assert again.actor.env_steps == 10
    assert begun.actor.drain_returns() + again.actor.drain_returns() == whole.actor.drain_returns() == [3.0, 2.0] * 2
    parts = [one.discounted_returns() for one in (begun, again)]
    assert np.concatenate(parts).tolist() == whole.discounted_returns().tolist()
    assert begun.items() + again.items() == whole.items()


def test_items_of_several_steps_stay_within_their_episode(small):
    one = Harness(dataset=small, n_step=2, discount=0.5)
    for _ in range(5):
        one.actor.act()
    assert sorted(item[:1] + item[2:] for item in one.items()) == [
        (0.0, 0.5, 0.25, 2.0),
        (1.0, 2.0, 0.25, 3.0),
        (2.0, 2.0, 0.5, 3.0),
        (10.0, 1.5, 0.0, 12.0),
        (11.0, 1.0, 0.0, 12.0),
    ]


@pytest.mark.long
def test_a_run_of_a_data_set_plays_no_environment_while_it_learns(tmp_path, monkeypatch, write_episodes):
    path = write_episodes(tmp_path / "data.parquet", random_episodes("Pendulum-v1", 0, 2))
    preset = IQL.load_preset("Pendulum-v1")
    monkeypatch.setattr(env_actor, "make_vector", lambda *args, **kwargs: pytest.fail("made an environment to act in"))
    config = dataclasses.replace(
        preset.config, dataset=path, learning_starts=400, policy_hidden=(8,), critic_hidden=(8,), batch_size=16
    )
    config = dataclasses.replace(config, samples_per_insert=16.0)
    run = dataclasses.replace(
        preset.run, max_env_steps=500, evaluate_every=500, screening_episodes=1, confirmation_episodes=1
    )
    result = train(IQL, "Pendulum-v1", config=config, run=run, folder=tmp_path / "run")
    assert result.env_steps == 500
    assert 90 <= result.learner["updates"] <= 110
    assert reverie.load_policy(tmp_path / "run").config.dataset == path
    longer = dataclasses.replace(run, max_env_steps=600)
    again = train(IQL, "Pendulum-v1", config=config, run=longer, folder=tmp_path / "run", resume="must")
    assert again.learner["updates"] > result.learner["updates"]


def test_columns_of_other_names_get_those_of_transitions(small, tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    table, names = pq.read_table(small), {"obs": "observations", "terminated": "done"}
    other = str(tmp_path / "other.parquet")
    pq.write_table(table.rename_columns([names.get(name, name) for name in table.column_names]), other)
    with pytest.raises(ValueError, match=r"need the columns obs, terminated; .*dataset_rename=\[.observations=obs.,"):
        Harness(dataset=other).actor.act()
    renamed = tuple(f"{new}={old}" for old, new in names.items())
    read = []
    for harness in (Harness(dataset=small), Harness(dataset=other, dataset_rename=renamed)):
        for _ in range(5):
            harness.actor.act()
        read.append([(*map(float, one[:1]), *one[1:4]) for one in harness.items()])
    assert read[0] == read[1] != []
    with pytest.raises(ValueError, match="dataset_rename has 'obs', and each must be old=new"):
        dataclasses.replace(CONFIG, dataset_rename=["obs"])
    settings = {"max_env_steps": 5, "learning_starts": 4, "target_return": None}
    result = reverie.train("iql", "Pendulum-v1", dataset=other, dataset_rename=renamed, **settings)
    assert result.topology.config.dataset_rename == renamed


def test_rows_of_a_replay_table_are_refused_as_items(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = {"obs": [[0.0] * 3], "next_obs": [[0.0] * 3], "action": [[0.0]], "reward": [1.0], "discount": [0.99]}
    pq.write_table(pa.table(rows), tmp_path / "items.parquet")
    with pytest.raises(ValueError, match="its rows are items of a replay table, each a transition of its own"):
        Harness(dataset=str(tmp_path / "items.parquet")).actor.act()


def test_data_sets_that_do_not_fit_are_refused_with_what_differs(small, tmp_path):
    spec, made = describe("MountainCarContinuous-v0"), {"index": 0, "seed": 0, "watch": Stopwatch()}
    with pytest.raises(UnsupportedEnvironmentError, match=r"has obs of shape \(3,\), and Mountain.* has \(2,\)"):
        IQL.make_actor(spec, dataclasses.replace(CONFIG, dataset=small), None, None, **made)
    with pytest.raises(ValueError, match=r"capacity is 4, and .*small.parquet has 7 rows"):
        Harness(dataset=small, capacity=4)
    with pytest.raises(ValueError, match="num_actors is 2 and envs_per_actor 1: a dataset is read by one actor"):
        dataclasses.replace(CONFIG, dataset=small, num_actors=2)
    with pytest.raises(ValueError, match=r"expectile is 1.0, and must lie in \(0, 1\)"):
        dataclasses.replace(CONFIG, expectile=1.0)


@pytest.mark.parametrize("change", [{"expectile": 0.5}, {"advantage_scale": 0.0}, {"target_rate": 1.0}])
def test_each_option_of_an_update_changes_it(change):
    flats = []
    for changes in ({}, {}, change):
        one = Harness(policy_hidden=(8,), critic_hidden=(8,), batch_size=16, **changes)
        for _ in range(60):
            one.actor.act()
        one.actor.settle()
        one.actor._writer.flush()
        for _ in range(3):
            one.learner.learn()
        flats.append(np.concatenate([one.learner._policy.numpy(), one.learner._values.numpy()]))
    assert (flats[0] == flats[1]).all()
    assert (flats[0] != flats[2]).any()


@pytest.mark.long
def test_iql_learns_from_random_actions_a_policy_that_is_far_better(tmp_path, write_episodes):
    """A policy that only imitates, as the weights of advantages are off, stays as bad as the data."""
    episodes = list(random_episodes("ReverieSlide-v0", 0, 150))
    behaviour = np.mean([sum(step[2] for step in steps) for steps in episodes])
    path = write_episodes(tmp_path / "data.parquet", episodes)
    run = dataclasses.replace(
        IQL.load_preset("Pendulum-v1").run,
        target_return=None,
        max_env_steps=3_600,
        evaluate_every=3_600,
        screening_episodes=1,
        confirmation_episodes=20,
    )
    settings = {"dataset": path, "learning_starts": 3_000, "batch_size": 64, "samples_per_insert": 64.0}
    small = {"policy_hidden": (32,), "critic_hidden": (32,), "discount": 0.9, "advantage_scale": 10.0}
    results = []
    for changes in ({}, {"advantage_scale": 0.0}):
        config = dataclasses.replace(CONFIG, **{**settings, **small, **changes})
        results.append(train(IQL, "ReverieSlide-v0", config=config, run=run, seed=1).evaluation.mean_return)
    learnt, imitated = results
    assert learnt > behaviour / 2 > imitated
