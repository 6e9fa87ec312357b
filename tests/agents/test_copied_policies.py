"""Policies that are pickled or copied act as before, and take weights."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie import agents  # noqa: E402
from reverie.agents.core import Weights  # noqa: E402
from reverie.agents.env_settings import EnvSettings  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402
from reverie.agents.policies import TrainedPolicy  # noqa: E402
from reverie.agents.policy_records import TrainingRun  # noqa: E402

COPIES = [pytest.param(copy.deepcopy, id="copy"), pytest.param(lambda p: pickle.loads(pickle.dumps(p)), id="pickle")]


class OwnLayers(torch.nn.Module):
    """Layers of a user's own, of which one is frozen."""

    def __init__(self, num_inputs):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(num_inputs, 5), torch.nn.LayerNorm(5), torch.nn.Linear(5, 4))
        self.layers[0].requires_grad_(False)

    def forward(self, observations):
        return self.layers(observations.flatten(1).float())


def own_layers(spec):
    return OwnLayers(spec.num_inputs)


MADE = {
    "plain": {},
    "stack": {"frame_stack": 3},
    "normalised": {"normalise_observations": True},
    "network": {"network": own_layers},
}
OPTIONS = {
    "dqn": [{"layer_norm": True}],
    "rainbow": [
        {"spectral_norm": True, "hidden": (32, 16)},
        {"noisy": False},
        {"dueling": False},
        {"head": "quantile"},
    ],
    "ppo": [{"lstm_units": 6}, {"shared_layers": True}],
    "impala": [{"lstm_units": 6}, {"shared_layers": True}],
}
CASES = [
    *((name, made, {}) for name in agents.BUILT_IN for made in MADE if name != "gorila" or made != "normalised"),
    *((name, "plain", options) for name, each in OPTIONS.items() for options in each),
    ("rainbow", "network", OPTIONS["rainbow"][0]),
    ("ppo", "network", OPTIONS["ppo"][0]),
]


def trained(name, made, options):
    agent = agents.find(name)
    env_id = "Pendulum-v1" if agent.actions == "continuous" else "CartPole-v1"
    spec = describe(env_id, EnvSettings(**MADE[made]))
    config = dataclasses.replace(agent.load_preset(env_id).config, **options)
    run, rng = TrainingRun(0, 0, 0, None), np.random.default_rng(3)
    return TrainedPolicy(agent, name, spec, config, run, agent.make_policy(spec, config), None, rng)


def acts(policy):
    """Greedy actions and drawn ones."""
    obs = np.random.default_rng(1).normal(size=(9, *policy.spec.obs_shape)).astype(np.float32)
    if not policy.recurrent:
        return policy(obs), policy(obs, greedy=False)
    actions, state = policy.step(obs, policy.initial_state(9))
    return actions, state, policy.step(obs, state, greedy=False)[0]


def randomised(policy):
    """Set every weight to another number, as a learner's weights arrive."""
    count = sum(one.numel() for one in policy.module.parameters())
    policy.policy.load(Weights(1, np.random.default_rng(2).normal(size=count).astype(np.float32)))


def assert_same(some, others):
    for one, other in zip(some, others, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize(("name", "made", "options"), CASES, ids=str)
def test_a_copy_acts_as_the_policy_and_takes_weights_of_its_own(name, made, options, copied):
    policy = trained(name, made, options)
    other = copied(policy)
    assert_same(acts(other), acts(policy))
    randomised(policy)
    after = copied(other)
    assert_same(acts(after), acts(copied(other)))
    for one in (other, after):
        randomised(one)
        one.rng.bit_generator.state = policy.rng.bit_generator.state
    before = copy.deepcopy(policy.rng.bit_generator.state)
    expected = acts(policy)
    for one in (other, after):
        one.rng.bit_generator.state = before
        assert_same(acts(one), expected)


def test_a_pickle_has_each_weight_once():
    policy = trained("dqn", "plain", {}).policy
    assert len(pickle.dumps(policy)) < 1.2 * sum(one.nbytes for one in policy.module.parameters())


def test_a_pickled_policy_keeps_frozen_weights_apart():
    from reverie.agents.flat import FlatNetwork

    network = FlatNetwork(OwnLayers(3), trainable=True)
    other = pickle.loads(pickle.dumps(network))
    assert [one.requires_grad for one in other.parameters] == [one.requires_grad for one in network.parameters]
    assert [one.shape for one in other.frozen_parts()] == [(5, 3), (5,)]
    other.gradient(other.module(torch.ones(2, 3)).sum())
    assert float(other.flat.grad.abs().sum()) > 0
