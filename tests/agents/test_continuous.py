"""Code that DDPG, TD3, SAC and Ape-X DPG share: scaled actions, parallel critics, noise, target networks."""

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie.agents.continuous import ActionScale, Critics  # noqa: E402
from reverie.agents.core import Stopwatch  # noqa: E402
from reverie.agents.ddpg import agent as ddpg  # noqa: E402
from reverie.agents.environments import EnvSpec, UnsupportedEnvironmentError, describe  # noqa: E402
from reverie.agents.fitting import require_continuous  # noqa: E402
from reverie.agents.flat import FlatNetwork  # noqa: E402
from reverie.agents.layers import initialised  # noqa: E402
from reverie.agents.sac import agent as sac  # noqa: E402
from reverie.agents.target_networks import polyak_update  # noqa: E402
from reverie.agents.td3 import agent as td3  # noqa: E402

PENDULUM = describe("Pendulum-v1")


@pytest.fixture
def log(make_fake_replay):
    """A function that lets an agent act, and gives its learner and what it appended."""
    actors = []

    def act(agent, *, acts, **changes):
        config = dataclasses.replace(agent.load_preset("Pendulum-v1").config, **changes)
        replay = make_fake_replay(max_size=10_000)
        learner = agent.make_learner(PENDULUM, config, replay, seed=3, watch=Stopwatch())
        actor = agent.make_actor(PENDULUM, config, replay, learner, index=0, seed=4, watch=Stopwatch())
        actors.append(actor)
        taken = []
        step = actor._envs.step
        actor._envs.step = lambda actions: (taken.append(actions), step(actions))[1]
        for _ in range(acts):
            actor.act()
        return learner, config, replay.writers[0].log, taken

    yield act
    for actor in actors:
        actor.close()


def test_actions_go_from_minus_one_and_one_to_the_bounds_and_never_beyond():
    spec = dataclasses.replace(PENDULUM, action_low=(-2.0, 0.0), action_high=(2.0, 10.0))
    actions = np.array([[-1, -1], [0, 0], [1, 1], [1.0001, -1.0001]], np.float32)
    assert ActionScale(spec).to_env(actions).tolist() == [[-2, 0], [0, 5], [2, 10], [2, 0]]


def test_unbounded_actions_are_refused():
    spec = EnvSpec("Wild-v0", (3,), "float32", None, "Box(-inf, inf, (1,), float32)", None)
    with pytest.raises(UnsupportedEnvironmentError, match=r"Box\(-inf.*within bounds"):
        require_continuous(spec, "ddpg")


def test_critics_side_by_side_are_those_of_each_alone():
    two = initialised(lambda: Critics(PENDULUM, (8, 5), 2), seed=0)
    obs, actions = torch.randn(6, 3, generator=torch.Generator().manual_seed(1)), torch.linspace(-1, 1, 6)[:, None]
    q = two(obs, actions)
    assert q.shape == (2, 6)
    for k in range(2):
        x = torch.cat([obs, actions], dim=1)
        for index, layer in enumerate(two.layers):
            x = x @ layer.weight[k] + layer.bias[k]
            x = x.relu() if index < 2 else x
        assert torch.allclose(q[k], x[:, 0], atol=1e-6)
    assert not torch.allclose(q[0], q[1])


def test_a_target_moves_by_its_rate_of_the_way():
    online, target = (FlatNetwork(initialised(lambda: Critics(PENDULUM, (4,), 1), s), trainable=False) for s in (0, 1))
    expected = target.numpy() + 0.25 * (online.numpy() - target.numpy())
    polyak_update(target, online, 0.25)
    assert target.numpy() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("agent", [ddpg, td3, sac], ids=lambda a: a.name)
def test_items_hold_actions_of_minus_one_to_one_and_environments_get_them_within_their_bounds(agent, log):
    _, _, rows, taken = log(agent, acts=60, random_steps=30)
    for row, actions in zip(rows, taken, strict=True):
        assert row["action"].dtype == np.float32
        assert np.abs(row["action"]).max() <= 1
        assert actions == pytest.approx(2 * row["action"])


def is_uniform(actions):
    """Mean and spread, within five sigma of those of as many independent draws from [-1, 1]."""
    one_sided = abs(actions.mean()) / (1 / 3 / len(actions)) ** 0.5
    narrow = abs((np.abs(actions) < 0.5).mean() - 0.5) / (0.5 / len(actions) ** 0.5)
    return max(one_sided, narrow) < 5


@pytest.mark.parametrize("agent", [ddpg, td3, sac], ids=lambda a: a.name)
def test_actions_are_uniform_for_the_first_random_steps_only(agent, log):
    learner, config, rows, _ = log(agent, acts=600, random_steps=400)
    first = np.concatenate([row["action"] for row in rows[:400]]).ravel()
    # The deviation of a uniform law on [-1, 1] is 3 ** -0.5; five sigma of the mean, and both halves of the range.
    assert is_uniform(first)
    # The twins: more to one side, and to the middle.
    assert not is_uniform(np.clip(first + 0.3, -1, 1))
    assert not is_uniform(first * 0.7)
    policy = agent.make_policy(PENDULUM, config)
    policy.load(learner.latest(-1))
    late = [np.abs(row["action"] - policy.actions(row["obs"])) for row in rows[405:]]
    if agent is not sac:
        assert max(np.max(distance) for distance in late) < 6 * config.noise_sigma


@pytest.mark.parametrize("agent", [ddpg, td3, sac], ids=lambda a: a.name)
def test_random_steps_are_those_of_all_actors_together(agent, log, monkeypatch):
    asked = []
    name = "noisy" if agent is sac else "actions"
    kind = type(agent.make_policy(PENDULUM, agent.load_preset("Pendulum-v1").config))
    policy = getattr(kind, name)
    monkeypatch.setattr(kind, name, lambda self, obs, *rest: asked.append(len(obs)) or policy(self, obs, *rest))
    log(agent, acts=150, random_steps=400, num_actors=4, envs_per_actor=1)
    assert len(asked) == 50


@pytest.mark.long
@pytest.mark.parametrize("agent", [ddpg, td3], ids=lambda a: a.name)
def test_the_noise_has_the_configured_deviation(agent, log):
    learner, config, rows, _ = log(agent, acts=800, random_steps=0, noise_sigma=0.05)
    policy = agent.make_policy(PENDULUM, config)
    policy.load(learner.latest(-1))
    noise = np.concatenate([(row["action"] - policy.actions(row["obs"])).ravel() for row in rows])
    bound = 5 * (2 / len(noise)) ** 0.5
    assert np.mean(noise**2) == pytest.approx(0.05**2, rel=bound)
    assert np.mean((1.25 * noise) ** 2) != pytest.approx(0.05**2, rel=bound), "a quarter more would show"
