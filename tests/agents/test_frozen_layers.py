"""Parameters with `requires_grad=False` stay as they are: pretrained layers in front of an agent's own."""

import dataclasses
from collections import OrderedDict

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("gymnasium")

import reverie  # noqa: E402
from reverie import agents  # noqa: E402
from reverie.agents import tracing  # noqa: E402
from reverie.agents.env_settings import EnvSettings  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402
from reverie.agents.flat import FlatNetwork  # noqa: E402
from reverie.agents.gorila.networks import make_network  # noqa: E402
from reverie.agents.gorila.states import server_state, shard_states  # noqa: E402
from reverie.agents.inputs import ObservationReader  # noqa: E402
from reverie.agents.layers import initialised  # noqa: E402
from reverie.agents.optimizers import adam, centred_rmsprop, descend_clipped, rmsprop  # noqa: E402


def layers(spec, frozen=True):
    """Pretrained layers, and trained ones behind them."""
    pretrained, trained = torch.nn.Linear(spec.num_inputs, 8), torch.nn.Linear(8, 8)
    with torch.no_grad():
        pretrained.weight.copy_(torch.linspace(-1, 1, pretrained.weight.numel()).view_as(pretrained.weight))
    for parameter in pretrained.parameters():
        parameter.requires_grad_(not frozen)
    return torch.nn.Sequential(OrderedDict(pretrained=pretrained, tanh=torch.nn.Tanh(), behind=trained))


FROZEN, TRAINED = (EnvSettings(network=f"{__name__}:layers(frozen={frozen})") for frozen in (True, False))


def parts(learner, key):
    """Copies of the parameters of a learner's networks whose names have `key`, by network and name."""
    return {
        (network, name): one
        for network, named in learner.state_dict()["networks"].items()
        for name, one in named.items()
        if key in name
    }


def are_same(one, other):
    assert one.keys() == other.keys()
    return all(np.array_equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize(
    "make",
    [
        lambda network: adam(network, 0.1),
        lambda network: centred_rmsprop(network, 0.1, 1e-5),
        lambda network: rmsprop(network, 0.1, 0.9, 1e-5),
        lambda network: torch.optim.AdamW([network.flat], lr=0.1, weight_decay=0.5),
    ],
)
def test_no_optimiser_moves_frozen_parameters(make):
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1), torch.nn.Linear(1, 1))
    module[1].requires_grad_(False)
    before = [one.detach().clone() for one in module.parameters()]
    network = FlatNetwork(module, trainable=True)
    assert [one.requires_grad for one in module.parameters()] == [True, True, False, False, True, True]
    optimizer = make(network)
    for _ in range(3):
        descend_clipped(network, optimizer, module(torch.ones(2, 3)).square().sum(), max_grad_norm=1.0)
    moved = [not torch.equal(one, old) for one, old in zip(module.parameters(), before, strict=True)]
    assert moved == [True, True, False, False, True, True]
    again = FlatNetwork(torch.nn.Linear(2, 2), trainable=False)
    assert not any(one.requires_grad for one in again.module.parameters())


def test_the_decay_of_weights_leaves_running_statistics():
    spec = describe("CartPole-v1", EnvSettings(normalise_observations=True, normalise_rewards=True))
    module = torch.nn.Sequential(initialised(lambda: ObservationReader(spec), 0), torch.nn.Linear(4, 1))
    reader, network = module[0], FlatNetwork(module, trainable=True)
    reader.moments.merge(torch.full((50, 4), 100.0) + torch.arange(50.0)[:, None])
    reader.returns.merge(torch.arange(50.0)[:, None])
    before, weight = [one.clone() for one in reader.statistics()], module[1].weight.clone()
    optimizer = torch.optim.AdamW([network.flat], lr=0.1, weight_decay=0.5)
    descend_clipped(network, optimizer, module(torch.ones(2, 4)).square().sum(), max_grad_norm=1.0)
    assert len(before) == 6
    assert all(torch.equal(one, old) for one, old in zip(reader.statistics(), before, strict=True))
    assert not torch.equal(module[1].weight, weight)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("dqn", {}),
        ("apex-dqn", {"optimizer": "rmsprop", "target_rate": 0.3}),
        ("gorila", {}),
        ("sac", {}),
        ("td3", {}),
        ("d4pg", {}),
    ],
)
def test_learners_leave_frozen_layers_and_train_those_behind_them(name, changes, make_learner):
    learner = make_learner(name, FROZEN, **changes)
    frozen, trained = parts(learner, "pretrained."), parts(learner, "behind.")
    for _ in range(8):
        learner.learn()
    assert frozen
    assert are_same(parts(learner, "pretrained."), frozen)
    assert not are_same(parts(learner, "behind."), trained)


def test_layers_that_are_frozen_for_the_rest_of_a_run_stay_as_they_are(make_learner):
    """The moments of its first part would move them."""
    before, after = make_learner("dqn", TRAINED), make_learner("dqn", FROZEN)
    for _ in range(5):
        before.learn()
    after.load_state_dict(before.state_dict())
    frozen = parts(before, "pretrained.")
    for _ in range(3):
        after.learn()
        before.learn()
    assert {key[1] for key in frozen} == {key[1] for key in parts(after, "pretrained.")}
    online = {key: one for key, one in frozen.items() if key[0] == "online"}
    assert all(np.array_equal(parts(after, "pretrained.")[key], one) for key, one in online.items())
    assert not all(np.array_equal(parts(before, "pretrained.")[key], one) for key, one in online.items())


def test_a_shard_has_no_moments_of_frozen_layers():
    config = agents.find("gorila").load_preset("CartPole-v1").config
    spec = describe("CartPole-v1", FROZEN)
    network = make_network(spec, config, seed=0, trainable=False)
    size = network.flat.numel()
    shard = {"flat": network.numpy(), "version": 1, "dropped": 0}
    moments = {key: np.ones(size, np.float32) for key in ("exp_avg", "exp_avg_sq")}
    shard["optimizer"] = {"step": np.float32(1), **moments}
    (found,) = shard_states(network, server_state(network, [shard]))
    frozen = sum(one.size for name, one in network.named().items() if "pretrained." in name)
    assert float(found["optimizer"]["exp_avg"].sum()) == size - frozen


@pytest.mark.parametrize("name", ["dqn", "sac"])
def test_the_graph_of_an_update_leaves_frozen_layers(name, make_learner):
    pytest.importorskip("torch._dynamo")
    learner, kept = make_learner(name, FROZEN), {}
    updated = learner._updated
    learner._updated = lambda columns, single: kept.update(columns=columns, single=single) or updated(columns, single)
    learner.learn()
    state = tracing.GraphState(learner)
    graph = tracing.trace(learner, kept["columns"], kept["single"])
    copies, before = ([one.clone() for one in state.tensors] for _ in range(2))
    noise = graph.random_numbers(None)
    columns = [kept["columns"][one] for one in graph.columns]
    with torch.no_grad():
        graph.module(*copies, state.factors().clone(), *noise, *columns, *graph.constants)
    for network, copied, old in zip(learner._networks.values(), copies, before, strict=False):
        frozen = network.frozen_parts(copied)
        assert all(torch.equal(*pair) for pair in zip(frozen, network.frozen_parts(old), strict=True))
    assert not torch.equal(copies[0], before[0])
    assert [one.requires_grad for one in learner._networks[next(iter(learner._networks))].module.parameters()].count(
        False
    ) == 2


@pytest.mark.parametrize("name", ["dqn", "ppo", "sac"])
def test_a_run_its_policy_and_its_file_have_the_frozen_layers_of_the_factory(name, tmp_path):
    env_id = "Pendulum-v1" if name == "sac" else "CartPole-v1"
    agent = agents.find(name)
    config = agent.load_preset(env_id).config
    small = {"learning_starts": 20, "batch_size": 8, "random_steps": 5}
    small |= {"unroll_length": 8, "num_actors": 1, "epochs": 2}
    known = {field.name for field in dataclasses.fields(config)}
    result = reverie.train(
        name,
        env_id,
        config=dataclasses.replace(config, **{k: v for k, v in small.items() if k in known}),
        network=FROZEN.network,
        max_env_steps=100,
        target_return=None,
        compile="off",
        folder=tmp_path,
    )
    assert result.learner["updates"] > 0
    policy = reverie.load_policy(tmp_path)
    file = reverie.load_policy(policy.save(tmp_path / "policy.safetensors"))
    for own in (result.policy, policy, file):
        found = {key: one for key, one in own.module.named_parameters() if key.endswith("pretrained.weight")}
        assert found
        expected = torch.linspace(-1, 1, 8 * own.spec.num_inputs).view(8, -1)
        assert all(torch.equal(one.detach(), expected) for one in found.values())
