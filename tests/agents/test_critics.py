"""Ensembles, dropout, layer norm and periods: REDQ's and DroQ's parts as settings of SAC and TD3; layer norm of DQN."""

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie.agents import find, presets  # noqa: E402
from reverie.agents.continuous import Critics, q_values_of, q_values_of_some  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402
from reverie.agents.flat import FlatNetwork  # noqa: E402
from reverie.agents.layers import LayerNorm, MlpTorso, initialised  # noqa: E402
from reverie.agents.random_layers import UNIFORM, Dropout, drawing, random_numbers  # noqa: E402
from reverie.agents.sac.loss import policy_loss  # noqa: E402
from reverie.agents.td3 import learner as td3_learner  # noqa: E402

SPEC = describe("Pendulum-v1")
BOTH = pytest.mark.parametrize("name", ["sac", "td3"])


def drawn(seed):
    generator = torch.Generator().manual_seed(seed)
    return lambda shape, uniform=False: random_numbers(shape, uniform, generator)


def test_dropout_leaves_out_a_share_of_the_units_and_keeps_their_mean():
    layer, x = Dropout(3, 50, 0.2), torch.ones(3, 200, 50)
    assert torch.equal(layer(x), x), "the identity without numbers"
    with drawing(layer, 200, drawn(0)):
        found = layer(x)
    count, out = found.numel(), int((found == 0).sum())
    assert abs(out - 0.2 * count) < 5 * np.sqrt(count * 0.2 * 0.8)
    assert torch.allclose(found[found != 0], torch.tensor(1 / 0.8))
    assert len({tuple(row) for row in (found == 0).reshape(-1, 50).tolist()}) > 590, "each unit by itself"


def test_a_rate_of_dropout_is_a_share_of_all_numbers_of_sixteen_bits():
    every = torch.tensor(UNIFORM, dtype=torch.float32).view(1, 1, -1)
    for rate, dropped in ((0.01, 655), (0.5, 2**15), (1e-9, 1), (0.0, 0), (1 - 1e-9, 2**16 - 1)):
        layer = Dropout(1, 2**16, rate)
        with drawing(layer, 1, lambda shape, uniform: every):
            found = layer(torch.ones(1, 1, 2**16))
        assert int((found == 0).sum()) == dropped
        assert found.mean().item() == pytest.approx(1.0, rel=1e-4)


def chi_square(numbers, bins):
    """The statistic of uniform numbers in so many equal bins."""
    counts = np.bincount((numbers.astype(np.int64) + 2**15) // (2**16 // bins), minlength=bins)
    return float(((counts - len(numbers) / bins) ** 2 / (len(numbers) / bins)).sum())


def test_every_uniform_number_is_equally_likely_and_a_generator_repeats_them():
    shape = torch.Size((3, 67, 501))  # not a multiple of four
    first, second = (random_numbers(shape, True, torch.Generator().manual_seed(0)) for _ in range(2))
    assert (first.shape, first.dtype) == (shape, torch.float32)
    assert torch.equal(first, second)
    numbers, most = first.flatten().numpy(), 255 + 5 * (2 * 255) ** 0.5
    assert chi_square(numbers, 256) < most
    assert chi_square(np.where(numbers % 97 == 0, 0, numbers), 256) > most, "one in a hundred is another"
    low = (numbers.astype(np.int64) & 255) * 256 - 2**15
    assert chi_square(low, 256) < most, "their low bits as well"
    for lag in (1, 4):
        correlation = np.corrcoef(numbers[:-lag], numbers[lag:])[0, 1]
        assert abs(correlation) < 5 / len(numbers) ** 0.5


def test_a_layer_norm_normalises_each_row_and_each_critic_has_its_own_scale():
    x = torch.randn(3, 7, 16) * 5 + 2
    layer = initialised(lambda: LayerNorm(16, 3), 0)
    expected = torch.nn.functional.layer_norm(x, (16,))
    torch.testing.assert_close(layer(x), expected)
    with torch.no_grad():
        layer.weight[1] *= 3
        layer.bias[2] += 4
    found = layer(x)
    torch.testing.assert_close(found[0], expected[0])
    torch.testing.assert_close(found[1], 3 * expected[1])
    torch.testing.assert_close(found[2], expected[2] + 4)


def test_critics_with_dropout_and_layer_norm_are_those_of_pytorchs_layers_one_by_one():
    critics = initialised(lambda: Critics(SPEC, (8, 6), 2, layer_norm=True, dropout=0.5), 0)
    network = FlatNetwork(critics, trainable=False)
    obs, actions = torch.randn(5, 3), torch.rand(5, 1)
    found = q_values_of(network, obs, actions, drawn(3))
    numbers = drawn(3)
    masks = [numbers(torch.Size((2, 5, width)), True) >= 0 for width in (8, 6)]
    for k in range(2):
        x = torch.cat([obs, actions], dim=1)
        for i, mask in enumerate(masks):
            x = x @ critics.layers[i].weight[k] + critics.layers[i].bias[k]
            x = torch.relu(torch.nn.functional.layer_norm(x * mask[k] * 2, x.shape[1:]))
        expected = x @ critics.layers[2].weight[k] + critics.layers[2].bias[k]
        torch.testing.assert_close(found[k], expected[:, 0])
    assert not torch.allclose(found, critics(obs, actions))


ENSEMBLES = [{}, {"layer_norm": True}, {"dropout": 0.5}, {"layer_norm": True, "dropout": 0.5}]


@pytest.mark.parametrize("parts", ENSEMBLES, ids=str)
@pytest.mark.parametrize("which", [slice(1), slice(1, 3), torch.tensor([3, 0])], ids=str)
def test_values_and_gradients_of_some_critics_are_those_among_all(which, parts):
    network = FlatNetwork(initialised(lambda: Critics(SPEC, (16, 8), 4, **parts), 0), trainable=True)
    with torch.no_grad():  # scales and shifts of their own
        network.flat += 0.1 * drawn(1)(network.flat.shape)
    obs, found = drawn(2)(torch.Size((7, 3))), []
    for some in (which, None):
        actions = torch.linspace(-1, 1, 7)[:, None].requires_grad_()
        q = q_values_of(network, obs, actions, drawn(3), some)
        q = q[which] if some is None else q
        slope = torch.autograd.grad(q.square().sum(), actions, retain_graph=True)[0]
        found.append((q, slope, network.gradient(q.square().sum()).clone()))
    assert found[0][0].shape[1] == 7
    for of_some, of_all in zip(*found, strict=True):
        torch.testing.assert_close(of_some, of_all)


def test_targets_take_so_many_critics_drawn_evenly():
    network = FlatNetwork(initialised(lambda: Critics(SPEC, (4,), 5, dropout=0.2), 0), trainable=False)
    obs, actions, draw = torch.ones(2, 3), torch.ones(2, 1), drawn(0)
    with torch.no_grad():  # the critic k has the value k
        network.flat.zero_()
        network.module.layers[-1].bias.copy_(torch.arange(5.0).view(5, 1, 1))
        counts = np.zeros(5)
        for count in (0, 5):
            assert q_values_of_some(network, obs, actions, count, draw)[:, 0].tolist() == [0, 1, 2, 3, 4]
        for _ in range(2_000):
            found = q_values_of_some(network, obs, actions, 2, draw)
            assert found.shape == (2, 2)
            assert found[0, 0] != found[1, 0], "without replacement"
            counts[found[:, 0].long().numpy()] += 1
    assert np.abs(counts - 800).max() < 5 * np.sqrt(2_000 * 0.4 * 0.6)


@pytest.mark.parametrize("parts", ENSEMBLES, ids=str)
def test_td3s_updates_are_those_of_a_policy_step_that_computes_all_critics(parts, make_learner, monkeypatch):
    one, two = (make_learner("td3", num_critics=4, policy_period=2, **parts) for _ in range(2))
    for _ in range(4):
        one.learn()
    monkeypatch.setattr(td3_learner, "q_values_of", lambda *given: q_values_of(*given[:4]))
    for _ in range(4):
        two.learn()
    for name, network in one._networks.items():
        np.testing.assert_allclose(network.numpy(), two._networks[name].numpy(), rtol=1e-5, atol=1e-6)


@BOTH
def test_no_critic_is_computed_that_an_update_does_not_use(name, make_learner):
    learner, counts = make_learner(name, num_critics=4, target_critics=2, policy_period=1), []
    for critics in (learner._critics_target, learner._critics):
        critics.module.register_forward_hook(lambda _module, _given, q: counts.append(len(q)))
    learner.learn()
    assert counts == [2, 4, 1 if name == "td3" else 4]  # the target, the critics' loss, the policy's


def test_the_policy_raises_the_least_or_the_mean_of_the_critics():
    q, log_pi = torch.tensor([[1.0, 4.0], [3.0, 2.0]]), torch.tensor([0.5, 1.0])
    assert policy_loss(q, log_pi, 2.0).item() == pytest.approx(((1 - 1) + (2 - 2)) / 2)
    assert policy_loss(q, log_pi, 2.0, mean_of_critics=True).item() == pytest.approx(((1 - 2) + (2 - 3)) / 2)


CHANGES = [{"layer_norm": True}, {"dropout": 0.3}, {"num_critics": 4}, {"num_critics": 4, "target_critics": 1}]


@BOTH
@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_each_setting_changes_the_targets_and_the_updates(name, changes, make_learner):
    learner, before = make_learner(name, **changes), dict(changes)
    before.pop("target_critics", None)
    other = make_learner(name, **(before if "target_critics" in changes else {}))
    for one in (learner, other):
        one.learn()
        one.learn()
    losses = [one.metrics()["critics_loss"] / one._config.num_critics for one in (learner, other)]
    assert losses[0] != pytest.approx(losses[1], rel=1e-6)
    assert learner._critics.module.k == changes.get("num_critics", 2)
    assert len(learner._critics.module.norms) == len(learner._critics_target.module.norms) == ("layer_norm" in changes)


@BOTH
def test_updates_with_dropout_are_those_of_their_seed(name, make_learner):
    one, two = (make_learner(name, dropout=0.3) for _ in range(2))
    for each in (one, two):
        for _ in range(3):
            each.learn()
    assert (one._critics.numpy() == two._critics.numpy()).all()


def test_policy_and_temperature_of_sac_step_once_per_policy_period(make_learner, networks_of):
    learner = make_learner("sac", policy_period=3)
    states = [networks_of(learner)]
    for _ in range(6):
        learner.learn()
        states.append(networks_of(learner))
    moved = {name: [bool((a[name] != b[name]).any()) for a, b in itertools.pairwise(states)] for name in states[0]}
    assert moved["policy"] == moved["temperature"] == [False, False, True] * 2
    assert moved["critics"] == moved["critics_target"] == [True] * 6


def test_dqn_with_layer_norm_normalises_its_hidden_layers_and_counts_their_parameters(make_learner):
    dqn, spec = find("dqn"), describe("CartPole-v1")
    plain = dqn.load_preset("CartPole-v1").config
    config = dataclasses.replace(plain, layer_norm=True)
    counts = []
    for one in (plain, config):
        policy = dqn.make_policy(spec, one)
        counts.append(sum(p.numel() for p in policy.module.parameters()))
        assert dqn.memory(spec, one)["networks and optimiser"] == 4 * counts[-1] * (5 + one.num_actors)
    assert counts[1] == counts[0] + 2 * sum(plain.hidden)
    torso = initialised(lambda: MlpTorso(4, (16, 16), layer_norm=True), 0)
    small, large = torso(torch.ones(1, 4)), torso(torch.ones(1, 4) * 1e4)
    assert large.abs().max() < 10 * small.abs().max(), "features stay bounded"
    learner, other = make_learner("dqn", layer_norm=True), make_learner("dqn")
    learner.learn()
    other.learn()
    assert learner.metrics()["loss"] != other.metrics()["loss"]


@pytest.mark.parametrize(
    ("agent", "preset", "settings"),
    [
        ("sac", "droq", {"layer_norm": True, "dropout": 0.01, "num_critics": 2, "policy_period": 10}),
        ("sac", "redq", {"num_critics": 10, "target_critics": 2, "policy_critics": "mean"}),
        ("td3", "droq", {"layer_norm": True, "dropout": 0.01, "policy_period": 10}),
        ("dqn", "layer-norm", {"layer_norm": True}),
    ],
)
def test_strong_settings_have_presets_by_name(agent, preset, settings):
    found = find(agent)
    env_id = "Pendulum-v1" if agent != "dqn" else "CartPole-v1"
    config = found.load_preset(env_id, Path(preset)).config
    assert {name: getattr(config, name) for name in settings} == settings
    if agent != "dqn":
        assert config.samples_per_insert == 10 * config.batch_size


def test_a_named_preset_is_that_of_a_related_environment_if_it_has_no_own_one():
    pytest.importorskip("mujoco")
    sac = find("sac")
    own, related = (sac.load_preset(env_id, Path("droq")) for env_id in ("HalfCheetah-v5", "Hopper-v5"))
    assert related.config == own.config
    assert own.config.samples_per_insert == own.config.policy_period * own.config.batch_size == 1024
    assert (own.run.target_return, related.run.target_return) == (4800.0, 3800.0)
    assert related.note == "Hopper-v5 takes the settings of the preset for HalfCheetah-v5; its target is its own, 3800"
    assert sac.load_preset("Humanoid-v5", Path("droq")).config.capacity < own.config.capacity, "its rows are larger"
    with pytest.raises(presets.PresetError, match="droq: is for HalfCheetah-v5 and Pendulum-v1, and not for Mount"):
        sac.load_preset("MountainCarContinuous-v0", Path("droq"))
    for other in ("defaults", ".", "dorq"):
        with pytest.raises(presets.PresetError, match=r"preset \S+: (is neither a file|cannot be read)"):
            sac.load_preset("MountainCarContinuous-v0", Path(other))
    with pytest.raises(presets.PresetError, match=r"its presets are droq, HalfCheetah-v5, Hopper-v5, Pendulum-v1"):
        sac.load_preset("Hopper-v5", Path("dorq"))


def test_an_agent_without_a_folder_of_presets_takes_a_file(tmp_path):
    sac = find("sac")
    mine = dataclasses.replace(sac, name="mine", presets=tmp_path / "none")
    assert mine.load_preset("Pendulum-v1", sac.presets / "Pendulum-v1.toml").config.batch_size == 128
    with pytest.raises(presets.PresetError, match="is neither a file nor a preset of the agent"):
        mine.load_preset("Pendulum-v1", Path("droq"))


@BOTH
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target_critics": 3}, r"target_critics is 3, and must be at most num_critics \(2\)"),
        ({"num_critics": 0}, "num_critics is 0, and must be at least 1"),
        ({"dropout": 1.0}, r"dropout is 1.0, and must lie in \[0, 1\)"),
    ],
)
def test_wrong_settings_are_refused_by_name(name, changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(find(name).load_preset("Pendulum-v1").config, **changes)
