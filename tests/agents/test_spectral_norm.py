"""Layers that are divided by their largest singular value."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie.agents import find  # noqa: E402
from reverie.agents.environments import EnvSpec, describe  # noqa: E402
from reverie.agents.layers import ConvolutionTorso, MlpTorso, initialised  # noqa: E402
from reverie.agents.observations import ObservationLeaf  # noqa: E402
from reverie.agents.rainbow.networks import make_network  # noqa: E402
from reverie.agents.spectral_norm import NormalisedLayer, SpectralNorm, follow_weights, layers_of, normalise_layers  # noqa: E402
from reverie.runners.planning.plan import plan  # noqa: E402

RAINBOW = find("rainbow")
SPEC = describe("CartPole-v1")
CONFIG = dataclasses.replace(RAINBOW.load_preset("CartPole-v1").config, spectral_norm=True, hidden=(32, 16))
GRID = ObservationLeaf((), "image", (10, 10, 4), "bool")
GRIDS = EnvSpec("MinAtar/Breakout-v0", (10, 10, 4), "bool", 6, "Discrete(6)", None, leaves=(GRID,))


def largest(weight):
    """The largest singular value, by NumPy, of the weights as a matrix of outputs and inputs."""
    return np.linalg.svd(weight.detach().numpy().reshape(len(weight), -1), compute_uv=False)[0]


@pytest.mark.parametrize(
    "make",
    [lambda: MlpTorso(12, (40, 8)), lambda: ConvolutionTorso((4, 10, 10), ((16, 3, 1), (5, 2, 1)), 1)],
    ids=["linear", "convolutions"],
)
def test_a_normalised_layer_has_the_largest_singular_value_one(make):
    torso, plain = initialised(make, 3), initialised(make, 3)
    normalise_layers(torso, 3)
    for _ in range(200):
        follow_weights(torso)
    for layer, before in zip(layers_of(torso), layers_of(plain), strict=True):
        assert largest(layer.weight) == pytest.approx(1.0, rel=1e-3)
        torch.testing.assert_close(layer.weight, before.weight / largest(before.weight), rtol=1e-3, atol=1e-6)
        torch.testing.assert_close(layer.bias, before.bias)


def test_the_first_estimate_is_near_and_each_iteration_comes_nearer():
    weight = torch.randn(30, 50, generator=torch.Generator().manual_seed(0))
    norm, errors = SpectralNorm(weight, 0), []
    for _ in range(4):
        errors.append(abs(float(norm(weight).norm() / weight.norm()) * largest(weight) - 1))
        for _ in range(10):
            norm.iterate(weight)
    assert errors[0] < 0.1
    assert errors == sorted(errors, reverse=True)


def test_the_gradient_is_that_of_pytorchs_layer():
    """`torch.nn.utils.parametrizations.spectral_norm` in evaluation, which iterates no further, with our vectors."""
    ours, theirs = (initialised(lambda: torch.nn.Linear(6, 4), 1) for _ in range(2))
    normalise_layers(ours, 1)
    own = ours.spectral_norm
    u, matrix = own.u.detach(), ours.raw_weight.detach()
    torch.nn.utils.parametrizations.spectral_norm(theirs)
    norm = theirs.eval().parametrizations.weight[0]
    norm._u.copy_(u)
    norm._v.copy_(torch.nn.functional.normalize(matrix.t() @ u, dim=0))
    x = torch.randn(5, 6)
    for layer in (ours, theirs):
        layer(x).square().sum().backward()
    torch.testing.assert_close(ours(x), theirs(x))
    expected = theirs.parametrizations.weight.original.grad
    torch.testing.assert_close(ours.raw_weight.grad, expected)
    assert own.u.grad is None


def test_the_head_and_its_noise_are_not_normalised():
    network = make_network(SPEC, CONFIG, seed=0, trainable=True).module
    normalised = [name for name, one in network.named_modules() if isinstance(one, NormalisedLayer)]
    assert normalised == ["torso.0.layers.0"]


def test_the_estimate_is_in_the_weights_that_actors_and_files_get():
    online = make_network(SPEC, CONFIG, seed=0, trainable=True)
    for _ in range(3):
        with torch.no_grad():
            online.flat += 0.05 * torch.randn(online.flat.shape, generator=torch.Generator().manual_seed(1))
        follow_weights(online.module)
    policy = RAINBOW.make_policy(SPEC, CONFIG)
    policy._network.load(online.numpy())
    obs = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
    with torch.no_grad():
        np.testing.assert_array_equal(policy.q_values(obs), online.module(torch.from_numpy(obs)).numpy())


def test_each_update_of_rainbow_makes_one_iteration(make_learner):
    learner = make_learner("rainbow", spectral_norm=True, hidden=(32, 16), learning_rate=0.05)
    (layer,) = layers_of(learner._online.module.torso)
    weight, u = layer.raw_weight, layer.spectral_norm.u
    stale = SpectralNorm(weight.detach().clone(), 0)
    for _ in range(30):
        before = u.detach().clone()
        learner.learn()
        expected = weight @ (weight.T @ before)
        torch.testing.assert_close(u, expected / expected.norm())
    assert largest(layer.weight) == pytest.approx(1.0, rel=0.05)
    assert largest(stale(weight)) > 1.1, "without iterations it would be wrong by now"


def test_a_network_without_a_layer_to_normalise_is_refused():
    config = dataclasses.replace(CONFIG, hidden=(32,))
    message = "spectral_norm normalises the layers before the head, and there is none: give hidden two widths"
    with pytest.raises(ValueError, match=message):
        make_network(SPEC, config, seed=0, trainable=True)
    with pytest.raises(ValueError, match=message):
        plan(RAINBOW, "CartPole-v1", config=config)
    make_network(GRIDS, config, seed=0, trainable=True)  # it has a convolution


def test_a_layer_that_computes_its_weights_is_refused():
    layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 2))
    with pytest.raises(ValueError, match="spectral_norm needs weights that are parameters"):
        normalise_layers(torch.nn.Sequential(layer), 0)


def test_weights_of_zeros_stay_zeros():
    norm = SpectralNorm(torch.zeros(3, 2), 0)
    norm.iterate(torch.zeros(3, 2))
    assert norm(torch.zeros(3, 2)).tolist() == [[0.0, 0.0]] * 3
    weight = torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    for _ in range(50):
        norm.iterate(weight)
    assert largest(norm(weight)) == pytest.approx(1.0, rel=1e-3), "from zeros on they are followed like others"


def test_the_estimate_is_made_in_float32_where_the_layer_computes_in_bfloat16():
    layer = initialised(lambda: torch.nn.Linear(6, 4), 1)
    normalise_layers(layer, 1)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer.weight.dtype == torch.float32
        assert layer(torch.ones(2, 6)).dtype == torch.bfloat16


@pytest.mark.parametrize("spec", [SPEC, GRIDS], ids=["vectors", "grids"])
def test_the_vectors_are_counted_in_the_runs_memory(spec):
    config = dataclasses.replace(CONFIG, capacity=2_000)
    count = make_network(spec, config, seed=0, trainable=False).flat.numel()
    assert RAINBOW.memory(spec, config)["networks and optimiser"] == 4 * count * (5 + config.num_actors)
    plain = make_network(spec, dataclasses.replace(config, spectral_norm=False), seed=0, trainable=False).flat.numel()
    assert count == plain + 32 + (16 if spec is GRIDS else 0)


class OwnLinear(torch.nn.Linear):
    """A layer of another class."""


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))], ids=["copy", "pickle"])
def test_a_normalised_layer_can_be_copied_and_pickled(copied):
    layer = initialised(lambda: OwnLinear(6, 4), 1)
    normalise_layers(layer, 1)
    other = copied(layer)
    assert isinstance(other, OwnLinear)
    x = torch.ones(2, 6)
    torch.testing.assert_close(other(x), layer(x), rtol=0, atol=0)
    with torch.no_grad():
        other.raw_weight *= 3
    follow_weights(other)
    assert not torch.equal(other.raw_weight, layer.raw_weight)
    torch.testing.assert_close(other(x), layer(x), rtol=1e-2, atol=1e-2)
