"""PPO with an LSTM: the states of unrolls, minibatches of sequences, and the policy outside of training."""

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import reverie  # noqa: E402
from reverie.agents import exports  # noqa: E402
from reverie.agents.env_settings import EnvSettings  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402
from reverie.agents.impala import agent as impala  # noqa: E402
from reverie.agents.layers import initialised  # noqa: E402
from reverie.agents.lstm import Lstm  # noqa: E402
from reverie.agents.policies import TrainedPolicy  # noqa: E402
from reverie.agents.policy_records import TrainingRun  # noqa: E402
from reverie.agents.ppo import agent as ppo  # noqa: E402
from reverie.runners import train  # noqa: E402

PRESET = ppo.load_preset("CartPole-v1", "no-velocities")
CONFIG = dataclasses.replace(
    PRESET.config, envs_per_actor=3, hidden=(8,), lstm_units=6, unroll_length=19, epochs=2, minibatch_size=19
)


@pytest.fixture
def harness(make_unroll_harness):
    def make(env_id="CartPole-v1", environment=None, **changes):
        return make_unroll_harness(ppo, dataclasses.replace(CONFIG, **changes), env_id, environment)

    return make


def test_sequences_with_beginnings_are_computed_as_step_by_step_with_a_state_of_zeros_at_each():
    lstm = initialised(lambda: Lstm(3, 5), 0)
    rng = torch.Generator().manual_seed(0)
    x, first = torch.randn(4, 9, 3, generator=rng), torch.rand(4, 9, generator=rng) < 0.25
    h, c = torch.randn(2, 4, 5, generator=rng)
    together = lstm.episodes(x, first, (h, c))
    assert first.any(dim=1).sum() > 1
    for t in range(9):
        h, c = (torch.where(first[:, t, None], 0.0, one) for one in (h, c))
        h, c = lstm.step(x[:, t], (h, c))
        assert torch.allclose(together[:, t], h, atol=1e-6)


def played(policy, obs, first, state):
    """Values of rows `[T, ...]` one after the other, and the state after them."""
    values = []
    for row, begins in zip(obs, first, strict=True):
        state = np.zeros_like(state) if begins else state
        drawn, state = policy.drawn_from(row[None], state, np.random.default_rng(0))
        values.append(float(drawn.values[0]))
    return values, state


def test_an_unroll_has_the_state_before_it_and_values_of_the_states_that_its_steps_had(harness, counting_env):
    env_id, length, _ = counting_env
    one = harness(env_id)
    policy = ppo.make_policy(one.spec, one.config)
    policy.load(one.learner.latest(-1))
    before = [np.zeros((1, 12), np.float32)] * 3
    for unroll in range(3):
        data = one.batch()
        t = unroll * 19 + np.arange(20)
        step, episode = t % (length + 1), t // (length + 1)
        for row in range(3):
            assert data["obs"][row, :, 1].tolist() == step[:19].tolist()
            assert data["first"][row].tolist() == (step[:19] == 0).tolist()
            assert data["state"][row] == pytest.approx(before[row][0], abs=1e-6)
            after = np.array([[episode[19], step[19]]], np.float32)
            begins = np.append(data["first"][row], step[19] == 0)
            values, _ = played(policy, np.concatenate([data["obs"][row], after]), begins, before[row])
            if step[19] == 0:  # after a reset comes another episode, whose value is not used
                values[-1] = data["value"][row, -1]
            assert data["value"][row] == pytest.approx(values, abs=1e-5)
            _, before[row] = played(policy, data["obs"][row], data["first"][row], before[row])
            if step[18] == length:
                before[row] = np.zeros_like(before[row])
        assert np.abs(data["state"]).max() > 0 or unroll == 0


def test_the_first_pass_over_a_batch_finds_the_policy_where_the_actor_left_it(harness):
    one = harness(epochs=1, minibatch_size=10**6)
    with torch.no_grad():  # a policy far from uniform, so that actions of other steps would be seen
        one.learner._network.module.head.weight.mul_(500.0)
    for _ in range(3):
        one.fill()
        one.learner.learn()
        metrics = one.learner.metrics()
        assert metrics["clipped"] == 0
        assert metrics["kl"] == pytest.approx(0, abs=1e-5)
        assert metrics["gradient_steps"] == 1


@pytest.mark.parametrize(("size", "parts"), [(19, 3), (38, 2), (1_000, 1), (1, 3)])
def test_a_minibatch_is_whole_unrolls_and_each_epoch_has_all_of_them(size, parts, harness, monkeypatch):
    one, seen = harness(minibatch_size=size, epochs=3), []
    unroll = one.learner._network.module.unroll
    monkeypatch.setattr(
        one.learner._network.module, "unroll", lambda obs, first, state: seen.append(obs) or unroll(obs, first, state)
    )
    one.fill()
    one.learner.learn()
    assert len(seen) == 3 * parts
    for epoch in range(3):
        obs = torch.cat(seen[epoch * parts : (epoch + 1) * parts])
        assert obs.shape == (3, 19, 4)
        assert len({tuple(one.flatten().tolist()) for one in obs}) == 3


def test_the_state_is_part_of_what_is_learnt_from(harness):
    """The same unrolls with other states before them give another update."""
    flats = []
    for factor in (1.0, 0.0):
        one = harness()
        one.fill()
        one.learner.learn()
        one.fill()
        sample = one.client.sample_batch

        class Client:
            def __init__(self, sample, factor):
                self.sample, self.factor = sample, factor

            def sample_batch(self, *args, **kwargs):
                batch = self.sample(*args, **kwargs)
                assert np.abs(batch.data["state"]).max() > 0
                batch.data["state"][:] *= self.factor
                return batch

        one.learner._client = Client(sample, factor)
        one.learner.learn()
        flats.append(one.learner.latest(-1).flat)
    assert (flats[0] != flats[1]).any()


@pytest.mark.long
@pytest.mark.parametrize(("agent", "env_id"), [(ppo, "CartPole-v1"), (ppo, "Pendulum-v1"), (impala, "CartPole-v1")])
def test_a_policy_with_a_state_is_exported_and_loaded_and_explores_from_its_state(agent, env_id, tmp_path):
    spec, config = describe(env_id), CONFIG
    if agent is impala:
        small = {"hidden": CONFIG.hidden, "lstm_units": CONFIG.lstm_units}
        config = dataclasses.replace(impala.load_preset(env_id).config, **small)
    policy = agent.make_policy(spec, config)
    generator = torch.Generator().manual_seed(0)
    for parameter in policy.module.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.3, generator=generator)
    whole = TrainedPolicy(
        agent, agent.name, spec, config, TrainingRun(0, 1, 1, None), policy, tmp_path, np.random.default_rng(0)
    )
    assert whole.recurrent
    assert exports.to_torchscript(whole, tmp_path / "policy.pt") < 1e-4
    again = reverie.load_policy(whole.save(tmp_path / "policy.safetensors"))
    state, other = whole.initial_state(4), whole.initial_state(4)
    rng = np.random.default_rng(1)
    for _ in range(5):
        obs = rng.normal(size=(4, *spec.obs_shape)).astype(np.float32)
        action, state = whole.step(obs, state)
        same, other = again.step(obs, other)
        assert (action == same).all()
    assert np.abs(state).max() > 0
    assert state.shape == (4, 12)
    drawn = {whole.step(obs[:1], state[:1], greedy=False)[0].tobytes() for _ in range(50)}
    assert len(drawn) > 1
    with pytest.raises(TypeError, match="has a state"):
        whole(obs)


def test_statistics_and_continuous_actions_work_with_states(harness):
    one = harness("Pendulum-v1", environment=EnvSettings(normalise_observations=True, normalise_rewards=True))
    for _ in range(2):
        one.fill()
        one.learner.learn()
    named = dict(one.learner._network.module.named_parameters())
    assert [one.item() for name, one in named.items() if name.endswith("moments.count")] == [2 * 3 * 19]


@pytest.mark.long
def test_the_policy_remembers_the_first_observation_until_the_last_step(harness):
    settings = {"lstm_units": 16, "learning_rate": 5e-3, "epochs": 8, "minibatch_size": 160, "anneal_updates": 0}
    one = harness("ReverieRecall-v0", envs_per_actor=8, unroll_length=20, **settings)
    for _ in range(60):
        one.fill()
        one.learner.learn()
    policy = ppo.make_policy(one.spec, one.config)
    policy.load(one.learner.latest(-1))
    state = policy.initial_state(2)
    for step in range(4):
        obs = np.array([[-1.0, 0.0], [1.0, 0.0]] if step == 0 else [[0.0, step / 4]] * 2, np.float32)
        actions, state = policy.step(obs, state)
    assert actions.tolist() == [0, 1]
    assert np.mean(one.actor.drain_returns()[-100:]) > 0.75, "without a memory it is 0.5"


@pytest.mark.slow
def test_ppo_with_an_lstm_reaches_475_on_cartpole_without_velocities():
    result = train(ppo, "CartPole-v1", preset="no-velocities", seed=1)
    assert result.confirmed
    assert result.topology.env.obs_shape == (2,)
