import dataclasses

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

torch = pytest.importorskip("torch")

import reverie  # noqa: E402
from reverie import agents  # noqa: E402
from reverie.agents.apex_dpg import agent as apex_dpg  # noqa: E402
from reverie.agents.apex_dpg.loss import critic_loss, policy_loss  # noqa: E402
from reverie.agents.core import Stopwatch  # noqa: E402
from reverie.agents.env_settings import EnvSettings  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402

PENDULUM = describe("Pendulum-v1")
CONFIG = apex_dpg.load_preset("Pendulum-v1").config


def of_ten_steps(num_envs):
    """Episodes that are cut off after ten steps, whose last observation is in the info of their last step."""
    made = [lambda: gymnasium.make("Pendulum-v1", max_episode_steps=10)] * num_envs
    return SyncVectorEnv(made, autoreset_mode=AutoresetMode.SAME_STEP)


def tensors(*arrays):
    return [torch.tensor(a) for a in arrays]


@pytest.fixture
def harness(make_harness):
    """The fixture `make_harness` with the Pendulum preset, and changes to it."""
    return lambda **changes: make_harness(apex_dpg, CONFIG, "Pendulum-v1", **{"learning_starts": 200, **changes})


def test_a_hand_worked_batch_gives_the_critics_loss_and_priorities():
    # errors: 1 + 0.9 * 2 - 0.5 = 2.3 and -1 - 1 = -2; half the mean of 1 * 5.29 and 0.5 * 4
    batch = tensors([0.5, 1.0], [1.0, -1.0], [0.9, 0.0], [2.0, 7.0], [1.0, 0.5])
    out = critic_loss(*batch, priority_eps=0.01)
    clipped = critic_loss(*batch, priority_eps=0.01, priority_clip=2.1)
    assert (clipped.loss, clipped.priorities.tolist()) == (out.loss, pytest.approx([2.11, 2.01]))
    assert out.loss.item() == pytest.approx((5.29 + 2) / 4)
    assert out.priorities.tolist() == pytest.approx([2.31, 2.01])


def test_the_policys_gradient_is_that_of_q_clipped_element_by_element():
    actions = torch.zeros(2, 3, requires_grad=True)
    dq_da = torch.tensor([[0.5, -3.0, 2.0], [0.1, 0.0, -0.2]])
    policy_loss(actions, dq_da, 1.0).backward()
    assert torch.equal(actions.grad, -torch.tensor([[0.5, -1.0, 1.0], [0.1, 0.0, -0.2]]) / 2)


def test_the_critics_gradient_is_that_of_finite_differences_and_none_reaches_the_target():
    rng = np.random.default_rng(0)
    q_tm1, q_t = (torch.tensor(rng.normal(size=6), requires_grad=True) for _ in range(2))
    r_t, discount_t, weights = tensors(rng.normal(size=6), rng.choice([0.0, 0.9], size=6), rng.uniform(size=6))

    def loss(q):
        return critic_loss(q, r_t, discount_t, q_t.detach(), weights, priority_eps=0.0).loss

    assert torch.autograd.gradcheck(loss, q_tm1, eps=1e-6, atol=1e-7)
    critic_loss(q_tm1, r_t, discount_t, q_t, weights, priority_eps=0.0).loss.backward()
    assert q_t.grad is None


@pytest.fixture
def acted(make_fake_replay):
    """A function that lets a lone actor act on a fake replay: the replay, the policy that acted."""

    def act(acts, **changes):
        replay = make_fake_replay(max_size=10 * acts, priority_exponent=0.6)
        config = dataclasses.replace(CONFIG, num_actors=1, envs_per_actor=2, n_step=2, **changes)
        learner = apex_dpg.make_learner(PENDULUM, config, replay, seed=1, watch=Stopwatch())
        actor = apex_dpg.make_actor(PENDULUM, config, replay, learner, index=0, seed=2, watch=Stopwatch())
        for _ in range(acts):
            actor.act()
        actor.close()
        policy = apex_dpg.make_policy(PENDULUM, config)
        policy.load(learner.latest(-1))
        return replay, policy

    return act


@pytest.mark.parametrize("priority_eps", [1e-6, 0.5])
def test_the_first_priorities_are_the_actors_own_td_errors(acted, priority_eps):
    """Expected priorities are computed from the network's values of the steps that the actor appended."""
    replay, policy = acted(30, priority_eps=priority_eps)
    columns = {name: column[: replay.inserts] for name, column in replay.columns.items()}
    start, end = columns["obs"], columns["next_obs"]
    _, taken = policy.values(start, policy.actions(start), columns["action"])
    bootstrap, _ = policy.values(end, policy.actions(end), policy.actions(end))
    expected = np.abs(columns["reward"] + columns["discount"] * bootstrap - taken) + priority_eps
    assert replay.raw[: replay.inserts] == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_a_truncated_episode_of_a_vector_that_resets_in_the_same_step_has_the_actors_td_error(make_harness):
    changes = {"num_actors": 1, "n_step": 1, "learning_starts": 400}
    client, learner, (actor,), config = make_harness(apex_dpg, CONFIG, of_ten_steps, **changes)
    policy = apex_dpg.make_policy(PENDULUM, config)
    policy.load(learner.latest(-1))
    for _ in range(25):
        actor.act()
    actor.settle()
    actor._writer.flush()
    items = client.query("replay")
    data = client.get("replay", items.key).data
    ends = data["next_obs"]
    _, taken = policy.values(data["obs"], policy.actions(data["obs"]), data["action"])
    bootstrap, _ = policy.values(ends, policy.actions(ends), policy.actions(ends))
    expected = np.abs(data["reward"] + data["discount"] * bootstrap - taken) + CONFIG.priority_eps
    assert len(items.key) == 24 * CONFIG.envs_per_actor, "those of two episodes among them"
    assert items.priority == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_td_errors_are_clipped_in_the_priorities_of_actors_and_learner(harness):
    eps, clip, first, new = 0.25, 0.0, [], []
    for _ in range(2):
        client, learner, (actor,), _ = harness(priority_clip=clip, priority_eps=eps, num_actors=1)
        for _ in range(40):
            actor.act()
        items = client.query("replay")
        first.append(items.priority)
        data = {name: torch.from_numpy(column) for name, column in client.get("replay", items.key).data.items()}
        new.append(learner._update(data, torch.ones(len(items.key)))[0].numpy())
        clip = float(np.median(first[0])) - eps
    for unclipped, clipped in (first, new):
        assert clipped == pytest.approx(np.minimum(unclipped - eps, clip) + eps, rel=1e-5)
        assert (unclipped > clip + eps).any()


@pytest.mark.parametrize(("name", "env_id"), [("apex-dqn", "CartPole-v1"), ("apex-dpg", "Pendulum-v1")])
def test_first_priorities_are_bounded_in_the_unit_of_the_values_as_the_learners_are(name, env_id):
    agent, deviation, clip, eps = agents.find(name), 20.0, 0.01, 0.5
    config = dataclasses.replace(agent.load_preset(env_id).config, num_actors=1, priority_clip=clip, priority_eps=eps)
    spec = describe(env_id, EnvSettings(normalise_rewards=True))
    (table,) = agent.make_tables(spec, config, seed=0)
    with reverie.Server([table.replace(rate_limiter=reverie.rate_limiters.MinSize(1))], listen=False) as server:
        client = server.client()
        learner = agent.make_learner(spec, config, client, seed=1, watch=Stopwatch())
        for reader in learner._statistics._readers:
            reader.returns.merge(torch.tensor([[0.0], [2 * deviation]]))
        actor = agent.make_actor(spec, config, client, learner, index=0, seed=2, watch=Stopwatch())
        for _ in range(30):
            actor.act()
        actor.settle()
        actor._writer.flush()
        assert client.query("replay").priority.max() == pytest.approx((clip + eps) * deviation)
        actor.close()


@pytest.mark.long
def test_actors_use_the_configured_noise_and_stay_within_the_bounds(acted):
    correlations = {}
    for theta in (1.0, 0.05):
        replay, policy = acted(400, noise_sigma=0.2, noise_theta=theta)
        rows = replay.writers[0].log
        noises = np.stack([row["action"] - policy.actions(row["obs"]) for row in rows])[:, :, 0]
        noises -= noises.mean(axis=0)
        correlations[theta] = (noises[1:] * noises[:-1]).sum() / (noises**2).sum()
    # Expected of neighbours: 0, within five sigma of 800 draws; 0.95, less for the mean that was subtracted.
    assert abs(correlations[1.0]) < 5 / 800**0.5
    assert correlations[0.05] > 0.7
    replay, _ = acted(50, noise_sigma=2.0)
    assert np.abs([row["action"] for row in replay.writers[0].log]).max() == 1


def test_the_weights_that_actors_get_are_the_learners_policy_and_critic(harness):
    _, learner, _, config = harness()
    policy = apex_dpg.make_policy(PENDULUM, config)
    policy.load(learner.latest(-1))
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    actions = policy.actions(obs)
    with torch.no_grad():
        expected = learner._policy.module(torch.from_numpy(obs))
        q = learner._critic.module(torch.from_numpy(obs), expected)[0]
    assert actions == pytest.approx(expected.numpy(), abs=1e-6)
    assert policy.values(obs, actions, actions)[0] == pytest.approx(q.numpy(), abs=1e-5)


def test_items_of_small_errors_leave_first(harness):
    client, _, _, config = harness(capacity=400, learning_starts=400)
    info = client.info().tables["replay"]
    assert info.remover_options.prioritized.priority_exponent == config.eviction_exponent == -0.4
    assert info.sampler_options.prioritized.priority_exponent == config.priority_exponent
    # 200 items of priority 1 and 200 of 1e-6, whose weight is 251 times as large: of 150 that leave, 1 to 2 are of the
    # first kind. By age, all of them would be.
    table = apex_dpg.make_tables(PENDULUM, dataclasses.replace(config, capacity=400, learning_starts=400), seed=1)[0]
    table = table.replace(name="t", rate_limiter=reverie.rate_limiters.MinSize(1))
    with reverie.Server([table], listen=False).client() as other:
        old = other.insert_batch("t", {"x": np.arange(400)}, np.where(np.arange(400) < 200, 1.0, 1e-6))
        other.insert_batch("t", {"x": np.arange(150)}, 1.0)
        left = [key for key in old.tolist() if holds(other, key)]
        gone = 400 - len(left)
        small = sum(not holds(other, key) for key in old[200:].tolist())
        assert gone >= 145  # a new item may leave itself, with a chance of less than 1 in 100
        assert small >= 0.9 * gone


def holds(client, key):
    try:
        client.get("t", [key])
    except reverie.UnknownKeyError:
        return False
    return True


def test_the_learners_priorities_reach_the_table(harness):
    client, learner, actors, config = harness()
    while not client.can_sample("replay", config.batch_size):
        for actor in actors:
            actor.act()
    learner.learn()
    metrics = learner.metrics()
    assert metrics["priorities_applied"] == config.batch_size
    assert client.info().tables["replay"].num_updates == config.batch_size


def test_the_targets_follow_only_every_target_period(harness, networks_of):
    client, learner, actors, config = harness(target_period=3)
    first = networks_of(learner)
    for update in range(3):
        while not client.can_sample("replay", config.batch_size):
            actors[0].act()
        now = networks_of(learner)
        assert (now["policy_target"] == first["policy_target"]).all(), update
        learner.learn()
    now = networks_of(learner)
    for name in ("policy", "critic"):
        assert (now[f"{name}_target"] == now[name]).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise_theta": 0.0}, r"noise_theta is 0.0, and must lie in \(0, 1\]"),
        ({"eviction_exponent": 0.4}, "eviction_exponent is 0.4, and must not be above 0"),
        ({"policy_hidden": ()}, r"policy_hidden is \(\), and must be widths of at least one layer"),
    ],
)
def test_wrong_settings_are_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **change)
