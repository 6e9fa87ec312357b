"""Munchausen's targets: by hand, in each agent that has them, and what they do to differences between actions."""

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import reverie  # noqa: E402
from reverie import agents  # noqa: E402
from reverie.agents.apex_dqn.loss import apex_dqn_loss  # noqa: E402
from reverie.agents.core import Stopwatch  # noqa: E402
from reverie.agents.cql.loss import cql_loss  # noqa: E402
from reverie.agents.dqn.learner import batch_loss  # noqa: E402
from reverie.agents.dqn.loss import dqn_loss  # noqa: E402
from reverie.agents.dqn.networks import make_network  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402
from reverie.agents.gorila.loss import dqn_gradient  # noqa: E402
from reverie.agents.munchausen import MunchausenSettings, soft_target, soft_value  # noqa: E402
from reverie.agents.rainbow.loss import quantile_loss, scalar_loss  # noqa: E402
from reverie.agents.value_distributions import fractions_of  # noqa: E402

AGENTS = ("dqn", "apex-dqn", "gorila", "rainbow", "cql")
SMALL = {"num_actors": 1, "envs_per_actor": 2, "learning_starts": 40, "batch_size": 16, "samples_per_insert": 16.0}
SOFT = {"munchausen": 0.9, "munchausen_temperature": 0.3, "munchausen_clip": -1.0}


def batch(seed=0, size=32, num_actions=3):
    """Values of observations, actions, rewards, discounts, and values of the next observations, in float64."""
    rng = np.random.default_rng(seed)
    q_tm1, q_t = rng.normal(size=(2, size, num_actions)) * 2
    return q_tm1, rng.integers(num_actions, size=size), rng.normal(size=size), rng.choice([0.0, 0.9], size=size), q_t


def log_softmax(q, tau):
    exponents = np.exp(q / tau - (q / tau).max())
    return np.log(exponents / exponents.sum())


def test_the_term_of_an_action_is_its_log_probability_within_the_clip():
    settings = MunchausenSettings(**SOFT)
    q_tm1, a_tm1, *_ = batch()
    found = settings.policy_terms(torch.tensor(q_tm1), torch.tensor(a_tm1))
    expected = [0.9 * max(0.3 * log_softmax(q, 0.3)[a], -1.0) for q, a in zip(q_tm1, a_tm1, strict=True)]
    assert found.tolist() == pytest.approx(expected)
    assert min(expected) == -0.9  # of those that are clipped,
    assert max(expected) > -0.1  # and of others
    assert not settings.policy_terms(torch.tensor(q_tm1, requires_grad=True), torch.tensor(a_tm1)).requires_grad


def test_the_soft_value_is_the_expectation_under_the_policy_and_its_entropy():
    *_, q_t = batch()
    expected = []
    for q in q_t:
        log_pi = log_softmax(q, 0.3)
        expected.append((np.exp(log_pi) * (q - 0.3 * log_pi)).sum())
    assert soft_value(torch.tensor(q_t), 0.3).tolist() == pytest.approx(expected)
    assert soft_value(torch.tensor(q_t), 1e-4).tolist() == pytest.approx(q_t.max(axis=1).tolist())
    assert soft_value(torch.tensor([[3e4, 1e4]]), 0.03).tolist() == [3e4]  # no overflow


def test_a_terminated_end_has_the_rewards_alone():
    assert soft_target(*(torch.tensor(one) for one in ([2.0], [0.0], [[7.0, 9.0]])), 0.3).tolist() == [2.0]


@pytest.mark.parametrize("name", ["dqn", "apex-dqn", "cql", "scalar", "quantile"])
def test_every_loss_takes_the_soft_value_of_the_target_network(name):
    arrays = batch(1)
    q_tm1, a_tm1, r_t, discount_t, q_t = (torch.tensor(one) for one in arrays)
    chosen, soft = (q_tm1, a_tm1, r_t, discount_t), {"huber_delta": 1e9, "temperature": 0.3}
    ones = torch.ones(len(r_t), dtype=torch.float64)
    other = q_t.flip(1)  # would choose other actions
    match name:
        case "dqn":
            found = dqn_loss(*chosen, q_t, **soft)
        case "apex-dqn":
            found = apex_dqn_loss(*chosen, q_t, other, ones, priority_eps=0.0, **soft).loss
        case "cql":
            found = cql_loss(*chosen, q_t, conservative_weight=0.0, **soft).loss
        case "scalar":
            found = scalar_loss(*chosen, q_t, other, None, **soft).loss
        case "quantile":  # of distributions that are sure, at the median: half the squares' half over kappa
            middle = torch.full((len(r_t), 1), 0.5, dtype=torch.float64)
            soft["huber_delta"] = 1e3
            found = (
                2e3 * quantile_loss(q_tm1.unsqueeze(2), middle, *chosen[1:], q_t.unsqueeze(2), q_t, None, **soft).loss
            )
    targets = r_t + discount_t * soft_value(q_t, 0.3)
    errors = targets - q_tm1[torch.arange(len(r_t)), a_tm1]
    assert found.item() == pytest.approx((0.5 * errors**2).mean().item())


def test_the_quantiles_of_the_target_are_those_of_all_actions_by_their_probability():
    z_t = torch.tensor([[[0.0, 4.0], [1.0, 2.0]]], dtype=torch.float64)
    q_t, tau = z_t.mean(dim=2), 0.7
    pi = torch.softmax(q_t / tau, dim=1)[0]
    expected = [sum(pi[a] * (z_t[0, a, i] - tau * pi[a].log()) for a in range(2)).item() for i in range(2)]
    half = torch.full((1, 1), 0.5, dtype=torch.float64)
    arguments = (torch.zeros(1, 2, 1, dtype=torch.float64), half, torch.tensor([0]), *torch.eye(2).double()[:, :1])
    found = quantile_loss(*arguments, z_t, q_t, None, huber_delta=1e3, temperature=tau)
    # r = 1, discount = 0 first: the targets are surely 1.
    assert found.errors.item() == pytest.approx(0.5 * 0.5 * 1.0 / 1e3)
    ones = torch.ones(1, dtype=torch.float64)
    found = quantile_loss(*arguments[:3], 0 * ones, ones, z_t, q_t, None, huber_delta=1e3, temperature=tau)
    assert found.errors.item() == pytest.approx(np.mean([0.5 * 0.5 * t**2 / 1e3 for t in expected]))


@pytest.mark.parametrize(
    ("tau", "clip", "gap"), [(0.001, -10.0, 1.0), (0.3, -10.0, 1.0), (3.0, -10.0, 1.0), (0.001, -0.5, 0.55)]
)
def test_differences_between_actions_grow_tenfold_with_an_alpha_of_nine_tenths_within_the_clip(tau, clip, gap):
    """One observation, two actions with rewards 1 and 0.9, discount 0.5: the values are 2 and 1.9 without a term."""
    settings = MunchausenSettings(munchausen=0.9, munchausen_temperature=tau, munchausen_clip=clip)
    rewards, actions, half = torch.tensor([1.0, 0.9]).double(), torch.tensor([0, 1]), torch.full((2,), 0.5)
    q = torch.zeros(2, 2).double()
    for _ in range(2_000):
        targets = soft_target(settings.learnt_rewards(rewards, actions, q.clone), half, q, tau)
        q = targets.repeat(2, 1)
    assert (q[0, 0] - q[0, 1]).item() == pytest.approx(gap, abs=0.01)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"munchausen": 1.5}, r"munchausen is 1\.5, and must lie in \[0, 1\]"),
        ({"munchausen_temperature": 0.0}, r"munchausen_temperature is 0\.0, and must be above 0"),
        ({"munchausen_clip": 1.0}, r"munchausen_clip is 1\.0, and must be below 0"),
        ({"munchausen_clip": float("-inf")}, r"munchausen_clip is -inf, and must be below 0"),
    ],
)
@pytest.mark.parametrize("name", AGENTS)
def test_wrong_settings_are_refused_by_name(name, change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(agents.find(name).load_preset("CartPole-v1").config, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"double": False, "head": "categorical"}, "set head to"),
        ({"double": True, "head": "scalar"}, "set double to false"),
    ],
)
def test_rainbow_refuses_it_next_to_what_it_replaces(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(agents.find("rainbow").load_preset("CartPole-v1").config, munchausen=0.9, **change)


class Harness:
    """An agent of CartPole with its table, and items of the actor's first steps."""

    def __init__(self, name, **changes):
        agent, spec = agents.find(name), describe("CartPole-v1")
        if name == "rainbow":
            changes = {"double": False, "head": "quantile", **changes}
        self.config = dataclasses.replace(agent.load_preset("CartPole-v1").config, **SMALL, **changes)
        self.server = reverie.Server(agent.make_tables(spec, self.config, seed=0), listen=False)
        self.client = self.server.client()
        made = {"seed": 0, "watch": Stopwatch()}
        self.learner = agent.make_learner(spec, self.config, self.client, **made)
        self.actor = agent.make_actor(spec, self.config, self.client, self.learner, index=0, **made)
        while not self.client.can_sample("replay", self.config.batch_size):
            self.actor.act()
        self.actor.settle(0)

    def weights(self, updates=3):
        """The online network after some updates."""
        while self.learner.version < updates:
            if self.client.can_sample("replay", self.config.batch_size):
                self.learner.learn()
            else:
                self.actor.act()
        return next(iter(self.learner._networks.values())).numpy()


@pytest.mark.parametrize("name", [name for name in AGENTS if name != "gorila"])
def test_each_setting_changes_what_is_learnt(name):
    soft = {"munchausen": 0.9, "munchausen_temperature": 0.03, "munchausen_clip": -0.01}
    found = [
        Harness(name, **{**soft, **change}).weights()
        for change in (
            {"munchausen": 0.0},
            {},
            {"munchausen": 0.5},
            {"munchausen_temperature": 0.3},
            {"munchausen_clip": -0.001},
        )
    ]
    again = Harness(name, **soft).weights()
    assert np.array_equal(found[1], again)
    for i, one in enumerate(found):
        for other in found[i + 1 :]:
            assert not np.array_equal(one, other)


@pytest.mark.parametrize("name", ["dqn", "apex-dqn", "cql", "rainbow"])
def test_a_learners_targets_are_those_of_its_target_network(name):
    own = {"rainbow": {"head": "scalar", "noisy": False, "prioritized": False}, "cql": {"conservative_weight": 0.0}}
    one = Harness(name, **SOFT, target_period=1_000, huber_delta=1e3, **own.get(name, {}))
    one.weights()
    online, target = (one.learner._networks[network].module for network in ("online", "target"))
    data = random_data()
    with torch.no_grad():
        q_tm1, own_tm1, q_t = online(data["obs"]), target(data["obs"]), target(data["next_obs"])
    assert (q_tm1 - own_tm1).abs().max() > 0.01
    rewards = one.config.learnt_rewards(data["reward"], data["action"], lambda: own_tm1)
    errors = soft_target(rewards, data["discount"], q_t, 0.3) - q_tm1[torch.arange(8), data["action"]]
    if name == "apex-dqn":
        priorities, _ = one.learner._update(data, torch.ones(8))
        assert priorities.tolist() == pytest.approx((errors.abs() + one.config.priority_eps).tolist(), rel=1e-4)
        return
    metrics = one.learner._update(data, None)[1] if name == "rainbow" else one.learner._update(data)
    assert metrics["loss"].item() == pytest.approx((0.5 * errors**2).mean().item(), rel=1e-4)


def random_data():
    """A batch of 8 for learners of CartPole."""
    rng = np.random.default_rng(0)
    data = {name: torch.tensor(rng.normal(size=(8, 4)), dtype=torch.float32) for name in ("obs", "next_obs")}
    return data | {"action": torch.tensor([0, 1] * 4), "reward": torch.ones(8), "discount": torch.full((8,), 0.9)}


def test_the_quantile_heads_targets_are_of_its_target_network_and_the_same_policy_at_both_ends():
    one = Harness("rainbow", **SOFT, target_period=1_000, noisy=False, prioritized=False, huber_delta=1e3)
    one.weights()
    online, target = (one.learner._networks[network].module for network in ("online", "target"))
    data, shape = random_data(), (8, one.config.num_quantiles)
    state = one.learner._generator.get_state()
    fractions_tm1, fractions_t = (fractions_of(one.learner._numbers(torch.Size(shape))) for _ in range(2))
    with torch.no_grad():
        rewards = one.config.learnt_rewards(data["reward"], data["action"], lambda: target(data["obs"]))
        z_tm1, z_t = online.quantiles(data["obs"], fractions_tm1), target.quantiles(data["next_obs"], fractions_t)
        chosen = z_tm1, fractions_tm1, data["action"], rewards, data["discount"]
        expected = quantile_loss(*chosen, z_t, target(data["next_obs"]), None, huber_delta=1e3, temperature=0.3)
        others = [
            quantile_loss(*chosen, z_t, online(data["next_obs"]), None, huber_delta=1e3, temperature=0.3),
            quantile_loss(*chosen, z_t, z_t.mean(dim=2), None, huber_delta=1e3, temperature=0.3),
        ]
        one.learner._generator.set_state(state)
        found = one.learner._loss(data, None)
    assert found.errors.tolist() == pytest.approx(expected.errors.tolist(), rel=1e-4)
    for other in others:  # the check can tell
        assert found.errors.tolist() != pytest.approx(other.errors.tolist(), rel=1e-4)


def test_gorilas_gradients_are_of_the_same_targets():
    spec, config = describe("CartPole-v1"), agents.find("gorila").load_preset("CartPole-v1").config
    online, target = (make_network(spec, config, seed=seed, trainable=True) for seed in (0, 1))
    gradients = []
    for munchausen in (0.0, 0.9):
        changed = dataclasses.replace(config, munchausen=munchausen)
        found = dqn_gradient(online, target, random_data(), changed)
        assert found.loss == batch_loss(online, target, random_data(), changed).item()
        gradients.append(found.flat)
    assert not np.array_equal(*gradients)


def test_first_priorities_of_ape_x_are_the_errors_of_the_learners_targets():
    one = Harness("apex-dqn", **SOFT)
    batch = one.client.sample_batch("replay", 16, timeout=0)
    q_tm1, q_t = (torch.tensor(one.actor._policy.q_values(batch.data[name])) for name in ("obs", "next_obs"))
    a_tm1, r_t, discount_t = (torch.tensor(batch.data[name]) for name in ("action", "reward", "discount"))
    targets = soft_target(one.config.learnt_rewards(r_t, a_tm1.long(), lambda: q_tm1), discount_t, q_t, 0.3)
    errors = (targets - q_tm1[torch.arange(16), a_tm1.long()]).abs() + one.config.priority_eps
    assert batch.info.priority.tolist() == pytest.approx(errors.tolist(), rel=1e-4, abs=1e-5)
    assert len(set(batch.info.priority.tolist())) > 8


def test_values_of_an_episodes_last_observation_are_soft_as_the_learners():
    one = Harness("apex-dqn", **SOFT)
    observations = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    q = torch.tensor(one.actor._policy.q_values(observations))
    assert one.actor._values(observations).tolist() == pytest.approx(soft_value(q, 0.3).tolist())
    hard = Harness("apex-dqn").actor._values(observations)
    assert hard.tolist() == pytest.approx(q.amax(dim=1).tolist())
    assert (one.actor._values(observations) > hard).all()
