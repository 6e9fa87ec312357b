"""Priorities for SAC, TD3 and DDPG, annealed importance weights and rates, and soft targets of Ape-X."""

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import reverie  # noqa: E402
from reverie import agents  # noqa: E402
from reverie.agents.core import Stopwatch  # noqa: E402
from reverie.agents.ddpg.loss import critic_loss  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402
from reverie.agents.sac.loss import critics_loss as sac_loss  # noqa: E402
from reverie.agents.td3.loss import critics_loss as td3_loss  # noqa: E402

SMALL = {
    "num_actors": 1,
    "envs_per_actor": 2,
    "learning_starts": 40,
    "batch_size": 16,
    "samples_per_insert": 16.0,
    "hidden": (8,),
    "policy_hidden": (8,),
    "critic_hidden": (8,),
    "random_steps": 1_000,
}
OPTIONAL = ("sac", "td3", "ddpg", "cql-sac")


class Harness:
    def __init__(self, name, **changes):
        agent = agents.find(name)
        self.spec = describe({"discrete": "CartPole-v1"}.get(agent.actions, "Pendulum-v1"))
        config = agent.load_preset(self.spec.env_id).config
        known = {field.name for field in dataclasses.fields(config)}
        self.config = dataclasses.replace(config, **{k: v for k, v in SMALL.items() if k in known}, **changes)
        self.server = reverie.Server(agent.make_tables(self.spec, self.config, seed=0), listen=False)
        self.client = self.server.client()
        made = {"seed": 0, "watch": Stopwatch()}
        self.learner = agent.make_learner(self.spec, self.config, self.client, **made)
        self.actor = agent.make_actor(self.spec, self.config, self.client, self.learner, index=0, **made)

    def learn(self, updates=1):
        """Learn, and return the batches that were learnt from."""
        batches, draw = [], self.learner._draw
        self.learner._draw = lambda: batches.append(draw()) or batches[-1]
        while self.learner.version < updates:
            if self.client.can_sample("replay", self.config.batch_size):
                self.learner.learn()
            else:
                self.actor.act()
        self.learner._draw = draw
        return batches

    def fill(self):
        while not self.client.can_sample("replay", self.config.batch_size):
            self.actor.act()
        self.actor.settle(0)

    def priorities(self):
        """The priorities of all items."""
        return self.client.query("replay", limit=10_000).priority


@pytest.mark.parametrize("name", OPTIONAL)
def test_without_the_setting_draws_are_uniform_and_no_priority_is_written(name):
    one = Harness(name)
    batches = one.learn(5)
    assert all(np.allclose(batch.info.probability, 1 / batch.info.table_size) for batch in batches)
    assert "priorities_applied" not in one.learner.metrics()


@pytest.mark.parametrize("name", OPTIONAL)
def test_td_errors_of_the_critics_become_the_priorities_that_draws_follow(name):
    one = Harness(name, prioritized=True, priority_exponent=0.5, priority_eps=0.25)
    critics = "critic" if name == "ddpg" else "critics"
    seen, network = [], one.learner._networks[critics]
    module = network.module.forward

    def noting(*given):
        q = module(*given)
        seen.append(q.detach().clone())
        return q

    network.module.forward = noting
    target = []
    loss = "critic_loss" if name == "ddpg" else "critics_loss"
    learner_module = __import__(f"reverie.agents.{name.replace('-', '_')}.learner", fromlist=["learner"])
    original = getattr(learner_module, loss)
    setattr(learner_module, loss, lambda q, t, *rest: target.append(t.detach().clone()) or original(q, t, *rest))
    try:
        (batch,) = one.learn(1)
    finally:
        setattr(learner_module, loss, original)
    assert np.allclose(batch.info.priority, 1.0), "the table was empty, and its largest priority is 1"
    expected = np.abs((target[0] - seen[0]).numpy()).mean(axis=0) + 0.25
    found = one.client.get("replay", batch.info.key)
    by_key = dict(zip(batch.info.key.tolist(), expected.tolist(), strict=True))
    assert found.info.priority == pytest.approx([by_key[key] for key in found.info.key.tolist()], rel=1e-5)
    assert one.learner.metrics()["priorities_applied"] > 0
    later = one.learn(4)[-1]
    assert np.ptp(later.info.priority) > 0
    ratio = later.info.probability / later.info.priority**0.5
    assert ratio == pytest.approx(np.full(16, ratio[0])), "alpha is applied once, by the selector"


@pytest.mark.parametrize("name", OPTIONAL)
def test_new_items_have_the_largest_priority_of_the_table(name):
    one = Harness(name, prioritized=True, priority_eps=5.0)
    one.learn(3)
    largest = one.priorities().max()
    before = {int(key) for key in one.client.query("replay", limit=10_000).key}
    one.fill()
    after = one.client.query("replay", limit=10_000)
    new = [float(p) for key, p in zip(after.key, after.priority, strict=True) if int(key) not in before]
    assert new
    assert new == pytest.approx([float(largest)] * len(new))


@pytest.mark.parametrize("loss", [sac_loss, td3_loss])
def test_weights_scale_the_errors_of_two_critics(loss):
    rng = np.random.default_rng(0)
    q, target, weights = (torch.tensor(rng.random(n)) for n in ((2, 5), (5,), (5,)))
    squared = ((target - q) ** 2).numpy()
    half = 0.5 if loss is sac_loss else 1.0
    assert loss(q, target, weights).item() == pytest.approx(half * (weights.numpy() * squared).mean(axis=1).sum())
    assert loss(q, target).item() == pytest.approx(loss(q, target, torch.ones(5)).item())


def test_weights_scale_the_errors_of_one_critic():
    q, target, weights = torch.tensor([1.0, 5.0]), torch.tensor([3.0, 2.0]), torch.tensor([1.0, 0.5])
    assert critic_loss(q, target, weights).item() == pytest.approx((4 + 0.5 * 9) / 2)


def test_beta_rises_in_a_line_to_one_and_stays_there():
    config = Harness("apex-dqn").config
    annealed = dataclasses.replace(config, importance_exponent=0.4, importance_anneal_updates=100)
    assert [annealed.importance_at(update) for update in (0, 50, 100, 1_000)] == pytest.approx([0.4, 0.7, 1.0, 1.0])
    assert dataclasses.replace(config, importance_exponent=0.4).importance_at(10**6) == 0.4
    with pytest.raises(ValueError, match="importance_anneal_updates is -1, and must not be below 0"):
        dataclasses.replace(config, importance_anneal_updates=-1)


@pytest.mark.parametrize("name", ["apex-dqn", "apex-dpg", "r2d2", *OPTIONAL])
def test_every_agent_with_priorities_weighs_each_update_by_its_own_beta(name):
    prioritized = {"prioritized": True} if name in OPTIONAL else {}
    settings = {"importance_exponent": 0.0, "importance_anneal_updates": 4, "importance_normalise": "batch"}
    one = Harness(name, **settings, **prioritized)
    seen, update = [], one.learner._update
    one.learner._update = lambda data, weights: seen.append(weights.clone()) or update(data, weights)
    batches = one.learn(6)
    for version, (weights, batch) in enumerate(zip(seen, batches, strict=True)):
        raw = (batch.info.table_size * batch.info.probability) ** -min(1.0, version / 4)
        assert weights.numpy() == pytest.approx(raw / raw.max(), rel=1e-4)
    assert np.ptp(seen[0].numpy()) == 0
    assert np.ptp(seen[-1].numpy()) > 0


@pytest.mark.parametrize("name", ["apex-dqn", "rainbow", "r2d2"])
def test_each_update_is_made_at_the_rate_that_is_left_of_it(name):
    """A step of Adam is as long as its rate, so updates at a hundredth of it hardly move the network."""
    settings = {"anneal_updates": 1, "anneal_to": 0.01, "target_period": 100}
    one = Harness(name, **settings)
    flat = one.learner._networks["online"].numpy
    before = flat()
    one.learn(1)
    first = flat()
    one.learn(2)
    annealed = np.abs(flat() - first).max()
    rates = [optimizer.rate for optimizer in one.learner._optimizers.values()]
    assert rates == [pytest.approx(0.01 * one.config.learning_rate)]
    assert annealed < 0.03 * np.abs(first - before).max()
    assert [one.config.rate(k) for k in (0, 1, 50)] == pytest.approx(
        np.array([1, 0.01, 0.01]) * one.config.learning_rate
    )
    for setting, wrong in (("anneal_updates", -1), ("anneal_to", 1.5), ("learning_rate", 0.0)):
        with pytest.raises(ValueError, match=f"{setting} is {wrong}, and must"):
            dataclasses.replace(one.config, **{setting: wrong})


@pytest.mark.parametrize(("name", "pairs"), [("apex-dqn", ("online",)), ("apex-dpg", ("policy", "critic"))])
def test_soft_targets_of_ape_x_move_by_their_rate_at_each_update(name, pairs):
    one = Harness(name, target_rate=0.25, target_period=1)
    networks = one.learner._networks
    target_of = {"online": "target", "policy": "policy_target", "critic": "critic_target"}
    before = {pair: networks[target_of[pair]].numpy() for pair in pairs}
    one.learn(1)
    for pair in pairs:
        online, target = networks[pair].numpy(), networks[target_of[pair]].numpy()
        assert target == pytest.approx(before[pair] + 0.25 * (online - before[pair]), abs=1e-6)
        assert (target != online).any()
    hard = Harness(name, target_period=2)
    networks = hard.learner._networks
    hard.learn(1)
    assert all((networks[pair].numpy() != networks[target_of[pair]].numpy()).any() for pair in pairs)
    hard.learn(2)
    assert all((networks[pair].numpy() == networks[target_of[pair]].numpy()).all() for pair in pairs)
    with pytest.raises(ValueError, match=r"target_rate is 2.0, and must lie in \[0, 1\]"):
        dataclasses.replace(one.config, target_rate=2.0)
