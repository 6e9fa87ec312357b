"""PPO's options, each compared with numbers that NumPy computes, or by what it changes in an update."""

import dataclasses
import math

import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import reverie  # noqa: E402
from reverie.agents.core import Stopwatch  # noqa: E402
from reverie.agents.distributions import Categorical, DiagonalGaussian  # noqa: E402
from reverie.agents.env_settings import EnvSettings  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402
from reverie.agents.ppo import agent as ppo  # noqa: E402
from reverie.agents.ppo.loss import explained_variance, ppo_loss  # noqa: E402

CONFIG = dataclasses.replace(
    ppo.load_preset("CartPole-v1").config,
    num_actors=1,
    envs_per_actor=4,
    unroll_length=16,
    hidden=(16,),
    epochs=4,
    minibatch_size=16,
    anneal_updates=0,
    max_grad_norm=100.0,
    learning_rate=3e-3,
)


class Match(gymnasium.Env):
    """The action should be twice the observation: the reward of a step is minus the squared error. Eight steps."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-2, 2, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observed(), {}

    def step(self, action):
        reward, self.steps = -float((action[0] - 2 * self.wanted) ** 2), self.steps + 1
        return self._observed(), reward, False, self.steps == 8, {}

    def _observed(self):
        self.wanted = self.np_random.uniform(-1, 1)
        return np.array([self.wanted], np.float32)


gymnasium.register("ReverieMatch-v0", Match)


class Harness:
    """A learner and an actor on the agent's own queue."""

    def __init__(self, env_id, environment=None, seed=1, **changes):
        self.spec, self.config = describe(env_id, environment), dataclasses.replace(CONFIG, **changes)
        self.server = reverie.Server(ppo.make_tables(self.spec, self.config, seed=0), listen=False)
        self.client = self.server.client(timeout=0)
        made = {"seed": seed, "watch": Stopwatch()}
        self.learner = ppo.make_learner(self.spec, self.config, self.client, **made)
        self.actor = ppo.make_actor(self.spec, self.config, self.client, self.learner, index=0, **made)

    def fill(self):
        while not self.client.can_sample("unrolls", self.config.batch_size):
            self.actor.act()

    def learn(self, updates=1):
        for _ in range(updates):
            self.fill()
            self.learner.learn()
        return self.learner.latest(-1).flat

    def close(self):
        self.actor.close()
        self.server.stop()


@pytest.fixture
def harness():
    made = []

    def make(env_id="CartPole-v1", **options):
        made.append(Harness(env_id, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def gaussian(rng, rows=32, size=3):
    """Outputs, actions, and their log density and entropy by the textbook's formulas."""
    mean, log_sigma = rng.normal(size=(rows, size)), rng.normal(size=(rows, size))
    actions = rng.normal(size=(rows, size))
    sigma = np.exp(log_sigma)
    density = np.exp(-(((actions - mean) / sigma) ** 2) / 2) / (sigma * np.sqrt(2 * np.pi))
    entropy = np.log(sigma * np.sqrt(2 * np.pi * np.e)).sum(axis=1)
    outputs = torch.tensor(np.concatenate([mean, log_sigma], axis=1))
    return outputs, torch.tensor(actions), np.log(density).sum(axis=1), entropy


def test_the_density_and_the_entropy_of_a_diagonal_gaussian_are_the_textbooks():
    outputs, actions, log_pi, entropy = gaussian(np.random.default_rng(0))
    family = DiagonalGaussian(3)
    assert family.num_outputs == 6
    np.testing.assert_allclose(family.log_pi(outputs, actions), log_pi, rtol=1e-12)
    np.testing.assert_allclose(family.entropy(outputs), entropy, rtol=1e-12)


def test_the_entropy_of_independent_choices_is_the_sum_over_their_parts():
    logits = torch.tensor([[0.0, 1.0, 0.5, -0.5, 0.25]], dtype=torch.float64)
    parts = [torch.softmax(logits[0, :2], 0), torch.softmax(logits[0, 2:], 0)]
    expected = sum(float(-(p * p.log()).sum()) for p in parts)
    assert Categorical(sizes=(2, 3)).entropy(logits).item() == pytest.approx(expected)
    assert Categorical(3).entropy(torch.zeros(1, 3)).item() == pytest.approx(math.log(3))


def numpy_loss(log_pi, entropy, old, advantage, v, old_v, target, *, clip, value_clip, c1, c2):
    ratio = np.exp(log_pi - old)
    surrogate = np.minimum(ratio * advantage, np.clip(ratio, 1 - clip, 1 + clip) * advantage).mean()
    errors = (v - target) ** 2
    if value_clip:
        errors = np.maximum(errors, (old_v + np.clip(v - old_v, -value_clip, value_clip) - target) ** 2)
    return -surrogate + c1 * errors.mean() / 2 - c2 * entropy.mean()


@pytest.mark.parametrize("value_clip", [0.0, 0.3])
def test_the_loss_of_continuous_actions_and_of_clipped_values_is_that_of_numpy(value_clip):
    rng = np.random.default_rng(1)
    outputs, actions, log_pi, entropy = gaussian(rng)
    old = log_pi + rng.normal(scale=0.3, size=32)
    advantage, v, old_v, target = (rng.normal(size=32) for _ in range(4))
    out = ppo_loss(
        outputs,
        *(torch.tensor(x) for x in (v, actions.numpy(), old, advantage, target)),
        clip=0.2,
        value_coefficient=0.7,
        entropy_coefficient=0.05,
        distribution=DiagonalGaussian(3),
        old_values=torch.tensor(old_v),
        value_clip=value_clip,
    )
    numbers = (log_pi, entropy, old, advantage, v, old_v, target)
    expected = numpy_loss(*numbers, clip=0.2, value_clip=value_clip, c1=0.7, c2=0.05)
    assert out.loss.item() == pytest.approx(expected, rel=1e-9)
    other = numpy_loss(*numbers, clip=0.2, value_clip=0.3 - value_clip, c1=0.7, c2=0.05)
    assert abs(expected - other) > 1e-3
    assert out.entropy.item() == pytest.approx(entropy.mean())
    assert out.clipped.item() == (np.abs(np.exp(log_pi - old) - 1) > 0.2).mean()


def test_a_value_that_moved_past_its_clip_passes_no_gradient_if_that_lowers_its_error():
    old, target = torch.tensor([0.0, 0.0]), torch.tensor([5.0, -5.0])
    values = torch.tensor([1.0, 1.0], requires_grad=True)  # the first moved to its target, the second away from it
    logits, actions, none = torch.zeros(2, 2), torch.tensor([0, 0]), torch.full((2,), math.log(0.5))
    out = ppo_loss(
        *(logits, values, actions, none, torch.zeros(2), target),
        clip=0.2,
        value_coefficient=1.0,
        entropy_coefficient=0.0,
        old_values=old,
        value_clip=0.5,
    )
    out.loss.backward()
    assert values.grad.tolist() == [0.0, 3.0]


def test_explained_variance_is_one_for_exact_values_and_zero_for_constant_ones():
    target = torch.tensor([1.0, 2.0, 4.0])
    assert explained_variance(target, target).item() == 1.0
    assert explained_variance(torch.full((3,), 9.0), target).item() == pytest.approx(0.0)
    assert explained_variance(torch.tensor([1.0, 2.0, 3.0]), target).item() == pytest.approx(
        1 - np.var([0, 0, 1]) / np.var([1, 2, 4])
    )
    assert explained_variance(target, torch.ones(3)).item() == 0.0


def test_a_table_has_actions_as_they_were_drawn_and_the_environment_has_them_scaled_and_clipped(harness):
    one = harness("Pendulum-v1", initial_sigma=2.0, num_actors=1, envs_per_actor=4)
    given, step = [], one.actor._envs.step
    one.actor._envs.step = lambda actions: given.append(actions.copy()) or step(actions)
    one.fill()
    data = one.client.sample_batch("unrolls", 4, timeout=5).data
    drawn, env = data["action"], np.stack(given, axis=1)
    assert (np.abs(drawn) > 1).mean() > 0.3
    np.testing.assert_allclose(env, np.clip(2.0 * drawn, -2.0, 2.0), rtol=1e-6)
    policy = ppo.make_policy(one.spec, one.config)
    policy.load(one.learner.latest(-1))
    outputs, values = policy.module(torch.from_numpy(data["obs"][0]))
    mean, log_sigma = outputs.detach().numpy()[:, 0], outputs.detach().numpy()[:, 1]
    assert log_sigma == pytest.approx(np.full(16, math.log(2.0)))
    expected = -(((drawn[0, :, 0] - mean) / 2.0) ** 2) / 2 - math.log(2.0) - math.log(2 * math.pi) / 2
    assert data["log_pi"][0] == pytest.approx(expected, abs=1e-5)
    assert data["value"][0, :-1] == pytest.approx(values.detach().numpy(), abs=1e-5)


def test_the_greedy_action_is_the_mean_within_bounds_and_draws_have_the_policys_deviation():
    spec = describe("Pendulum-v1")
    policy = ppo.make_policy(spec, dataclasses.replace(CONFIG, initial_sigma=0.25))
    bias = dict(policy.module.named_parameters())["head.0.bias"]
    obs = np.zeros((20_000, 3), np.float32)
    for middle, greedy in ((0.1, 0.2), (3.0, 2.0)):
        with torch.no_grad():
            bias.fill_(middle)
        dict(policy.module.named_parameters())["head.0.weight"].data.zero_()
        assert policy(obs[:2]) == pytest.approx(np.full((2, 1), greedy))
        assert policy.forward(torch.from_numpy(obs[:2])).detach().numpy() == pytest.approx(np.full((2, 1), greedy))
    with torch.no_grad():
        bias.fill_(0.1)
    drawn = policy.drawn(obs, np.random.default_rng(0)).actions
    assert abs(drawn.mean() - 0.1) < 5 * 0.25 / math.sqrt(20_000)
    assert abs(drawn.std() - 0.25) < 5 * 0.25 / math.sqrt(2 * 20_000)


@pytest.mark.long
def test_the_deviation_depends_on_no_observation_and_is_learnt(harness):
    one = harness("Pendulum-v1", entropy_coefficient=0.5)
    before = one.learner._network.module.head[1].log_sigma.detach().clone()
    one.learn(3)
    after = one.learner._network.module.head[1].log_sigma.detach()
    assert before.tolist() == [0.0]
    assert after.item() > 0.01, "more entropy is a larger deviation"
    outputs, _ = one.learner._network.module(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)))
    assert len(set(outputs[:, 1].tolist())) == 1


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_the_first_pass_over_a_batch_finds_the_policy_where_the_actor_left_it(env_id, harness):
    one = harness(env_id, epochs=1, minibatch_size=10**6)
    with torch.no_grad():  # a policy far from uniform, so that actions of other steps would be seen
        next(layer for layer in one.learner._network.module.head.modules() if hasattr(layer, "bias")).weight.mul_(500.0)
    for _ in range(2):
        one.learn(1)
        metrics = one.learner.metrics()
        assert metrics["clipped"] == 0
        assert metrics["kl"] == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"normalise_advantages": False},
        {"value_clip": 0.01},
        {"entropy_coefficient": 0.5},
        {"epochs": 1},
        {"minibatch_size": 64},
        {"clip": 0.01},
        {"value_coefficient": 0.1},
        {"max_grad_norm": 0.01},
        {"target_kl": 1e-5},
        {"gae_lambda": 0.0},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_each_option_of_an_update_changes_it(changes, harness):
    """Only the first update is compared, since its unrolls are the same."""
    plain, again, changed = harness(), harness(), harness(**changes)
    assert (plain.learn() == again.learn()).all()
    assert (plain.learner.latest(-1).flat != changed.learn()).any()


def test_an_update_ends_before_the_minibatch_that_is_too_far_from_the_actors_policy(harness):
    whole, ended = harness(learning_rate=3e-2), harness(learning_rate=3e-2, target_kl=0.005)
    whole.learn()
    ended.learn()
    full, steps = (one.learner.metrics()["gradient_steps"] for one in (whole, ended))
    assert full == 4 * 4
    assert 1 <= steps < full
    assert whole.learner.metrics()["kl"] > 1.5 * 0.005
    assert ended.learner.metrics()["kl"] <= 1.5 * 0.005, "no gradient step was made further away"
    first = harness(learning_rate=3e-2, target_kl=1e-12)
    first.learn()
    assert first.learner.metrics()["gradient_steps"] == 1, "the first minibatch is where the actor was"


def test_unrolls_of_a_policy_that_is_too_far_already_make_no_gradient_step(harness):
    """Such unrolls are those of a resumed run, or kept over a server's restart."""
    one = harness(target_kl=0.005)
    update, before = one.learner._update, one.learner.latest(-1).flat.copy()
    one.learner._update = lambda data: update({**data, "log_pi": data["log_pi"] - 1.0})
    assert (one.learn() == before).all()
    metrics = one.learner.metrics()
    assert metrics["gradient_steps"] == 0
    assert metrics["kl"] > 1.5 * 0.005, "the figures tell why"
    assert metrics["updates"] == 1


def test_rate_and_clip_are_annealed_as_asked_for():
    config = dataclasses.replace(CONFIG, anneal_updates=100, anneal_to=0.0, anneal_clip=False)
    assert [config.annealed(update) for update in (0, 25, 100, 101)] == pytest.approx([1.0, 0.75, 0.0, 0.0])
    assert config.clip_at(75) == config.clip
    assert dataclasses.replace(config, anneal_clip=True).clip_at(75) == pytest.approx(0.25 * config.clip)
    assert dataclasses.replace(config, anneal_to=0.5).annealed(99) == 0.5


def test_an_annealed_rate_of_nothing_moves_nothing(harness):
    one = harness(anneal_updates=2, anneal_to=0.0)
    before = one.learn(2).copy()
    assert (one.learn(1) == before).all()


@pytest.mark.long
def test_observations_and_rewards_are_normalised_by_what_was_learnt_from(harness):
    plain = harness("Pendulum-v1")
    scaled = harness(
        "Pendulum-v1", environment=EnvSettings(normalise_observations=True, normalise_rewards=True), epochs=1
    )
    seen, sample = [], scaled.client.sample_batch
    for _ in range(3):
        scaled.fill()
        scaled.learner._client = type(
            "Tape", (), {"sample_batch": lambda _, *a, **k: seen.append(sample(*a, **k)) or seen[-1]}
        )()
        scaled.learner.learn()
    steps = np.concatenate([batch.data["obs"][batch.data["is_step"]] for batch in seen])
    returns = np.concatenate([batch.data["discounted_return"][batch.data["is_step"]] for batch in seen])
    named = dict(scaled.learner._network.module.named_parameters())
    means = [one for name, one in named.items() if name.endswith("moments.mean")]
    assert len(means) == 2
    for one in means:
        np.testing.assert_allclose(one.detach().numpy(), steps.mean(axis=0), atol=1e-4)
    assert scaled.learner._statistics.reward_deviation() == pytest.approx(returns.std(), rel=1e-3)
    plain.learn(3)
    assert plain.learner._statistics.reward_deviation() == 1.0


def test_the_first_update_learns_from_rewards_in_deviations_of_its_own_returns(harness, monkeypatch):
    one = harness("Pendulum-v1", environment=EnvSettings(normalise_rewards=True))
    learnt, update = [], one.learner._update
    monkeypatch.setattr(one.learner, "_update", lambda data: learnt.append(data) or update(data))
    seen, client = [], one.client
    one.fill()
    draw = client.sample_batch
    one.learner._client = type(
        "Tape", (), {"sample_batch": lambda _, *a, **k: seen.append(draw(*a, **k)) or seen[-1]}
    )()
    one.learner.learn()
    (raw,), (data,) = seen, learnt
    deviation = raw.data["discounted_return"][raw.data["is_step"]].std()
    assert deviation > 2
    np.testing.assert_allclose(data["reward"], (raw.data["reward"] / deviation).clip(-10, 10), rtol=1e-3)


def test_shared_layers_are_one_torso_with_two_heads(harness):
    apart, shared = harness(), harness(shared_layers=True)
    sizes = [one.learner._network.flat.numel() for one in (apart, shared)]
    assert sizes[0] - sizes[1] == 4 * 16 + 16
    obs = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    module = shared.learner._network.module
    outputs, values = module(obs)
    assert torch.equal(outputs, module.outputs(obs))
    assert torch.equal(values, module.values(obs))
    before = {name: one.detach().clone() for name, one in module.named_parameters()}
    shared.learn()
    assert all((one != before[name]).any() for name, one in module.named_parameters())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"initial_sigma": 0.0}, "initial_sigma is 0.0, and must be above 0"),
        ({"value_clip": -0.1}, "value_clip is -0.1, and must not be below 0"),
        ({"target_kl": -1.0}, "target_kl is -1.0, and must not be below 0"),
        ({"anneal_to": 1.5}, r"anneal_to is 1.5, and must lie in \[0, 1\]"),
    ],
)
def test_invalid_options_are_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **change)


@pytest.mark.long
def test_continuous_actions_that_depend_on_the_observation_are_learnt(harness):
    one = harness("ReverieMatch-v0", envs_per_actor=8, unroll_length=32, minibatch_size=64, discount=0.0)
    one.learn(60)
    policy = ppo.make_policy(one.spec, one.config)
    policy.load(one.learner.latest(-1))
    obs = np.linspace(-0.9, 0.9, 13, dtype=np.float32)[:, None]
    errors = np.abs(policy(obs) - 2 * obs)
    assert errors.mean() < 0.25, errors
    assert one.learner._network.module.head[1].log_sigma.item() < -0.5, "and it explores less where it has learnt more"


@pytest.mark.long
@pytest.mark.parametrize("environment", [None, EnvSettings(frame_stack=2)], ids=["images", "stacks"])
def test_actions_that_depend_on_images_are_learnt(environment, harness):
    settings = {"shared_layers": True, "minibatch_size": 64, "discount": 0.0, "hidden": (32,)}
    one = harness("ReverieSide-v0", environment=environment, envs_per_actor=8, unroll_length=32, **settings)
    one.learn(12)
    one.actor.drain_returns()
    one.learn(20)
    assert np.mean(one.actor.drain_returns()[-60:]) > 7.0, "of 8; a policy that sees nothing has 4"
