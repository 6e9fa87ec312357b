"""CQL for continuous actions: its estimates and losses, its updates, and what it learns where SAC fails."""

import dataclasses
import math

import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("pyarrow")

from reverie.agents import env_actor, find  # noqa: E402
from reverie.agents.continuous import make_critics, q_values_of, q_values_of_each  # noqa: E402
from reverie.agents.cql_sac.loss import (  # noqa: E402
    conservative_gap,
    factor_loss,
    imitation_loss,
    log_integral,
    squashed_log_pi,
    uniform_actions,
)
from reverie.agents.cql_sac.networks import LOG_FACTOR  # noqa: E402
from reverie.agents.environments import UnsupportedEnvironmentError, describe  # noqa: E402
from reverie.agents.random_layers import random_numbers  # noqa: E402
from reverie.agents.sac.loss import squashed_gaussian  # noqa: E402
from reverie.runners import train  # noqa: E402

CQL, SAC = find("cql-sac"), find("sac")
PRESET = CQL.load_preset("Pendulum-v1")
CONFIG, PENDULUM = PRESET.config, describe("Pendulum-v1")


def double(*arrays):
    return [torch.tensor(one, dtype=torch.float64) for one in arrays]


def tanh_normal(mean, log_sigma):
    """PyTorch's own distribution of the policy's actions."""
    normal = torch.distributions.Normal(mean, log_sigma.exp())
    return torch.distributions.TransformedDistribution(normal, [torch.distributions.TanhTransform()])


def test_uniform_actions_are_the_quantiles_of_the_normal_numbers():
    # Phi of these numbers is 0.5, 0.75, 0.9 and 0.025.
    noise = torch.tensor([[0.0, 0.6744897501960817], [1.2815515655446004, -1.959963984540054]], dtype=torch.float64)
    actions, log_density = uniform_actions(noise)
    assert actions.flatten().tolist() == pytest.approx([0.0, 0.5, 0.8, -0.95])
    assert log_density.tolist() == pytest.approx([math.log(1 / 4)] * 2)


def test_the_gap_is_that_of_numpy_for_each_critic():
    rng = np.random.default_rng(0)
    q, log_density, q_tm1, weights = (rng.normal(size=n) for n in ((2, 6, 4), (6, 4), (2, 4), 4))
    integral = np.log(np.mean(np.exp(q) / np.exp(log_density), axis=1))
    assert log_integral(*double(q, log_density)).numpy() == pytest.approx(integral)
    expected = np.mean(integral - q_tm1, axis=1)
    assert conservative_gap(*double(q, log_density, q_tm1)).numpy() == pytest.approx(expected)
    expected = np.mean(weights * (integral - q_tm1), axis=1)
    assert conservative_gap(*double(q, log_density, q_tm1, weights)).numpy() == pytest.approx(expected)


def test_a_hand_worked_row_gives_its_gap():
    # Two actions, drawn with densities 1/2 and 2, whose values are log 3 and log 4: log((3 * 2 + 4 / 2) / 2) - 1.
    q, log_density = double([[[math.log(3)], [math.log(4)]]], [[math.log(0.5)], [math.log(2)]])
    assert conservative_gap(q, log_density, *double([[1.0]])).item() == pytest.approx(math.log(4) - 1)


def test_large_values_do_not_overflow():
    q, log_density = torch.full((1, 3, 1), 1e4), torch.zeros(3, 1)
    assert conservative_gap(q, log_density, torch.full((1, 1), 1e4)).item() == 0.0


def test_the_terms_gradient_is_the_softmax_without_the_actions_of_the_data():
    rng = np.random.default_rng(1)
    q, log_density, q_tm1 = double(rng.normal(size=(2, 6, 4)), rng.normal(size=(6, 4)), rng.normal(size=(2, 4)))
    q.requires_grad_()
    q_tm1.requires_grad_()
    conservative_gap(q, log_density, q_tm1).sum().backward()
    share = np.exp(q.detach().numpy() - log_density.numpy())
    share /= share.sum(axis=1, keepdims=True)
    assert q.grad.numpy() == pytest.approx(share / 4)
    assert (q_tm1.grad == -1 / 4).all()


def is_integral(found, draws, truth):
    """Whether a mean of `draws` `[n]` is the integral, within five sigma."""
    return abs(found - truth) < 5 * float(draws.std()) / math.sqrt(len(draws))


def test_actions_of_all_three_distributions_give_the_integral_and_without_their_densities_they_do_not():
    """`q = 2 a` over [-1, 1], whose integral of `exp` is `sinh 2`."""
    generator, count = torch.Generator().manual_seed(0), 100_000
    noise = torch.randn(3, count, 1, 1, generator=generator, dtype=torch.float64)
    drawn = [uniform_actions(noise[0])]
    for mean, part in ((0.3, noise[1]), (-0.2, noise[2])):
        sides = torch.full((count, 1), mean, dtype=torch.float64), torch.zeros(count, 1, dtype=torch.float64)
        actions, log_pi = squashed_gaussian(*sides, part[:, 0])
        drawn.append((actions[:, None], log_pi[:, None]))
    actions, log_density = (torch.cat(parts) for parts in zip(*drawn, strict=True))
    q, truth = 2 * actions[..., 0].unsqueeze(0), math.sinh(2)
    draws = (q[0] - log_density).exp().flatten()
    assert is_integral(log_integral(q, log_density).exp().item(), draws, truth)
    flat = torch.full_like(log_density, -math.log(2))
    assert not is_integral(log_integral(q, flat).exp().item(), (q[0] - flat).exp().flatten(), truth)


def test_the_density_of_given_actions_is_that_of_pytorch_and_finite_at_the_bounds():
    rng = np.random.default_rng(2)
    mean, log_sigma = double(rng.normal(size=(6, 3)), rng.normal(size=(6, 3)))
    mean.requires_grad_()
    log_sigma.requires_grad_()
    actions = torch.tanh(torch.tensor(rng.normal(size=(6, 3))))
    found = squashed_log_pi(mean, log_sigma, actions)
    expected = tanh_normal(mean, log_sigma).log_prob(actions).sum(dim=1)
    torch.testing.assert_close(found, expected)
    grads = [torch.autograd.grad(one.sum(), (mean, log_sigma), retain_graph=True) for one in (found, expected)]
    torch.testing.assert_close(*grads)
    single = squashed_log_pi(torch.zeros(2, 1), torch.zeros(2, 1), torch.tensor([[1.0], [-1.0]]))
    assert torch.isfinite(single).all()
    assert single[0].item() == pytest.approx(single[1].item())


def test_hand_worked_losses():
    # -2 (mean(1, 4) - 1.5)
    assert factor_loss(*double([math.log(2)], [1.0, 4.0]), 1.5).item() == pytest.approx(-2.0)
    # means of 0.5 * (-2, 4) - (1, 3)
    assert imitation_loss(*double([1.0, 3.0], [-2.0, 4.0]), 0.5).item() == pytest.approx(-1.5)


def test_no_gradient_of_the_factors_loss_flows_into_the_gap():
    gap, log_factor = torch.ones(2, requires_grad=True), torch.zeros(1, requires_grad=True)
    factor_loss(log_factor, gap, 0.0).backward()
    assert gap.grad is None
    assert log_factor.grad.item() == -1.0


@pytest.mark.parametrize("changes", [{}, {"dropout": 0.5, "layer_norm": True}], ids=str)
def test_values_of_many_actions_are_those_of_one_after_the_other(changes):
    config = dataclasses.replace(CONFIG, critic_hidden=(8,), **changes)
    critics = make_critics(PENDULUM, config.critic_hidden, config, seed=0, trainable=False)
    obs, actions = torch.randn(5, 3), torch.rand(4, 5, 1)
    numbers = random_numbers(torch.Size((2, 20, 8)), True, None)
    found = q_values_of_each(critics, obs, actions, lambda shape, uniform: numbers.view(shape))
    assert found.shape == (2, 4, 5)
    for i in range(4):
        own = numbers[:, 5 * i : 5 * i + 5]
        torch.testing.assert_close(
            found[:, i], q_values_of(critics, obs, actions[i], lambda shape, uniform, own=own: own)
        )


def test_the_term_has_the_values_at_the_first_state_of_uniform_actions_and_of_the_policys_at_both(make_learner):
    """Every part of it again, with PyTorch's distributions and the same random numbers."""
    learner = make_learner("cql-sac", conservative_weight=3.0, sampled_actions=4)
    generator = torch.Generator().manual_seed(5)
    s_tm1, s_t, q_tm1 = (torch.randn(n, generator=generator) for n in ((6, 3), (6, 3), (2, 6)))
    drawn = []
    learner._noise = lambda shape, uniform: drawn.append(torch.randn(shape, generator=generator)) or drawn[-1]
    term, figures = learner._conservative(s_tm1, s_t, q_tm1, None)
    uniform, now, then = drawn
    actions = [2 * torch.distributions.Normal(0, 1).cdf(uniform) - 1]
    densities = [torch.full((4, 6), -math.log(2))]
    for obs, noise in ((s_tm1, now.view(4, 6, 1)), (s_t, then.view(4, 6, 1))):
        mean, log_sigma = learner._policy.module.distribution(obs)
        actions.append(torch.tanh(mean + log_sigma.exp() * noise))
        densities.append(tanh_normal(mean, log_sigma).log_prob(actions[-1]).sum(dim=2))
    weighed = [
        learner._critics.module(s_tm1, each) - density
        for part, densities_of_part in zip(actions, densities, strict=True)
        for each, density in zip(part, densities_of_part, strict=True)
    ]
    gap = (torch.stack(weighed).exp().mean(dim=0).log() - q_tm1).mean(dim=1)
    assert term.item() == pytest.approx(3.0 * gap.sum().item(), rel=1e-4)
    assert figures["conservative_gap"].item() == pytest.approx(gap.mean().item(), rel=1e-4)
    parts = [list(one.module.parameters()) for one in (learner._critics, learner._policy)]
    grads = [torch.autograd.grad(term, one, retain_graph=True, allow_unused=True) for one in parts]
    assert all(one is not None for one in grads[0])
    assert all(one is None for one in grads[1]), "none flows into the policy"


@pytest.mark.parametrize("options", [{}, {"dropout": 0.1, "layer_norm": True}, {"prioritized": True}], ids=str)
def test_without_its_weight_an_update_is_sacs_and_with_it_another_one(options, make_learner, networks_of):
    rates = {name: getattr(CONFIG, name) for name in vars(SAC.load_preset("Pendulum-v1").config)}
    sizes = {"batch_size": 32, "policy_hidden": (16,), "critic_hidden": (16,)}
    plain = make_learner("sac", **{**rates, **sizes, **options})
    same, other = (make_learner("cql-sac", conservative_weight=weight, **options) for weight in (0.0, 1.0))
    for learner in (plain, same, other):
        for _ in range(3):
            learner.learn()
    for name, vector in networks_of(plain).items():
        assert (networks_of(same)[name] == vector).all()
    assert "conservative_gap" not in same.metrics()
    assert (networks_of(other)["critics"] != networks_of(plain)["critics"]).any()


def test_targets_have_the_entropys_bonus_unless_it_is_left_out(make_learner):
    with_bonus, without = (make_learner("cql-sac", entropy_in_target=one) for one in (True, False))
    for learner in (with_bonus, without):
        learner.learn()
    assert with_bonus.metrics()["critics_loss"] != without.metrics()["critics_loss"]


@pytest.mark.parametrize(("threshold", "rises"), [(-100.0, True), (100.0, False)])
def test_the_weight_rises_above_the_threshold_and_falls_below_and_stays_bounded(threshold, rises, make_learner):
    changes = {"conservative_threshold": threshold, "conservative_learning_rate": 10.0, "conservative_weight": 2.0}
    learner = make_learner("cql-sac", **changes)
    learner.learn()
    assert learner.metrics()["conservative_weight"] == 2.0, "at first"
    learner.learn()
    assert (learner.metrics()["conservative_weight"] > 2.0) == rises
    learner.learn()
    assert learner._factor.flat.item() == LOG_FACTOR[rises]


def test_the_factor_is_part_of_a_learners_state(make_learner):
    one, other = (make_learner("cql-sac", conservative_threshold=1.0) for _ in range(2))
    for _ in range(3):
        one.learn()
    other.load_state_dict(one.state_dict())
    assert other._factor.flat.item() == one._factor.flat.item() != 0.0


def test_an_imitating_policy_learns_the_actions_of_the_data_whatever_their_values_are(make_learner, networks_of):
    policies = []
    for reward in (0.0, 1_000.0):
        learner = make_learner("cql-sac", imitation_updates=3, temperature_learning_rate=0.0)
        draw = learner._draw

        def changed(draw=draw, reward=reward):
            batch = draw()
            batch.data["reward"] += reward
            return batch

        learner._draw = changed
        for _ in range(3):
            learner.learn()
        policies.append(networks_of(learner)["policy"])
        learner.learn()
        policies.append(networks_of(learner)["policy"])
    assert (policies[0] == policies[2]).all()
    assert (policies[1] != policies[3]).any(), "by their values from then on"


def test_an_imitating_policy_comes_close_to_the_actions_of_the_data(make_learner):
    """Its twin, which takes steps by untrained values, does not."""
    distances = []
    for updates in (300, 0):
        learner = make_learner("cql-sac", imitation_updates=updates, policy_learning_rate=1e-2, batch_size=64)
        draw = learner._draw

        def slanted(draw=draw):
            batch = draw()
            batch.data["action"] = torch.tanh(batch.data["obs"][:, :1])
            return batch

        learner._draw = slanted
        for _ in range(300):
            learner.learn()
        obs = torch.randn(256, 3, generator=torch.Generator().manual_seed(0))
        distances.append((learner._policy.module(obs) - torch.tanh(obs[:, :1])).abs().mean().item())
    imitating, other = distances
    assert imitating < 0.1 < other / 2


def test_memory_counts_the_sampled_actions_of_a_batch():
    config = dataclasses.replace(CONFIG, critic_hidden=(32, 16), batch_size=64)
    parts = [
        CQL.memory(PENDULUM, dataclasses.replace(config, **one))["batches"]
        for one in ({"conservative_weight": 0.0}, {"sampled_actions": 5})
    ]
    assert parts[1] - parts[0] == 64 * 16 * (3 * 5) * 2 * (3 + 1 + 32 + 16 + 1)


def test_the_other_kind_of_actions_is_refused_with_the_name_of_the_form_for_it():
    cases = [("cql", "cql-sac", True), ("cql-sac", "cql", False), ("apex-dqn", "apex-dpg", True)]
    for name, other, discrete in cases:
        with pytest.raises(UnsupportedEnvironmentError, match=f"{name} .*, and {other} is its form for these actions;"):
            find(name).check(describe("Pendulum-v1" if discrete else "CartPole-v1"))
    with pytest.raises(UnsupportedEnvironmentError) as caught:
        find("dqn").check(PENDULUM)
    assert "form" not in str(caught.value)


def test_settings_that_cannot_work_are_refused_by_name():
    cases = [
        ({"conservative_weight": -1.0}, r"conservative_weight is -1\.0, and must not be below 0"),
        ({"sampled_actions": 0}, "sampled_actions is 0, and must be at least 1"),
        ({"imitation_updates": -1}, "imitation_updates is -1, and must not be below 0"),
        ({"conservative_learning_rate": 0.0}, r"conservative_learning_rate is 0\.0, and must be above 0"),
        ({"conservative_threshold": 1.0, "conservative_weight": 0.0}, "set a weight above 0, such as 1, or leave"),
        ({"dataset": "data.parquet", "her": "final"}, "her is 'final', and a dataset is read with its own goals"),
        ({"dataset": "data.parquet", "num_actors": 2}, "a dataset is read by one actor"),
    ]
    for changes, message in cases:
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(CONFIG, **changes)


class Cliff(gymnasium.Env):
    """A place in [-1, 1]; the reward of a step is minus ten times the distance from 0. Ten steps.

    Actions of at most 1 move the place by a quarter of them. Larger ones fall: -20 for every step that is left.
    """

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-2, 2, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = self.np_random.uniform(-1, 1), 0
        return np.array([self.place], np.float32), {}

    def step(self, action):
        self.steps += 1
        if abs(action[0]) > 1:
            return np.array([self.place], np.float32), -20.0 * (11 - self.steps), True, False, {}
        self.place = float(np.clip(self.place + 0.25 * action[0], -1, 1))
        return np.array([self.place], np.float32), -10.0 * abs(self.place), False, self.steps == 10, {}


gymnasium.register("ReverieCliff-v0", Cliff)


def careful_episodes(count):
    """Episodes of uniform random actions that do not fall, each with its last observation."""
    env, rng = gymnasium.make("ReverieCliff-v0"), np.random.default_rng(0)
    for episode in range(count):
        obs, _ = env.reset(seed=episode)
        steps, over = [], False
        while not over:
            action = rng.uniform(-1, 1, 1).astype(np.float32)
            after, reward, terminated, truncated, _ = env.step(action)
            steps.append((obs, action, reward, terminated, truncated))
            obs, over = after, terminated or truncated
        yield [*steps, (obs, np.zeros(1, np.float32), 0.0, False, False)]


RUN = dataclasses.replace(
    PRESET.run,
    target_return=None,
    max_env_steps=1_600,
    evaluate_every=1_600,
    screening_episodes=1,
    confirmation_episodes=50,
)


@pytest.fixture(scope="module")
def careful(tmp_path_factory, write_episodes):
    """A data set, and the mean return of its episodes."""
    episodes = list(careful_episodes(100))
    path = write_episodes(tmp_path_factory.mktemp("data") / "data.parquet", episodes)
    return path, np.mean([sum(step[2] for step in steps) for steps in episodes])


def config_of(path, **changes):
    """An update for each of the rows that are read after the first thousand, which are all."""
    rates = dict.fromkeys(("policy_learning_rate", "critic_learning_rate", "temperature_learning_rate"), 3e-3)
    sizes = {"batch_size": 64, "samples_per_insert": 64.0, "policy_hidden": (64,), "critic_hidden": (64,)}
    settings = {"dataset": path, "learning_starts": 1_000, "discount": 0.9, "target_rate": 0.05}
    return dataclasses.replace(CONFIG, **{**rates, **sizes, **settings, **changes})


@pytest.mark.long
@pytest.mark.parametrize(
    "changes",
    [
        {"conservative_weight": 5.0},
        {"conservative_threshold": 0.5, "conservative_learning_rate": 1e-2},
        {"conservative_weight": 5.0, "prioritized": True},
    ],
    ids=str,
)
def test_cql_learns_where_sac_takes_actions_that_no_row_has(changes, careful, monkeypatch):
    """Its twin is the same run without the conservative term: values of actions that no row has are never corrected."""
    path, behaviour = careful
    monkeypatch.setattr(env_actor, "make_vector", lambda *args, **kwargs: pytest.fail("made an environment to act in"))
    results = []
    for tried in (changes, {"conservative_weight": 0.0}):
        config = config_of(path, **tried)
        results.append(train(CQL, "ReverieCliff-v0", config=config, run=RUN, seed=1).evaluation.mean_return)
    conservative, plain = results
    assert conservative > behaviour / 2 > 2 * behaviour > plain


@pytest.mark.long
def test_a_run_from_a_data_set_is_fine_tuned_by_playing(careful, tmp_path):
    path, _ = careful
    config, run = config_of(path, conservative_weight=5.0), dataclasses.replace(RUN, confirmation_episodes=1)
    train(CQL, "ReverieCliff-v0", config=config, run=run, seed=1, folder=tmp_path / "first")
    playing = dataclasses.replace(config, dataset="", random_steps=0, learning_starts=100)
    short = dataclasses.replace(run, max_env_steps=150, evaluate_every=150)
    result = train(CQL, "ReverieCliff-v0", config=playing, run=short, init_from=tmp_path / "first")
    assert result.learner["updates"] > 0
