"""Shared by tests of agents: a harness for agents of unrolls, and a replay of NumPy arrays.

The replay has the names and rules of the public client, nothing of its speed. It is written apart from the package
(n-step ends by brute force over whole episodes), so that a test which runs an agent on both compares two readings of
the same rules.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
import torch

import reverie
from reverie.agents.core import Stopwatch
from reverie.agents.environments import describe


class Info(NamedTuple):
    key: np.ndarray
    probability: np.ndarray
    priority: np.ndarray
    table_size: np.ndarray


class UpdateResult(NamedTuple):
    applied: int
    stale: int


@dataclass
class Batch:
    data: dict[str, np.ndarray]
    info: Info
    lowest_probability: float

    def weights(self, beta: float, normalise: str = "batch") -> np.ndarray:
        raw = (self.info.table_size * self.info.probability) ** -beta
        top = raw.max() if normalise == "batch" else (self.info.table_size[0] * self.lowest_probability) ** -beta
        return raw / top


class FakeReplay:
    """One prioritised table under a limiter, as `make_tables` of an agent describes it."""

    def __init__(
        self,
        *,
        max_size: int,
        priority_exponent: float = 0.6,
        samples_per_insert: float = 1.0,
        min_size: int = 1,
        error_buffer: float = float("inf"),
        seed: int = 0,
    ) -> None:
        self.max_size, self.alpha = max_size, priority_exponent
        self.spi, self.min_size, self.error = samples_per_insert, min_size, error_buffer
        self.rng = np.random.default_rng(seed)
        self.columns: dict[str, np.ndarray] = {}
        self.keys = np.full(max_size, -1, dtype=np.int64)
        self.raw = np.zeros(max_size)
        self.mass = np.zeros(max_size)
        self.inserts = self.samples = 0
        self.updates: list[tuple[np.ndarray, np.ndarray]] = []
        self.writers: list[FakeWriter] = []

    @property
    def size(self) -> int:
        return min(self.inserts, self.max_size)

    def insert(self, item: dict[str, Any], priority: float) -> None:
        assert np.isfinite(priority)
        assert priority >= 0
        slot = self.inserts % self.max_size
        for name, value in item.items():
            value = np.asarray(value)
            if name not in self.columns:
                self.columns[name] = np.zeros((self.max_size, *value.shape), value.dtype)
            self.columns[name][slot] = value
        self.keys[slot], self.raw[slot], self.mass[slot] = self.inserts, priority, priority**self.alpha
        self.inserts += 1

    def can_sample(self, table: str, n: int) -> bool:
        low = self.spi * self.min_size - self.error
        return self.size >= self.min_size and self.inserts * self.spi - self.samples - n >= low

    def can_insert(self, table: str, n: int) -> bool:
        high = self.spi * self.min_size + self.error
        return self.size + n <= self.min_size or (self.inserts + n) * self.spi - self.samples <= high

    def why(self, table: str) -> str:
        return f"{self.inserts} inserts, {self.samples} samples"

    def sample_batch(self, table: str, n: int, timeout: float | None = None) -> Batch:
        assert self.can_sample(table, n)
        mass = self.mass[: self.size]
        total = np.cumsum(mass)
        slots = np.searchsorted(total, self.rng.random(n) * total[-1], side="right")
        self.samples += n
        info = Info(self.keys[slots], mass[slots] / total[-1], self.raw[slots], np.full(n, self.size))
        lowest = float(mass.min() / total[-1])
        return Batch({name: column[slots] for name, column in self.columns.items()}, info, lowest)

    def update_priorities(self, table: str, keys: np.ndarray, priorities: np.ndarray) -> UpdateResult:
        assert np.isfinite(priorities).all()
        self.updates.append((keys.copy(), priorities.copy()))
        slots = keys % self.max_size
        live = self.keys[slots] == keys
        self.raw[slots[live]] = priorities[live]
        self.mass[slots[live]] = priorities[live] ** self.alpha
        return UpdateResult(int(live.sum()), int((~live).sum()))

    def transition_writer(self, table: str, **options: Any) -> FakeWriter:
        writer = FakeWriter(self, **options)
        self.writers.append(writer)
        return writer


class FakeWriter:
    def __init__(
        self,
        replay: FakeReplay,
        *,
        n_step: int,
        discount: float,
        num_envs: int,
        autoreset: str,
        priority_eps: float,
        priority_clip: float | None,
        priority: float,
    ) -> None:
        assert autoreset == "next_step"
        assert priority == 1.0
        assert priority_clip is None
        self.replay, self.n, self.gamma, self.eps = replay, n_step, discount, priority_eps
        self.open: list[list[tuple]] = [[] for _ in range(num_envs)]
        self.ended: list[tuple[bool, bool] | None] = [None] * num_envs
        self.log: list[dict[str, Any]] = []

    def append(
        self,
        obs: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        *,
        q_taken: np.ndarray | None,
        bootstrap_value: np.ndarray | None,
        extras: dict[str, np.ndarray],
    ) -> int:
        before = self.replay.inserts
        if q_taken is None:  # no errors are known: every item has priority 1
            q_taken = bootstrap_value = np.full(len(obs), np.nan)
        self.log.append({"obs": obs, "action": action, "q": q_taken, "v": bootstrap_value, "extras": extras})
        for i in range(len(obs)):
            steps, value = self.open[i], float(bootstrap_value[i])
            if self.ended[i] is not None:
                for start in range(len(steps)):
                    self._emit(steps[start:], obs[i], value, terminated=self.ended[i][0])
                self.open[i], self.ended[i] = [], None
                continue
            if len(steps) == self.n:
                self._emit(steps, obs[i], value, terminated=False)
                steps.pop(0)
            extra = {name: column[i] for name, column in extras.items()}
            steps.append((obs[i], action[i], float(reward[i]), float(q_taken[i]), extra))
            if terminated[i] or truncated[i]:
                self.ended[i] = (bool(terminated[i]), bool(truncated[i]))
        return self.replay.inserts - before

    def _emit(self, steps: Sequence[tuple], end: np.ndarray, value: float, *, terminated: bool) -> None:
        obs, action, _, q, extra = steps[0]
        ret = sum(self.gamma**k * step[2] for k, step in enumerate(steps))
        discount = 0.0 if terminated else self.gamma ** len(steps)
        item = {"obs": obs, "action": action, "reward": np.float32(ret), "discount": np.float32(discount)}
        error = abs(ret + discount * value - q) + self.eps
        self.replay.insert({**item, "next_obs": end, **extra}, 1.0 if np.isnan(q) else error)

    def close(self, timeout: float | None = None) -> None:
        assert timeout == 0


class CountingEnv(gymnasium.Env):
    """Observations `[episode, step]`, reward 1, 2, 3, ...; ends after `length` steps, one way or the other."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, length: int, *, terminates: bool) -> None:
        self.length, self.terminates = length, terminates
        self.episode, self.step_index = -1, 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.episode, self.step_index = self.episode + 1, 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.step_index += 1
        over = self.step_index == self.length
        return self._observe(), float(self.step_index), over and self.terminates, over and not self.terminates, {}

    def _observe(self) -> np.ndarray:
        return np.array([self.episode, self.step_index], dtype=np.float32)


class Recall(gymnasium.Env):
    """The first of four observations shows which action the last step rewards."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.shown, self.steps = int(self.np_random.integers(2)), 0
        return np.array([2.0 * self.shown - 1.0, 0.0], np.float32), {}

    def step(self, action):
        self.steps += 1
        over = self.steps == 4
        return np.array([0.0, self.steps / 4], np.float32), float(over and action == self.shown), over, False, {}


class Side(gymnasium.Env):
    """Images with a bright spot: the reward of a step is 1 if the action is its side. Eight steps an episode."""

    observation_space = gymnasium.spaces.Box(0, 255, (10, 10, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observed(), {}

    def step(self, action):
        reward, self.steps = float(action == self.side), self.steps + 1
        return self._observed(), reward, False, self.steps == 8, {}

    def _observed(self):
        self.side, image = int(self.np_random.integers(2)), np.zeros((10, 10, 1), np.uint8)
        row, column = self.np_random.integers(2, 8), self.np_random.integers(4)
        image[row, column + 6 * self.side] = 255
        return image


gymnasium.register("ReverieRecall-v0", Recall)
gymnasium.register("ReverieSide-v0", Side)
COUNTING = {True: "ReverieCountingTerminated-v0", False: "ReverieCountingTruncated-v0"}
COUNTING_LENGTH = 7
for _terminates, _env_id in COUNTING.items():
    gymnasium.register(_env_id, CountingEnv, kwargs={"length": COUNTING_LENGTH, "terminates": _terminates})


@pytest.fixture(autouse=True)
def one_torch_thread() -> Iterator[None]:
    """Two busy cores make two threads slower than one on networks this small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=[True, False], ids=["terminated", "truncated"])
def counting_env(request: pytest.FixtureRequest) -> tuple[str, int, bool]:
    """Id, length of an episode, and whether it ends by termination."""
    return COUNTING[request.param], COUNTING_LENGTH, request.param


@pytest.fixture
def make_fake_replay() -> type[FakeReplay]:
    return FakeReplay


@pytest.fixture
def make_learner():
    """A function: the learner of an agent, with small networks, on a fake replay of random items of its own."""
    from reverie import agents
    from reverie.agents.core import Stopwatch
    from reverie.agents.environments import describe

    def make(name: str, environment: Any = None, **changes: Any) -> Any:
        agent = agents.find(name)
        spec = describe("Pendulum-v1" if agent.actions == "continuous" else "CartPole-v1", environment)
        config = agent.load_preset(spec.env_id).config
        widths = [k for k in ("hidden", "policy_hidden", "critic_hidden") if hasattr(config, k)]
        small = {"batch_size": 32, **dict.fromkeys(widths, (16,)), **changes}
        replay = FakeReplay(max_size=200, priority_exponent=0.6)
        rng = np.random.default_rng(1)
        for _ in range(200):
            obs, next_obs = rng.normal(size=(2, *spec.obs_shape)).astype(np.float32)
            numbers = {"reward": np.float32(rng.normal()), "discount": np.float32(rng.choice([0.0, 0.9]))}
            action = rng.uniform(-1, 1, spec.action_size).astype(np.float32)
            action = action if spec.action_size else np.int64(rng.integers(2))
            item = {"obs": obs, "next_obs": next_obs, "action": action, "weights_version": np.int64(0), **numbers}
            replay.insert(item, priority=float(rng.uniform(0.1, 2.0)))
        return agent.make_learner(spec, replace(config, **small), replay, seed=0, watch=Stopwatch())

    return make


@pytest.fixture
def make_harness():
    """A function that makes an agent's learner and actors on the agent's own table or queue, with changes to a config.

    Returns the client of the table, the learner, the actors and the config.
    """
    import reverie
    from reverie.agents.core import Stopwatch
    from reverie.agents.environments import describe

    with contextlib.ExitStack() as stack:

        def make(agent: Any, config: Any, env_id: str, **changes: Any) -> tuple[Any, Any, list[Any], Any]:
            config, spec = replace(config, **changes), describe(env_id)
            server = reverie.Server(agent.make_tables(spec, config, seed=0), listen=False)
            stack.callback(server.stop)
            client = server.client(timeout=0)
            learner = agent.make_learner(spec, config, client, seed=1, watch=Stopwatch())
            actors = [
                agent.make_actor(spec, config, client, learner, index=i, seed=2 + i, watch=Stopwatch())
                for i in range(config.num_actors)
            ]
            for actor in actors:
                stack.callback(actor.close)
            return client, learner, actors, config

        yield make


@pytest.fixture(scope="session")
def write_episodes():
    """A function: writes a Parquet file of episodes, each a list of (obs, action, reward, terminated, truncated)."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    def write(path: Any, episodes: Any, actions: Any = None) -> str:
        """`actions` is the type of the column; by default arrays of float32."""
        rows = [(number, *row) for number, steps in enumerate(episodes) for row in steps]
        number, obs, action, reward, terminated, truncated = zip(*rows, strict=True)
        columns = {
            "episode": pa.array(number),
            "obs": pa.FixedSizeListArray.from_arrays(np.concatenate(obs).astype(np.float32), len(obs[0])),
            "action": pa.array(
                [np.asarray(one).tolist() for one in action], actions or pa.list_(pa.float32(), np.size(action[0]))
            ),
            "reward": pa.array(np.array(reward, np.float32)),
            "terminated": pa.array(terminated),
            "truncated": pa.array(truncated),
        }
        pq.write_table(pa.table(columns), path)
        return str(path)

    return write


class UnrollHarness:
    """An actor and a learner of unrolls in one process, and the table between them."""

    def __init__(self, agent: Any, config: Any, env_id: str, environment: Any) -> None:
        self.spec, self.config = describe(env_id, environment), config
        self.server = reverie.Server(agent.make_tables(self.spec, config, seed=0), listen=False)
        self.client = self.server.client(timeout=0)
        made = {"seed": 1, "watch": Stopwatch()}
        self.learner = agent.make_learner(self.spec, config, self.client, **made)
        self.actor = agent.make_actor(self.spec, config, self.client, self.learner, index=0, **made)

    def fill(self) -> None:
        while not self.client.can_sample("unrolls", self.config.batch_size):
            self.actor.act()

    def batch(self) -> Any:
        self.fill()
        return self.client.sample_batch("unrolls", self.config.batch_size, timeout=5).data

    def learn(self, updates: int) -> None:
        for _ in range(updates):
            self.fill()
            self.learner.learn()

    def close(self) -> None:
        self.actor.close()
        self.server.stop()


@pytest.fixture
def make_unroll_harness() -> Iterator[Any]:
    """A function that makes a harness of an agent with this configuration, in an environment."""
    with contextlib.ExitStack() as stack:

        def make(agent: Any, config: Any, env_id: str, environment: Any = None) -> UnrollHarness:
            return stack.enter_context(contextlib.closing(UnrollHarness(agent, config, env_id, environment)))

        yield make
