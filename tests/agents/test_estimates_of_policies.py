"""The q-values and values that a trained policy shows."""

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie import agents  # noqa: E402
from reverie.agents.env_settings import EnvSettings  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402
from reverie.agents.inputs import ObservationReader, reward_deviation  # noqa: E402
from reverie.agents.policies import TrainedPolicy  # noqa: E402
from reverie.agents.policy_records import TrainingRun  # noqa: E402
from reverie.agents.r2d2.loss import rescale  # noqa: E402

OF_Q = ("dqn", "apex-dqn", "gorila", "cql", "rainbow", "r2d2")
OF_VALUES = ("ppo", "impala")
OTHERS = [name for name in agents.BUILT_IN if name not in OF_Q + OF_VALUES]
NORMALISING = [name for name in (*OF_Q, *OF_VALUES) if name != "gorila"]
OBSERVATIONS = np.random.default_rng(1).normal(size=(9, 4)).astype(np.float32)


def trained(name, made=None, env_id=None, **options):
    """A policy with random weights."""
    agent = agents.find(name)
    env_id = env_id or ("Pendulum-v1" if agent.actions == "continuous" else "CartPole-v1")
    spec = describe(env_id, EnvSettings(**(made or {})))
    config = dataclasses.replace(agent.load_preset(env_id).config, **options)
    policy = agent.make_policy(spec, config)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter, one in policy.module.named_parameters():
            if ".returns." not in f".{parameter}":  # those of running statistics are no weights
                one.copy_(torch.randn(one.shape, generator=generator) * 0.3)
    return TrainedPolicy(agent, name, spec, config, TrainingRun(0, 0, 0, None), policy, None, np.random.default_rng(3))


def given(policy):
    """The arguments of a call: nine observations, and their states where the policy has one."""
    if not policy.recurrent:
        return (OBSERVATIONS,)
    state = policy.initial_state(9)
    return OBSERVATIONS, policy.step(OBSERVATIONS[::-1], state)[1]


def estimates(policy, *arguments):
    return (policy.q_values if policy.agent.name in OF_Q else policy.values)(*arguments)


@pytest.mark.parametrize(
    ("name", "made"),
    [
        *((name, {}) for name in OF_Q),
        *((name, {"normalise_rewards": True}) for name in NORMALISING if name in OF_Q),
    ],
    ids=str,
)
def test_the_greedy_action_has_the_greatest_q_value(name, made):
    policy = trained(name, made)
    q = policy.q_values(*given(policy))
    assert (q.shape, q.dtype) == ((9, 2), np.float32)
    greedy = policy.step(*given(policy))[0] if policy.recurrent else policy(OBSERVATIONS)
    assert q.argmax(axis=1).tolist() == greedy.tolist()
    assert q.std(axis=0).min() > 0.001


@pytest.mark.parametrize(
    ("name", "options"), [*((name, {}) for name in (*OF_Q, *OF_VALUES)), ("ppo", {"lstm_units": 6})], ids=str
)
def test_one_observation_gives_one_row(name, options):
    policy = trained(name, **options)
    arguments = given(policy)
    one = estimates(policy, *(part[3] for part in arguments))
    assert one.shape == ((2,) if name in OF_Q else ())
    np.testing.assert_allclose(one, estimates(policy, *arguments)[3], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", OF_VALUES)
def test_values_are_those_of_the_network(name):
    policy = trained(name)
    values = policy.values(OBSERVATIONS)
    assert (values.shape, values.dtype) == ((9,), np.float32)
    np.testing.assert_array_equal(values, policy.policy.values(OBSERVATIONS))


@pytest.mark.parametrize(
    ("name", "options"), [*((name, {}) for name in NORMALISING), ("impala", {"lstm_units": 6})], ids=str
)
def test_normalised_rewards_are_undone(name, options):
    policy = trained(name, {"normalise_rewards": True}, **options)
    all_returns = [one.returns for one in policy.module.modules() if isinstance(one, ObservationReader)]
    found = []
    for deviation in (1.0, 7.0):
        with torch.no_grad():
            for returns in all_returns:
                returns.variance.fill_(deviation**2)
        assert reward_deviation(policy.module) == pytest.approx(deviation, rel=1e-3)
        found.append(estimates(policy, *given(policy)))
    np.testing.assert_allclose(found[1], 7 * found[0], rtol=1e-3)


def test_the_rescaling_of_r2d2_is_undone():
    policy = trained("r2d2")
    observations, state = given(policy)
    raw = policy.policy.q_and_memory(observations, state)[0]
    q = policy.q_values(observations, state)
    np.testing.assert_allclose(rescale(torch.from_numpy(q), policy.config.rescale_epsilon).numpy(), raw, rtol=1e-4)
    assert np.abs(q - raw).max() > 0.01


def test_rainbow_shows_the_means_of_its_distributions():
    policy = trained("rainbow", head="categorical", v_min=-3.0, v_max=5.0, num_atoms=9)
    with torch.no_grad():
        logits = policy.module.head(policy.module.torso(torch.from_numpy(OBSERVATIONS))).numpy().astype(np.float64)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    np.testing.assert_allclose(policy.q_values(OBSERVATIONS), probabilities @ np.linspace(-3, 5, 9), rtol=1e-4)


@pytest.mark.parametrize("name", [*OTHERS, *OF_VALUES])
def test_a_policy_without_q_values_is_refused_with_those_that_have_them(name):
    with pytest.raises(TypeError, match=f"the policy of {name} has no q-values: those of dqn, .* r2d2 have them"):
        trained(name).q_values(OBSERVATIONS)


@pytest.mark.parametrize("name", [*OTHERS, *OF_Q])
def test_a_policy_without_values_is_refused_with_those_that_have_them(name):
    with pytest.raises(TypeError, match=f"the policy of {name} has no values: those of ppo and impala have them"):
        trained(name).values(OBSERVATIONS)


def test_a_state_is_needed_by_policies_that_have_one_only():
    recurrent, plain = trained("r2d2"), trained("dqn")
    with pytest.raises(TypeError, match=r"has a state: call policy.q_values\(observation, state\)"):
        recurrent.q_values(OBSERVATIONS)
    with pytest.raises(ValueError, match=r"state has shape \(3,\), and must be"):
        recurrent.q_values(OBSERVATIONS[0], np.zeros(3, np.float32))
    with pytest.raises(TypeError, match="the policy of dqn has no state"):
        plain.q_values(OBSERVATIONS, recurrent.initial_state(9))
    for call in (lambda: plain.step(OBSERVATIONS, np.zeros((9, 3), np.float32)), plain.initial_state):
        with pytest.raises(TypeError, match=r"the policy of dqn has no state: call policy\(observation\)"):
            call()
    with pytest.raises(ValueError, match=r"observations have shape \(3,\)"):
        plain.q_values(np.zeros(3, np.float32))


@pytest.mark.parametrize(
    ("name", "options"),
    [("ppo", {}), ("impala", {}), ("ppo", {"lstm_units": 6}), ("impala", {"lstm_units": 6})],
    ids=str,
)
def test_probabilities_are_those_of_drawn_actions(name, options):
    policy = trained(name, **options)
    one = [part[:1] for part in given(policy)]
    found = policy.probabilities(*one)
    assert (found.shape, found.dtype) == ((1, 2), np.float32)
    assert 0.05 < found[0, 1] < 0.95
    many = [np.repeat(part, 4000, axis=0) for part in one]
    actions = policy.step(*many, greedy=False)[0] if options else policy(*many, greedy=False)
    sigma = np.sqrt(found[0, 0] * found[0, 1] / 4000)
    assert abs(actions.mean() - found[0, 1]) < 5 * sigma
    assert policy.probabilities(*(part[0] for part in one)).shape == (2,)


def test_probabilities_of_vectors_of_choices_are_those_of_each_part():
    policy = trained("ppo")
    spec = dataclasses.replace(policy.spec, action_sizes=(2, 3), num_actions=6)
    policy = dataclasses.replace(policy, spec=spec, policy=policy.agent.make_policy(spec, policy.config))
    found = policy.probabilities(OBSERVATIONS)
    assert found.shape == (9, 5)
    np.testing.assert_allclose(found[:, :2].sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(found[:, 2:].sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("name", [*OTHERS, *OF_Q])
def test_a_policy_without_probabilities_is_refused(name):
    with pytest.raises(TypeError, match=f"the policy of {name} has no probabilities: those of ppo and impala"):
        trained(name).probabilities(OBSERVATIONS)


def test_a_continuous_policy_has_no_probabilities():
    policy = trained("ppo", env_id="Pendulum-v1")
    assert policy.values(OBSERVATIONS[:, :3]).shape == (9,)
    with pytest.raises(TypeError, match=r"has no probabilities: those of ppo .* for discrete actions"):
        policy.probabilities(OBSERVATIONS[:, :3])
