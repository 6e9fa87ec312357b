"""The network for Atari frames, precision, optimiser and device: their computations, and the effect of each option."""

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("ale_py")

from torch.nn import functional  # noqa: E402

from reverie.agents import presets  # noqa: E402
from reverie.agents.apex_dqn import agent as apex_dqn  # noqa: E402
from reverie.agents.apex_dqn.networks import make_network  # noqa: E402
from reverie.agents.core import RunSettings, Stopwatch, Weights  # noqa: E402
from reverie.agents.dqn import agent as dqn  # noqa: E402
from reverie.agents.dqn.networks import make_network as make_dqn_network  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402
from reverie.agents.flat import FlatNetwork  # noqa: E402
from reverie.agents.gorila import agent as gorila  # noqa: E402
from reverie.agents.gorila.config import GorilaConfig  # noqa: E402
from reverie.agents.layers import CONVOLUTIONS, ConvolutionTorso, convolution_sizes, initialised  # noqa: E402
from reverie.agents.sac import agent as sac  # noqa: E402
from reverie.runners import plan  # noqa: E402
from reverie.runners.planning.devices import DeviceError, networks_on  # noqa: E402

SHAPE = (4, 84, 84)


def nature_torso(shape):
    return initialised(lambda: ConvolutionTorso(shape, CONVOLUTIONS, 255), 0)


@pytest.fixture(scope="module")
def pong():
    return describe("ALE/Pong-v5"), apex_dqn.load_preset("ALE/Pong-v5").config


@pytest.fixture
def frames():
    return np.random.default_rng(0).integers(0, 256, (6, *SHAPE), dtype=np.uint8)


def test_the_torso_is_the_papers_three_convolutions_over_frames_divided_by_255(frames):
    torso = nature_torso(SHAPE)
    x = torch.from_numpy(frames).float() / 255
    for layer, stride in zip(torso.convolutions, (4, 2, 1), strict=True):
        x = functional.relu(functional.conv2d(x, layer.weight.contiguous(), layer.bias, stride))
    features = torso(torch.from_numpy(frames))
    assert features.shape == (6, 3136)
    assert torch.allclose(features, x.flatten(1), atol=1e-5)
    assert features.std() > 0.01
    assert [tuple(c.weight.shape) for c in torso.convolutions] == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3)]


@pytest.mark.parametrize("shape", [SHAPE, (1, 60, 44)])
def test_the_sizes_of_a_torso_are_those_of_the_module(shape):
    torso = nature_torso(shape)
    features, parameters, units = convolution_sizes(shape, CONVOLUTIONS)
    assert torso(torch.zeros(2, *shape)).shape == (2, features)
    assert parameters == sum(p.numel() for p in torso.parameters())
    seen = []
    for layer in torso.convolutions[1:]:
        layer.register_forward_hook(lambda layer, inputs, output: seen.append(output[0].numel()))
    torso(torch.zeros(1, *shape))
    assert units > sum(seen) == units - torso.convolutions[0](torch.zeros(1, *shape)).numel()


def test_the_dueling_network_has_3_3_million_parameters_in_channels_last_and_memory_counts_them(pong):
    spec, config = pong
    network = make_network(spec, config, seed=0, trainable=True)
    assert 3_290_000 < network.flat.numel() < 3_300_000
    for layer in network.module[0].convolutions:
        assert layer.weight.is_contiguous(memory_format=torch.channels_last)
        assert layer.weight.grad.is_contiguous(memory_format=torch.channels_last)
    counted = apex_dqn.memory(spec, config)["networks and optimiser"]
    assert counted == 4 * network.flat.numel() * (5 + config.num_actors)
    dqn_config = dqn.load_preset("ALE/Pong-v5").config
    dqn_network = make_dqn_network(spec, dqn_config, seed=0, trainable=False)
    assert dqn.memory(spec, dqn_config)["networks and optimiser"] == 4 * dqn_network.flat.numel() * 6


def test_values_of_frames_are_a_value_and_advantages_without_their_mean(pong, frames):
    """Wang et al. 2016, equation 9: so the mean of the values over the actions is the value stream's."""
    torso, streams = make_network(*pong, seed=0, trainable=False).module
    features = torso(torch.from_numpy(frames))
    q, advantages = streams(features), streams.advantage(features)
    assert torch.allclose(q.mean(dim=1, keepdim=True), streams.value(features), atol=1e-5)
    assert torch.allclose(q - q[:, :1], advantages - advantages[:, :1], atol=1e-5)
    assert advantages.mean(dim=1).abs().max() > 1e-3


def test_gradients_of_convolutions_arrive_in_the_flat_vector_and_weights_travel(pong, frames):
    network = make_network(*pong, seed=3, trainable=True)
    network.module(torch.from_numpy(frames)).sum().backward(inputs=network.parameters)
    first = network.module[0].convolutions[0].weight
    # The same numbers in another order of memory: sorted and not summed, as a sum depends on its order.
    in_flat, in_module = (grad.reshape(-1).sort().values for grad in (network.flat.grad[: first.numel()], first.grad))
    assert torch.equal(in_flat, in_module)
    assert in_module.abs().max() > 0
    policy = apex_dqn.make_policy(*pong)
    policy.load(Weights(1, network.numpy()))
    expected = network.module(torch.from_numpy(frames)).detach().numpy()
    assert np.allclose(policy.q_values(frames), expected, atol=1e-5)


def test_bfloat16_computes_the_same_less_exactly_and_gives_float32(pong, frames):
    spec, config = pong
    exact = apex_dqn.make_policy(spec, config).q_values(frames)
    rough = apex_dqn.make_policy(spec, dataclasses.replace(config, precision="bfloat16")).q_values(frames)
    assert rough.dtype == np.float32
    assert (exact != rough).any()
    assert np.allclose(exact, rough, atol=0.02)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "ALE/Pong-v5"])
@pytest.mark.parametrize("agent", [apex_dqn, dqn])
def test_outputs_of_bfloat16_layers_have_float32_resolution(agent, env_id, pong, frames):
    spec = describe("CartPole-v1") if env_id == "CartPole-v1" else pong[0]
    seen = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32) if env_id == "CartPole-v1" else frames
    config = dataclasses.replace(agent.load_preset(env_id).config, precision="bfloat16")
    values = torch.from_numpy(agent.make_policy(spec, config).q_values(seen))
    assert (values != values.bfloat16().float()).any(), "rounded, an action is as good as the next one"


class OneBatch:
    """A table that always gives the same batch, and keeps the priorities that it gets."""

    def __init__(self, frames):
        n = len(frames)
        self.data = {
            "obs": frames,
            "next_obs": frames[::-1].copy(),
            "action": np.arange(n) % 6,
            "reward": np.ones(n, np.float32),
            "discount": np.full(n, 0.9, np.float32),
            "weights_version": np.zeros(n, np.int64),
        }
        self.priorities = []

    def sample_batch(self, table, size, timeout):
        info = type("Info", (), {"key": np.arange(len(self.data["obs"]))})
        weights = np.ones(len(self.data["obs"]), np.float32)
        return type("Batch", (), {"data": self.data, "info": info, "weights": lambda *args, **kwargs: weights})

    def update_priorities(self, table, keys, priorities):
        self.priorities.append(priorities)
        return type("Result", (), {"applied": len(keys), "stale": 0})


def learned(agent, spec, config, frames, updates=2):
    table = OneBatch(frames)
    learner = agent.make_learner(spec, config, table, seed=1, watch=Stopwatch())
    before = learner.latest(-1).flat
    for _ in range(updates):
        learner.learn()
    return learner.latest(-1).flat - before, table.priorities


def test_gorila_learns_from_frames_what_dqn_does_and_memory_counts_its_network(pong, frames):
    spec, config = pong[0], dqn.load_preset("ALE/Pong-v5").config
    alone = GorilaConfig(
        **dataclasses.asdict(config), num_learners=1, num_parameter_shards=1, max_staleness=0, bundled=False
    )
    assert (learned(gorila, spec, alone, frames)[0] == learned(dqn, spec, config, frames)[0]).all()
    counted = gorila.memory(spec, alone)["networks and optimiser"]
    assert counted == 4 * gorila.make_policy(spec, alone)._network.flat.numel() * 8


@pytest.mark.parametrize("agent", [apex_dqn, dqn])
def test_precision_changes_what_is_learned_a_little(agent, pong, frames):
    spec, config = pong[0], agent.load_preset("ALE/Pong-v5").config
    exact, errors = learned(agent, spec, config, frames, updates=1)
    rough, rough_errors = learned(agent, spec, dataclasses.replace(config, precision="bfloat16"), frames, updates=1)
    assert (exact != rough).any()
    cosine = (exact @ rough) / np.linalg.norm(exact) / np.linalg.norm(rough)
    assert cosine > 0.8
    if errors:
        assert np.allclose(errors[0], rough_errors[0], atol=0.03)


@pytest.mark.long
def test_rmsprop_is_centred_and_takes_other_steps_than_adam(pong, frames):
    spec, config = pong
    config = dataclasses.replace(config, optimizer_epsilon=1.5e-7)
    adam, _ = learned(apex_dqn, spec, config, frames)
    rmsprop, _ = learned(apex_dqn, spec, dataclasses.replace(config, optimizer="rmsprop"), frames)
    assert (adam != rmsprop).any()
    # The first step of Adam is its rate for every parameter with a gradient; of RMSProp with decay 0.95 it is more.
    one, _ = learned(apex_dqn, spec, config, frames, updates=1)
    other, _ = learned(apex_dqn, spec, dataclasses.replace(config, optimizer="rmsprop"), frames, updates=1)
    assert np.abs(one).max() <= 1.01 * config.learning_rate
    assert np.abs(other).max() > 2 * config.learning_rate
    with pytest.raises(ValueError, match=r"optimizer is 'sgd', and must be \"adam\" or \"rmsprop\""):
        dataclasses.replace(config, optimizer="sgd")
    with pytest.raises(ValueError, match=r"precision is 'half', and must be \"float32\" or \"bfloat16\""):
        dataclasses.replace(config, precision="half")


def test_networks_are_made_on_the_default_device_and_the_cpu_may_be_named(frames):
    with torch.device("cpu"), networks_on("cpu"):
        network = FlatNetwork(nature_torso(SHAPE), trainable=True)
    assert network.device == torch.device("cpu") == network.flat.device
    with networks_on("cuda:1"):
        assert torch.get_default_device() == torch.device("cuda:1")
    assert torch.get_default_device() == torch.device("cpu")


def test_a_missing_device_is_refused_before_anything_starts(monkeypatch):
    run = dataclasses.replace(dqn.load_preset("CartPole-v1").run, device="cuda:1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(
        DeviceError, match=r"device 'cuda:1' is missing: PyTorch .* finds 1 CUDA devices; set device=cpu"
    ):
        plan(dqn, "CartPole-v1", run=run)
    assert plan(dqn, "CartPole-v1", run=dataclasses.replace(run, device="cuda:0")).run.device == "cuda:0"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError, match="finds 0 CUDA devices"):
        plan(dqn, "CartPole-v1", run=dataclasses.replace(run, device="cuda"))


def test_unsupported_devices_and_invalid_names_are_refused():
    run = dataclasses.replace(sac.load_preset("Pendulum-v1").run, device="cuda")
    with pytest.raises(DeviceError, match=r"device 'cuda' is not supported by sac, which runs on cpu"):
        plan(sac, "Pendulum-v1", run=run)
    with pytest.raises(ValueError, match=r"device is 'gpu', and must be \"cpu\", \"cuda\" or \"cuda:N\""):
        RunSettings(target_return=1.0, max_env_steps=1, evaluate_every=1, device="gpu")


@pytest.mark.parametrize("agent", [apex_dqn, dqn])
def test_a_bare_word_names_another_preset_of_the_environment(agent, tmp_path, monkeypatch):
    paper = agent.load_preset("ALE/Pong-v5", presets.Path("paper"))
    assert paper.path.parent.name == "paper"
    assert paper.config.learning_starts == 50_000
    assert paper.config != agent.load_preset("ALE/Pong-v5").config
    monkeypatch.chdir(tmp_path)
    with pytest.raises(presets.PresetError, match="preset paper: is for ALE/Pong-v5, and not for CartPole-v1"):
        agent.load_preset("CartPole-v1", presets.Path("paper"))
    with pytest.raises(presets.PresetError, match="is neither a file nor a preset of the agent; its presets are"):
        agent.load_preset("CartPole-v1", presets.Path("papre"))
