"""IMPALA with an LSTM and with frames: the states of unrolls, what the learner computes of them, and what it learns."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie.agents.core import Stopwatch  # noqa: E402
from reverie.agents.env_settings import EnvSettings  # noqa: E402
from reverie.agents.environments import EnvSpec, describe  # noqa: E402
from reverie.agents.impala import agent as impala  # noqa: E402
from reverie.agents.impala.loss import impala_loss, vtrace  # noqa: E402
from reverie.runners import train  # noqa: E402

PRESET = impala.load_preset("CartPole-v1", "no-velocities")
CONFIG = dataclasses.replace(
    PRESET.config,
    num_actors=1,
    envs_per_actor=3,
    batch_size=3,
    queue_capacity=5,
    hidden=(8,),
    lstm_units=6,
    unroll_length=19,
)
PONG = EnvSpec("ALE/Pong-v5", (4, 84, 84), "uint8", 6, "Discrete(6)", None, frame_stack=4, reward_bound=1.0)


@pytest.fixture
def harness(make_unroll_harness):
    def make(env_id="CartPole-v1", environment=None, **changes):
        return make_unroll_harness(impala, dataclasses.replace(CONFIG, **changes), env_id, environment)

    return make


def step_by_step(module, obs, first, state):
    """Outputs `[T, O]`, values `[T]` and the last state of rows `[T, ...]`, one after the other."""
    outputs, values, state = [], [], torch.from_numpy(state)[None]
    with torch.no_grad():
        for row, begins in zip(torch.from_numpy(obs), first, strict=True):
            out, value, state = module(row[None], torch.zeros_like(state) if begins else state)
            outputs.append(out[0])
            values.append(value[0])
    return torch.stack(outputs), torch.stack(values), state[0].numpy()


def test_an_unroll_has_the_state_before_it_and_probabilities_of_the_states_that_its_steps_had(harness, counting_env):
    """Unrolls of 19 rows over episodes of 8, so that they begin, and end, within episodes and between them."""
    env_id, length, _ = counting_env
    one = harness(env_id)
    module = one.learner._network.module
    with torch.no_grad():  # a policy far from uniform, so that probabilities of another state would be seen
        module.head.weight.mul_(500.0)
        one.learner.version = 1
    before = [np.zeros(12, np.float32)] * 3
    for unroll in range(3):
        data = one.batch()
        assert "state_after" not in data
        step = (unroll * 19 + np.arange(19)) % (length + 1)
        for row in range(3):
            assert data["first"][row].tolist() == (step == 0).tolist()
            assert data["state"][row] == pytest.approx(before[row], abs=1e-6)
            outputs, _, after = step_by_step(module, data["obs"][row, :-1], data["first"][row], before[row])
            log_mu = torch.log_softmax(outputs, dim=1).numpy()[np.arange(19), data["action"][row]]
            assert data["log_mu"][row] == pytest.approx(log_mu, abs=1e-4)
            before[row] = after if step[-1] != length else np.zeros_like(after)
        assert np.abs(data["state"]).max() > 0 or unroll == 0


def expected_loss(module, data, config, first, state, *, after=None):
    """The learner's loss of a batch, from states computed step by step; V-trace is the same as without an LSTM."""
    logits, values = [], []
    for row in range(len(state)):
        begins = np.append(first[row], False)
        out, value, _ = step_by_step(module, data["obs"][row], begins, state[row])
        logits.append(out[:-1])
        values.append(value if after is None else torch.cat([value[:-1], after[row : row + 1]]))
    logits, values = torch.stack(logits), torch.stack(values)
    actions, steps = torch.from_numpy(data["action"]), torch.from_numpy(data["is_step"])
    log_pi = torch.log_softmax(logits, dim=2).gather(2, actions[:, :, None]).squeeze(2)
    targets = vtrace(
        log_pi - torch.from_numpy(data["log_mu"]),
        torch.from_numpy(data["reward"]),
        torch.from_numpy(data["discount"]),
        config.trace_lambda * (1.0 - torch.from_numpy(data["ended"]).float()),
        values,
        rho_bar=config.rho_bar,
        c_bar=config.c_bar,
    )
    return impala_loss(
        logits[steps],
        values[:, :-1][steps],
        actions[steps],
        targets.v_s[steps],
        targets.advantage[steps],
        value_coefficient=config.value_coefficient,
        entropy_coefficient=config.entropy_coefficient,
    ).loss.item()


def recorded(one):
    """The next batch of a harness whose networks have states that matter, kept for its learner to draw once more."""
    with torch.no_grad():
        for name, parameter in one.learner._network.module.named_parameters():
            if name.startswith(("head", "value_head", "lstm")):
                parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name))))
    one.learner.version = 1
    one.batch()
    data = one.batch()
    one.learner._client = SimpleNamespace(sample_batch=lambda *args, **kwargs: SimpleNamespace(data=data))
    return data


def test_the_learners_loss_is_that_of_the_states_step_by_step_with_zeros_where_episodes_begin(harness, counting_env):
    one = harness(counting_env[0], unroll_length=17, max_grad_norm=100.0)
    data = recorded(one)
    assert data["first"][:, 1:].any()
    assert (data["ended"].sum(axis=1) >= 2).all()
    assert np.abs(data["state"]).max() > 0
    module = one.learner._network.module
    expected = expected_loss(module, data, one.config, data["first"], data["state"])
    others = {
        "no resets": expected_loss(module, data, one.config, np.zeros_like(data["first"]), data["state"]),
        "no stored state": expected_loss(module, data, one.config, data["first"], np.zeros_like(data["state"])),
        "no value after": expected_loss(module, data, one.config, data["first"], data["state"], after=torch.zeros(3)),
    }
    one.learner.learn()
    assert one.learner.metrics()["loss"] == pytest.approx(expected, rel=1e-5)
    for what, loss in others.items():
        assert loss != pytest.approx(expected, rel=1e-4), what


def test_the_value_after_an_unroll_is_not_used_where_another_episode_begins_there(harness, counting_env):
    env_id, length, _ = counting_env
    one = harness(env_id, unroll_length=2 * (length + 1))
    data = recorded(one)
    assert not data["is_step"][:, -1].any()
    module = one.learner._network.module
    expected = expected_loss(module, data, one.config, data["first"], data["state"], after=torch.full((3,), 1e6))
    one.learner.learn()
    assert one.learner.metrics()["loss"] == pytest.approx(expected, rel=1e-5)


def test_the_learner_finds_the_policy_of_unrolls_without_lag_where_the_actor_left_it(harness):
    one = harness()
    with torch.no_grad():
        one.learner._network.module.head.weight.mul_(500.0)
    for _ in range(3):
        one.fill()
        one.learner.learn()
        assert one.learner.metrics()["kl"] == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("change", [{"lstm_units": 5}, {"shared_layers": True, "lstm_units": 0}], ids=str)
def test_each_option_changes_the_network_and_memory_counts_it(change):
    spec = describe("CartPole-v1")
    plain, changed = (dataclasses.replace(CONFIG, **{"lstm_units": 0, **one}) for one in ({}, change))
    sizes = [impala.make_policy(spec, one)._network.flat.numel() for one in (plain, changed)]
    hidden = 4 * 8 + 8
    if "shared_layers" in change:
        assert sizes[0] - sizes[1] == hidden
        return
    assert sizes[1] == hidden + 4 * 5 * (8 + 5 + 2) + 2 * (5 + 1) + (5 + 1)
    counted = [impala.memory(spec, one)["networks and optimiser"] for one in (plain, changed)]
    assert counted[1] - counted[0] == 4 * 4 * 4 * 5 * (8 + 5 + 2)
    assert all(impala.memory(spec, changed)[part] > size for part, size in impala.memory(spec, plain).items())


def test_a_negative_width_is_refused_by_name():
    with pytest.raises(ValueError, match="lstm_units is -1, and must not be below 0"):
        dataclasses.replace(CONFIG, lstm_units=-1)


@pytest.mark.parametrize("lstm_units", [0, 256])
def test_the_preset_of_games_reads_frames_by_one_convolutional_torso(lstm_units):
    config = dataclasses.replace(impala.load_preset("ALE/Pong-v5").config, lstm_units=lstm_units)
    impala.check(PONG)
    policy = impala.make_policy(PONG, config)
    convolutions = [tuple(one.shape) for one in policy.module.parameters() if one.ndim == 4]
    assert convolutions == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3)], "policy and value share them"
    frames = np.random.default_rng(0).integers(0, 256, (5, *PONG.obs_shape), dtype=np.uint8)
    drawn, state = policy.drawn_from(frames, policy.initial_state(5), np.random.default_rng(0))
    assert drawn.actions.shape == drawn.values.shape == drawn.log_pi.shape == (5,)
    assert state.shape == (5, 2 * lstm_units)
    assert impala.memory(PONG, config)["networks and optimiser"] >= 4 * policy._network.flat.numel() * 7
    unroll = config.unroll_length + 1
    in_queue = (config.queue_capacity + 32) * unroll * 4 * 84 * 84
    assert impala.memory(PONG, config)[f"{config.queue_capacity} unrolls in the queue, and the actors' own"] > in_queue


@pytest.mark.parametrize("lstm_units", [0, 16])
def test_one_update_from_unrolls_of_frames_moves_every_layer(lstm_units):
    config = dataclasses.replace(
        impala.load_preset("ALE/Pong-v5").config, hidden=(8,), unroll_length=3, batch_size=2, lstm_units=lstm_units
    )
    rng = np.random.default_rng(0)
    data = {
        "obs": rng.integers(0, 256, (2, 4, *PONG.obs_shape), dtype=np.uint8),
        "action": rng.integers(6, size=(2, 3)),
        "log_mu": np.log(rng.uniform(0.1, 0.3, (2, 3))).astype(np.float32),
        "reward": np.ones((2, 3), np.float32),
        "discount": np.full((2, 3), 0.99, np.float32),
        "ended": np.array([[False, True, False]] * 2),
        "is_step": np.ones((2, 3), bool),
        "weights_version": np.zeros((2, 3), np.int64),
        "first": np.array([[False, False, True]] * 2),
        "state": rng.normal(size=(2, 2 * lstm_units)).astype(np.float32),
    }
    client = SimpleNamespace(sample_batch=lambda *args, **kwargs: SimpleNamespace(data=data))
    learner = impala.make_learner(PONG, config, client, seed=1, watch=Stopwatch())
    module = learner._network.module
    before = {name: one.detach().clone() for name, one in module.named_parameters()}
    learner.learn()
    assert {name for name, one in module.named_parameters() if torch.equal(one, before[name])} == set()


@pytest.mark.long
def test_the_policy_remembers_the_first_observation_until_the_last_step(harness):
    """Its twin reads each observation alone, and stays at chance."""
    settings = {"envs_per_actor": 8, "batch_size": 8, "queue_capacity": 15, "unroll_length": 20}
    found = []
    for lstm_units in (16, 0):
        one = harness("ReverieRecall-v0", lstm_units=lstm_units, hidden=(16,), learning_rate=1e-2, **settings)
        one.learn(40)
        one.actor.drain_returns()
        one.learn(10)
        found.append(np.mean(one.actor.drain_returns()))
    remembering, forgetting = found
    assert remembering > 0.75
    assert 0.35 < forgetting < 0.65, "of two actions one is right"


@pytest.mark.long
@pytest.mark.parametrize("lstm_units", [0, 16])
def test_actions_that_depend_on_stacks_of_images_are_learnt(lstm_units, harness):
    settings = {"envs_per_actor": 8, "batch_size": 8, "queue_capacity": 15, "unroll_length": 16}
    rates = {"learning_rate": 4e-3, "discount": 0.0, "entropy_coefficient": 0.01}
    network = {"shared_layers": True, "hidden": (32,), "lstm_units": lstm_units}
    one = harness("ReverieSide-v0", environment=EnvSettings(frame_stack=2), **settings, **rates, **network)
    one.learn(50)
    one.actor.drain_returns()
    one.learn(5)
    assert np.mean(one.actor.drain_returns()) > 7.0, "of 8; a policy that sees nothing has 4"


@pytest.mark.slow
def test_impala_with_an_lstm_reaches_475_on_cartpole_without_velocities():
    result = train(impala, "CartPole-v1", preset="no-velocities", seed=1)
    assert result.confirmed
    assert result.topology.env.obs_shape == (2,)
