"""R2D2's network, the sequences that its actors send, and a task that needs a memory."""

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import reverie  # noqa: E402
from reverie.agents.core import Stopwatch  # noqa: E402
from reverie.agents.env_settings import EnvSettings  # noqa: E402
from reverie.agents.environments import UnsupportedEnvironmentError, describe, make_one  # noqa: E402
from reverie.agents.r2d2 import agent as r2d2  # noqa: E402
from reverie.agents.r2d2.networks import make_network  # noqa: E402

SPEC = describe("CartPole-v1")
CONFIG = dataclasses.replace(
    r2d2.load_preset("CartPole-v1").config,
    num_actors=1,
    envs_per_actor=1,
    hidden=(8,),
    lstm_units=6,
    sequence_length=4,
    sequence_period=2,
    burn_in=3,
    n_step=2,
    learning_starts=1,
    batch_size=8,
)
LSTM = ("lstm.weight_ih", "lstm.weight_hh", "lstm.bias_ih", "lstm.bias_hh")


@pytest.fixture
def harness():
    """A function that makes a learner and an actor on a table without a ratio."""
    closing = []

    def make(env_id="CartPole-v1", seed=0, settings=None, **changes):
        config, spec = dataclasses.replace(CONFIG, **changes), describe(env_id, settings)
        server = reverie.Server(r2d2.make_tables(spec, config, seed=seed), listen=False)
        client = server.client()
        client.configure("replay", rate_limiter=reverie.rate_limiters.MinSize(1))
        learner = r2d2.make_learner(spec, config, client, seed=seed, watch=Stopwatch())
        actor = r2d2.make_actor(spec, config, client, learner, index=0, seed=seed, watch=Stopwatch())
        closing.extend([actor.close, server.stop])
        return client, learner, actor, config

    yield make
    for close in closing:
        close()


def sequences(seed=0, count=5, rows=8, units=6):
    """A batch of sequences of CartPole whose first three rows are padding in the first sequence."""
    rng = np.random.default_rng(seed)
    mask = np.ones((count, rows), bool)
    mask[0, :3] = False
    data = {
        "obs": rng.normal(size=(count, rows, 4)).astype(np.float32),
        "last_action": rng.integers(-1, 2, size=(count, rows)),
        "state": rng.normal(size=(count, 2, units)).astype(np.float32) * 0.5,
        "mask": mask,
    }
    data["state"][0] = 0.0
    return {name: torch.from_numpy(one) for name, one in data.items()}


def gradients(net, q):
    grads = torch.autograd.grad(q.square().sum(), [net.get_parameter(name) for name in LSTM])
    return torch.cat([one.flatten() for one in grads])


def rows_from(data, first):
    return {name: one if name == "state" else one[:, first:] for name, one in data.items()}


def test_single_steps_compute_what_the_fused_function_does():
    net = make_network(SPEC, CONFIG, seed=1, trainable=True).module
    data = sequences()
    unrolled = net.unroll(data, 0)
    state = data["state"].unbind(1)
    for t in range(8):
        q, state = net(data["obs"][:, t], net.one_hot(data["last_action"][:, t]), state)
        torch.testing.assert_close(q, unrolled[:, t], rtol=1e-4, atol=1e-5)


def test_the_burn_in_moves_the_state_and_passes_no_gradients():
    net = make_network(SPEC, CONFIG, seed=1, trainable=True).module
    data = sequences()
    state = net.burn_in(data["obs"][:, :3], data["last_action"][:, :3], data["mask"][:, :3], data["state"].unbind(1))
    assert (torch.stack(state, dim=1)[1:] != data["state"][1:]).any(dim=2).any(dim=1).all()
    warm, constant = net.unroll(data, 3), net.unroll(rows_from(data, 3) | {"state": torch.stack(state, dim=1)}, 0)
    through = net.unroll(data, 0)[:, 3:]
    torch.testing.assert_close(warm, constant)
    torch.testing.assert_close(warm[1:], through[1:], rtol=1e-4, atol=1e-5)
    own, fixed, other = (gradients(net, q[1:]) for q in (warm, constant, through))
    torch.testing.assert_close(own, fixed)
    assert (own - other).norm() > 0.01 * other.norm()


def test_padding_before_an_episode_does_not_move_the_state():
    net = make_network(SPEC, CONFIG, seed=1, trainable=True).module
    data = sequences()
    before = net.unroll(data, 3)
    data["obs"][0, :3], data["last_action"][0, :3] = 1e3, 1
    assert torch.equal(net.unroll(data, 3), before)
    data["mask"][0, :3] = True
    assert (net.unroll(data, 3)[0] != before[0]).any()


class Watched:
    """States and q-values of an actor's policy, by episode and step of a counting environment."""

    def __init__(self, actor):
        self.states, self.q = {}, {}
        compute = actor._policy.q_and_memory

        def q_and_memory(obs, state):
            q, memory = compute(obs, state)
            for i, (episode, step) in enumerate(obs.astype(int).tolist()):
                self.states.setdefault((episode, step), state[i].copy())
                self.q.setdefault((episode, step), q[i].copy())
            return q, memory

        actor._policy.q_and_memory = q_and_memory


def items_of(client):
    """Every item of the table by its episode and first step to learn from."""
    found, size = {}, client.info().tables["replay"].current_size
    while len(found) < size:
        batch = client.sample_batch("replay", 64, timeout=0)
        for i, key in enumerate(batch.info.key.tolist()):
            found[key] = ({name: one[i] for name, one in batch.data.items()}, batch.info.priority[i])
    firsts = {}
    for data, priority in found.values():
        episode, step = data["obs"][3].astype(int).tolist()  # the first row after the burn-in
        assert (episode, step) not in firsts
        firsts[episode, step] = (data, priority)
    return firsts


def test_an_actors_items_are_those_of_a_brute_force_over_its_episodes(harness, counting_env):
    env_id, length, terminates = counting_env
    client, _, actor, config = harness(env_id, priority_exponent=0.3)
    watched = Watched(actor)
    for _ in range(3 * (length + 1)):
        actor.act()
    actor.settle()
    items = items_of(client)
    # Sequences that begin every 2 steps: 0 and 2 are whole, the one of step 4 has the 3 steps to the end.
    assert set(items) == {(episode, first) for episode in range(3) for first in (0, 2, 4)}
    for (episode, first), (data, priority) in items.items():
        steps = np.arange(first - 3, first + 5)
        real = (steps >= 0) & (steps < length)
        assert (data["mask"] == real).all()
        shown = np.clip(steps, 0, length)
        assert (data["obs"][steps >= 0, 1] == shown[steps >= 0]).all()
        assert (data["obs"][steps >= 0, 0] == episode).all()
        assert (data["obs"][steps < 0] == 0).all()
        assert (data["reward"][real] == steps[real] + 1).all()
        over = terminates & (steps[real] == length - 1)
        assert data["discount"][real] == pytest.approx(np.where(over, 0.0, config.discount))
        start = max(first - 3, 0)
        h_and_c = watched.states[episode, start][:12].reshape(2, 6)
        assert (data["state"] == (0 if first < 3 else h_and_c)).all()
        assert (data["state"] != 0).any() == (first > 3)
        last_actions = data["last_action"][real]
        assert (last_actions[1:] == data["action"][real][:-1]).all()
        one_hot = watched.states[episode, start][12:]
        assert (one_hot == np.eye(3)[last_actions[0]] if start else one_hot == 0).all()
        assert priority == pytest.approx(expected_priority(watched, data, episode, first, length, config), rel=1e-4)


def expected_priority(watched, data, episode, first, length, config):
    """The priority that the actor's q-values give by the paper's formulas in float64."""
    eps, last = config.rescale_epsilon, min(first + 4, length)
    errors = []
    for t in range(first, last):
        end = min(t + config.n_step, last)
        rewards = sum(config.discount ** (k - t) * (k + 1) for k in range(t, end))
        product = np.prod([float(data["discount"][3 + k - first]) for k in range(t, end)])
        q_end = watched.q[episode, end].astype(np.float64).max() if product else 0.0
        v = np.sign(q_end) * (((np.sqrt(1 + 4 * eps * (abs(q_end) + 1 + eps)) - 1) / (2 * eps)) ** 2 - 1)
        target = rewards + product * v
        target = np.sign(target) * (np.sqrt(abs(target) + 1) - 1) + eps * target
        errors.append(abs(target - watched.q[episode, t][data["action"][3 + t - first]]))
    return config.priority_eta * max(errors) + (1 - config.priority_eta) * np.mean(errors) + config.priority_eps


@pytest.mark.long
@pytest.mark.parametrize("units", [6, 64])
def test_sequences_share_their_steps_and_need_less_memory_than_estimated(harness, units):
    changes = {"lstm_units": units, "sequence_length": 10, "sequence_period": 5, "burn_in": 10, "envs_per_actor": 4}
    client, _, actor, config = harness(**changes)
    for _ in range(400):
        actor.act()
    actor.settle()
    table = client.info().tables["replay"]
    estimated = next(iter(r2d2.memory(SPEC, config).values())) / config.capacity
    assert table.current_size > 100
    assert table.size_bytes / table.current_size < estimated
    # Stored apart, an item has 21 rows of obs, two actions, reward, discount, version and mask, and its state.
    assert table.size_bytes / table.current_size < 21 * (16 + 8 + 8 + 4 + 4 + 8 + 1) + 8 * units


def test_the_running_statistics_are_of_the_steps_and_not_of_padding(harness):
    settings = EnvSettings(normalise_observations=True, normalise_rewards=True)
    _client, learner, actor, _ = harness(settings=settings)
    for _ in range(60):
        actor.act()
    actor.settle()
    seen, draw = [], learner._draw

    def drawing():
        seen.append(draw())
        return seen[-1]

    learner._draw = drawing
    learner.learn()
    data = seen[0].data
    steps = data["obs"][data["mask"]].double()
    reader = learner._online.module.torso[0]
    assert reader.moments.count.item() == reader.returns.count.item() == len(steps) < data["mask"].numel()
    torch.testing.assert_close(reader.moments.mean.double(), steps.mean(dim=0), rtol=1e-5, atol=1e-6)
    actor.act()
    assert actor._sequences[0].deviation == pytest.approx(float(reader.returns.deviation()))
    assert actor._sequences[0].deviation != 1.0


def test_first_priorities_count_at_most_ten_deviations_of_a_reward_as_the_learners_do(harness):
    client, _, actor, config = harness()
    for sequences in actor._sequences:
        sequences.deviation = 1e-3  # of rewards of 1
    for _ in range(30):
        actor.act()
    actor.settle()
    td = client.sample_batch("replay", 64, timeout=0).info.priority / 1e-3
    bounded = (10.0 * config.n_step + 1.0) ** 0.5
    assert 1.0 < td.max() < bounded < (1000.0 + 1.0) ** 0.5 - 1.0


def test_a_wrapper_keeps_the_named_entries_of_observations():
    spec = describe("CartPole-v1", r2d2.load_preset("CartPole-v1", "no-velocities").environment)
    assert spec.obs_shape == (2,)
    hidden, whole = make_one(spec), make_one("CartPole-v1")
    pairs = [(hidden.reset(seed=3)[0], whole.reset(seed=3)[0])]
    pairs += [(hidden.step(1)[0], whole.step(1)[0]) for _ in range(5)]
    assert all((kept == full[[0, 2]]).all() for kept, full in pairs)
    for entries in ([4], [-1], []):
        with pytest.raises(UnsupportedEnvironmentError, match="must be some of 0 to 3"):
            describe("CartPole-v1", EnvSettings(wrappers=(f"reverie.agents.partial:KeepEntries(entries={entries})",)))


def test_an_episode_shorter_than_a_sequence_is_learnt_from(harness):
    client, _, actor, _ = harness("ReverieCountingTerminated-v0", sequence_length=9, sequence_period=9)
    for _ in range(8):
        actor.act()
    actor.settle()
    ((data, _),) = items_of(client).values()
    assert data["mask"].tolist() == [False] * 3 + [True] * 7 + [False] * 3


def test_the_state_is_zeros_at_the_beginning_of_each_episode_and_goes_on_with_the_action_that_was_taken(
    harness, counting_env
):
    env_id, length, _ = counting_env
    _, _, actor, _ = harness(env_id)
    watched = Watched(actor)
    for _ in range(2 * (length + 1)):
        actor.act()
    for episode in (0, 1):
        assert (watched.states[episode, 0] == 0).all()
        for step in range(1, length):
            assert watched.states[episode, step][12:].sum() == 1
            assert (watched.states[episode, step][:12] != watched.states[episode, step - 1][:12]).any()


def test_the_learners_priorities_reach_the_table(harness):
    client, learner, actor, _ = harness()
    for _ in range(60):
        actor.act()
    actor.settle()
    drawn, update = [], learner._update

    def noting(data, weights):
        drawn.append(update(data, weights))
        return drawn[-1]

    learner._update = noting
    keys = []
    sample = client.sample_batch

    class Tape:
        def __getattr__(self, name):
            return getattr(client, name)

        def sample_batch(self, *args, **kwargs):
            batch = sample(*args, **kwargs)
            keys.append(batch.info.key)
            return batch

    learner._client = Tape()
    learner.learn()
    stored = client.get("replay", keys[0]).info.priority
    new = dict(zip(keys[0].tolist(), drawn[0][0].double().tolist(), strict=True))
    assert stored.tolist() == [pytest.approx(new[key]) for key in keys[0].tolist()]


def test_the_target_network_is_a_copy_after_each_period(harness, networks_of):
    _, learner, actor, _ = harness(target_period=3)
    for _ in range(60):
        actor.act()
    actor.settle()
    first = networks_of(learner)["target"]
    for update in range(1, 7):
        learner.learn()
        now = networks_of(learner)
        assert (now["target"] == now["online"]).all() == (update % 3 == 0)
        assert (now["target"] == first).all() == (update < 3)


def test_the_rungs_of_all_actors_together_are_apexs_ladder(harness):
    client, learner, _, config = harness(num_actors=3, envs_per_actor=2, epsilon_base=0.4, epsilon_alpha=7.0)
    made = [r2d2.make_actor(SPEC, config, client, learner, index=i, seed=i, watch=Stopwatch()) for i in range(3)]
    epsilons = np.concatenate([one.epsilons for one in made])
    for one in made:
        one.close()
    assert epsilons == pytest.approx([0.4 ** (1 + 7 * i / 5) for i in range(6)])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sequence_period": 5}, "sequence_period is 5, and must be at most the sequence_length of 4"),
        ({"n_step": 5}, "n_step is 5, and must be at most the sequence_length of 4"),
        ({"burn_in": -1}, "burn_in is -1"),
        ({"priority_eta": 1.1}, "priority_eta is 1.1"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **changes)
