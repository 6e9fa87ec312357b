"""Rainbow: its losses, its noise, its parts switched off one by one, and what it learns."""

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie.agents import find, random_layers, tracing  # noqa: E402
from reverie.agents.core import Stopwatch  # noqa: E402
from reverie.agents.environments import EnvSpec, describe  # noqa: E402
from reverie.agents.layers import initialised  # noqa: E402
from reverie.agents.rainbow.config import RainbowConfig  # noqa: E402
from reverie.agents.rainbow.loss import categorical_loss, quantile_loss, scalar_loss  # noqa: E402
from reverie.agents.rainbow.networks import RainbowNetwork, make_network  # noqa: E402
from reverie.agents.random_layers import NoisyLinear, drawing  # noqa: E402
from reverie.runners import train  # noqa: E402

RAINBOW = find("rainbow")
SPEC = describe("CartPole-v1")
CONFIG = RAINBOW.load_preset("CartPole-v1").config
HEADS = ("categorical", "quantile", "scalar")


def double(*arrays):
    return [torch.tensor(one, dtype=torch.float64) for one in arrays]


def fixed(seed):
    """A function that draws standard normal numbers from a generator of its own."""
    generator = torch.Generator().manual_seed(seed)
    return lambda shape: torch.randn(shape, generator=generator)


def test_the_categorical_target_is_that_of_the_action_which_the_selector_prefers():
    """Support 0 to 10. The next action's value is surely 10, the other one's surely 0; r = 1, discount = 0.5: 6."""
    p_t = torch.zeros(2, 2, 11)
    p_t[:, 0, 10] = p_t[:, 1, 0] = 1.0
    log_p = torch.full((2, 2, 11), 1 / 11).log()
    log_p[0, 1] = torch.full((11,), 0.05).index_fill(0, torch.tensor(6), 0.5).log()
    selector = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    ones = torch.ones(2)
    arguments = (log_p, torch.tensor([1, 0]), ones, ones / 2, p_t, selector)
    found = categorical_loss(*arguments, torch.tensor([2.0, 1.0]), v_min=0.0, v_max=10.0)
    losses = np.array([-np.log(0.5), np.log(11)])  # of a sure 6, and of a sure 1
    assert found.errors.tolist() == pytest.approx(losses.tolist())
    assert found.loss.item() == pytest.approx((2 * losses[0] + losses[1]) / 2)


def test_the_quantile_loss_compares_the_taken_action_with_the_selected_one():
    z_tm1, z_t = double(np.arange(8.0).reshape(1, 2, 4), [[[10.0, 20.0], [0.0, 2.0]]])
    tau = torch.full((1, 4), 0.5, dtype=torch.float64)
    arguments = (z_tm1, tau, torch.tensor([0]), *double([1.0], [0.5]), z_t)
    found = quantile_loss(*arguments, *double([[0.0, 1.0]], [3.0]), huber_delta=1.0)
    expected = 0.0
    for quantile in range(4):
        for target in (1.0, 2.0):
            u = abs(target - quantile)
            expected += 0.5 * (0.5 * u**2 if u <= 1 else u - 0.5) / 2
    assert found.errors.tolist() == pytest.approx([expected])
    assert found.loss.item() == pytest.approx(3 * expected)


def test_the_scalar_loss_is_a_huber_loss_of_double_q_errors():
    # td: 1 + 0.9 * 3 - 0.5 = 3.2 of the selected action, and -1 + 0.6 = -0.4 where the episode terminated
    batch = double([[0.5, 9.0], [7.0, -0.6]]), torch.tensor([0, 1])
    rest = double([1.0, -1.0], [0.9, 0.0], [[3.0, 5.0], [4.0, 5.0]], [[1.0, 0.0], [0.0, 1.0]])
    found = scalar_loss(*batch[0], batch[1], *rest, None, huber_delta=1.0)
    assert found.errors.tolist() == pytest.approx([3.2, 0.4])
    assert found.loss.item() == pytest.approx((2.7 + 0.08) / 2)


def test_no_gradient_flows_into_targets_and_errors():
    log_p, p_t = (torch.randn(4, 2, 5, requires_grad=True) for _ in range(2))
    a, r, d, q = torch.tensor([0, 1, 0, 1]), torch.randn(4), torch.ones(4), torch.randn(4, 2, requires_grad=True)
    found = categorical_loss(log_p.log_softmax(2), a, r, d, p_t.softmax(2), q, None, v_min=-2.0, v_max=2.0)
    found.loss.backward()
    assert log_p.grad.abs().sum() > 0
    z, z_t = (torch.randn(4, 2, 5, requires_grad=True) for _ in range(2))
    quantile_loss(z, torch.rand(4, 5), a, r, d, z_t, q, None, huber_delta=1.0).loss.backward()
    assert z.grad.abs().sum() > 0
    assert p_t.grad is None
    assert z_t.grad is None
    assert q.grad is None
    assert not found.errors.requires_grad


@pytest.mark.parametrize("weights_of_a_row", [random_layers.WEIGHTS_OF_A_ROW, 0], ids=["one product", "two"])
def test_a_noisy_layer_computes_the_papers_formula_and_without_noise_its_mean(weights_of_a_row, monkeypatch):
    monkeypatch.setattr(random_layers, "WEIGHTS_OF_A_ROW", weights_of_a_row)
    layer = initialised(lambda: NoisyLinear(3, 2, 0.6), 0)
    assert torch.allclose(layer.scales.weight, torch.full((2, 3), 0.6 / np.sqrt(3)))
    with torch.no_grad():
        layer.scales.weight.copy_(torch.arange(6.0).reshape(2, 3))
    x, noise = torch.randn(4, 3), torch.randn(4, 5)
    with drawing(layer, 4, lambda shape, uniform: noise if shape == (4, 5) else None):
        found = layer(x)
    f = noise.sign() * noise.abs().sqrt()
    for row in range(4):
        weight = layer.weight + layer.scales.weight * torch.outer(f[row, 3:], f[row, :3])
        bias = layer.bias + layer.scales.bias * f[row, 3:]
        torch.testing.assert_close(found[row], weight @ x[row] + bias)
    torch.testing.assert_close(layer(x), x @ layer.weight.T + layer.bias)
    with drawing(layer, 1, lambda shape, uniform: noise[:1]):
        shared = layer(x.reshape(2, 2, 3))
    weight = layer.weight + layer.scales.weight * torch.outer(f[0, 3:], f[0, :3])
    torch.testing.assert_close(shared.reshape(4, 2), x @ weight.T + layer.bias + layer.scales.bias * f[0, 3:])


def test_noisy_layers_of_one_shape_begin_with_other_weights():
    network = initialised(lambda: RainbowNetwork(SPEC, CONFIG), 0)
    assert not torch.equal(network.head.value.first.weight, network.head.advantage.first.weight)


@pytest.mark.parametrize("head", HEADS)
def test_q_values_are_the_means_of_the_distributions(head):
    config = dataclasses.replace(CONFIG, head=head, v_min=-3.0, v_max=7.0, hidden=(16, 16))
    network = make_network(SPEC, config, seed=0, trainable=False).module
    obs = torch.randn(5, 4)
    q = network(obs)
    assert q.shape == (5, 2)
    if head == "categorical":
        p = network.log_probabilities(obs).exp()
        assert p.shape == (5, 2, config.num_atoms)
        torch.testing.assert_close(p.sum(dim=2), torch.ones(5, 2))
        torch.testing.assert_close(q, (p * torch.linspace(-3, 7, config.num_atoms)).sum(dim=2))
    if head == "quantile":
        fractions = torch.tensor([[0.25, 0.75]]).expand(5, -1)
        z = network.quantiles(obs, fractions)
        assert z.shape == (5, 2, 2)
        one = network.quantiles(obs, fractions[:, 1:])
        torch.testing.assert_close(z[:, :, 1:], one)
        assert not torch.allclose(z[:, :, 0], z[:, :, 1]), "they depend on the fraction"
        middles = (torch.arange(32) + 0.5).unsqueeze(0) / 32
        torch.testing.assert_close(q, network.quantiles(obs, middles).mean(dim=2))


def test_a_head_with_two_streams_adds_advantages_without_their_mean_to_the_value():
    network = make_network(SPEC, dataclasses.replace(CONFIG, noisy=False), seed=0, trainable=False).module
    features = network.torso(torch.randn(3, 4))
    found, value = network.head(features), network.head.value(features)
    torch.testing.assert_close(found.mean(dim=1), value)
    advantage = network.head.advantage(features).reshape(3, 2, -1)
    torch.testing.assert_close(found[:, 0] - found[:, 1], advantage[:, 0] - advantage[:, 1])


def test_each_environment_explores_with_noise_of_its_own_and_evaluations_have_none():
    config = dataclasses.replace(CONFIG, noisy_sigma=5.0)
    policy = RAINBOW.make_policy(SPEC, config)
    policy._network.copy_from(make_network(SPEC, config, seed=3, trainable=False))
    obs = np.tile(np.float32([[0.1, -0.2, 0.03, 0.4]]), (200, 1))
    assert len(set(policy(obs).tolist())) == 1
    actions = policy.explore(obs, np.random.default_rng(0), 0.0)
    assert 20 < actions.sum() < 180
    assert (policy.explore(obs, np.random.default_rng(0), 1.0) == actions).all(), "epsilon has no effect"
    assert (policy.sample(obs, np.random.default_rng(0)) == actions).all()
    assert all(one.noise is None for one in policy.module.modules() if isinstance(one, NoisyLinear))


def test_without_noise_actors_explore_by_epsilon():
    policy = RAINBOW.make_policy(SPEC, dataclasses.replace(CONFIG, noisy=False))
    obs = np.random.default_rng(1).normal(size=(2_000, 4)).astype(np.float32)
    departed = policy.explore(obs, np.random.default_rng(0), 0.5) != policy(obs)
    assert abs(departed.sum() - 500) < 5 * np.sqrt(2_000 * 0.25 * 0.75)
    assert (policy.explore(obs, np.random.default_rng(0), 0.0) == policy(obs)).all()


ABLATIONS = [
    {"head": "quantile"},
    {"head": "scalar"},
    {"dueling": False},
    {"double": False},
    {"noisy": False},
    {"prioritized": False},
    {"n_step": 1},
    {"target_rate": 0.01},
    {"spectral_norm": True, "hidden": (32, 32)},
]


@pytest.mark.parametrize("changes", ABLATIONS, ids=str)
def test_each_part_can_be_switched_off_alone_and_the_update_is_another(changes, make_learner, networks_of):
    learner = make_learner("rainbow", **changes)
    network = learner._networks["online"].module
    assert (network.head.value is None) == (changes.get("dueling") is False)
    assert (network.embedding is not None) == (changes.get("head") == "quantile")
    assert any(isinstance(one, NoisyLinear) for one in network.modules()) == (changes.get("noisy") is not False)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for _ in range(3):
            learner.learn()
    assert len(learner._client.updates) == (0 if changes.get("prioritized") is False else 3)
    if "double" in changes or "target_rate" in changes:  # the same network
        other = make_learner("rainbow")
        for _ in range(3):
            other.learn()
        name = "target" if "target_rate" in changes else "online"
        assert (networks_of(other)[name] != networks_of(learner)[name]).any()


@pytest.mark.long
@pytest.mark.parametrize("changes", [*ABLATIONS[:6], ABLATIONS[-1], {}], ids=str)
def test_every_kind_of_update_is_one_graph(changes, make_learner):
    """Traced with its noise, it makes the learner's own update."""
    learner = make_learner("rainbow", **changes)
    learner.learn()
    seen, updated = {}, learner._updated
    learner._updated = lambda columns, single: seen.update(columns=columns, single=single) or updated(columns, single)
    learner.learn()
    graph = tracing.trace(learner, seen["columns"], seen["single"])
    noise = graph.random_numbers(torch.Generator().manual_seed(5))
    state = tracing.GraphState(learner)
    copies = [[one.clone() for one in state.tensors] for _ in range(2)]
    names = [seen["columns"][name] for name in graph.columns]
    factors = state.factors().clone()
    with torch.no_grad():
        graph.module(*copies[0], factors, *noise, *names, *graph.constants)
    tracing.run(learner, seen["single"], copies[1], factors, tracing.UpdateNoise(noise), seen["columns"])
    for one, two in zip(*copies, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)
    assert not torch.equal(copies[0][0], state.tensors[0]), "it moves the online network"
    layers = 0 if changes.get("noisy") is False else 4 - 2 * (changes.get("dueling") is False)
    passes = 3 - (changes.get("double") is False)
    assert len(graph.noise) == layers * passes + (2 if changes.get("head") == "quantile" else 0)


def test_priorities_are_the_divergences_and_the_table_draws_by_them(make_learner):
    learner = make_learner("rainbow", noisy=False, batch_size=16, priority_eps=1e-6)
    kept, loss = [], learner._loss
    learner._loss = lambda *args: kept.append(loss(*args)) or kept[-1]
    learner.learn()
    (keys, priorities), found = learner._client.updates[0], kept[0].errors.numpy()
    assert len(keys) == 16
    np.testing.assert_allclose(priorities, found + 1e-6, rtol=1e-6)
    assert (found > 0).all()


@pytest.mark.parametrize(("head", "unit"), [("categorical", 1.0), ("quantile", 3.0), ("scalar", 3.0)])
def test_priorities_have_the_unit_of_rewards_where_the_losses_have_it(head, unit, make_learner, monkeypatch):
    learner = make_learner("rainbow", head=head)
    monkeypatch.setattr(type(learner._statistics), "reward_deviation", lambda self: 3.0)
    assert learner._priority_unit() == unit


@pytest.mark.parametrize("head", HEADS)
def test_it_plays_images_and_counts_its_parameters(head):
    spec = EnvSpec("ALE/Pong-v5", (4, 84, 84), "uint8", 6, "Discrete(6)", None, frame_stack=4, reward_bound=1.0)
    for hidden in ((32,), (32, 16)):
        for dueling, noisy in ((True, True), (False, False)):
            config = dataclasses.replace(CONFIG, head=head, hidden=hidden, dueling=dueling, noisy=noisy, capacity=2_000)
            network = make_network(spec, config, seed=0, trainable=False)
            assert network.module(torch.zeros(2, 4, 84, 84, dtype=torch.uint8)).shape == (2, 6)
            count = network.flat.numel()
            assert RAINBOW.memory(spec, config)["networks and optimiser"] == 4 * count * (5 + config.num_actors)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"v_min": 1.0, "v_max": 1.0}, "v_min is 1.0 and v_max 1.0: set the least and the largest return to expect"),
        ({"v_max": float("inf")}, "v_max inf"),
        ({"num_atoms": 1}, "num_atoms is 1, and must be at least 2"),
        ({"head": "gaussian"}, 'head is \'gaussian\', and must be "categorical" or "quantile" or "scalar"'),
    ],
)
def test_wrong_settings_are_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        dataclasses.replace(CONFIG, **changes)
    settings = {**vars(CONFIG), "v_min": 0.0, "v_max": 0.0, "head": "quantile"}
    assert RainbowConfig(**settings).head == "quantile", "other heads need no bounds"


def test_an_environment_without_a_preset_takes_a_head_without_bounds():
    for env_id in ("Acrobot-v1", "MountainCar-v0"):
        assert RAINBOW.load_preset(env_id).config.head == "quantile"
        assert RAINBOW.load_preset(env_id).path.stem == "discrete"


@pytest.mark.long
@pytest.mark.parametrize("head", ["categorical", "scalar", pytest.param("quantile", marks=pytest.mark.slow)])
def test_it_learns_to_balance_a_pole(head):
    """A mean greedy return of 60 in 20 episodes, within 6,000 steps; random actions have 22.

    The preset's noise explores too little for the heads that it is not made for: they explore by epsilon.
    """
    changes = {} if head == "categorical" else {"head": head, "noisy": False, "epsilon_steps": 3_000}
    preset = RAINBOW.load_preset("CartPole-v1")
    run = dataclasses.replace(
        preset.run, target_return=60.0, max_env_steps=6_000, evaluate_every=500, screening_episodes=5
    )
    result = train(RAINBOW, "CartPole-v1", run=run, config=dataclasses.replace(CONFIG, **changes), seed=1)
    assert result.confirmed, [point.mean_return for point in result.curve]


def test_actors_and_learner_take_turns_on_a_table(make_fake_replay):
    replay = make_fake_replay(max_size=5_000, priority_exponent=0.5)
    config = dataclasses.replace(CONFIG, prioritized=False)
    learner = RAINBOW.make_learner(SPEC, config, replay, seed=0, watch=Stopwatch())
    actor = RAINBOW.make_actor(SPEC, config, replay, learner, index=0, seed=0, watch=Stopwatch())
    for _ in range(100):
        actor.act()
    actor.close()
    assert replay.size > 700
    learner.learn()
    assert learner.version == 1
