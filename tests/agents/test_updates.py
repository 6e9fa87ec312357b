"""One update of every learner with target networks, computed independently: which network is used where.

The losses are tested by themselves; here is what they are given. Before the update every network has parameters of its
own, so that one that stands in for another gives another number.
"""

import copy
import dataclasses
import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie import agents  # noqa: E402
from reverie.agents.core import Stopwatch  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402
from reverie.agents.optimizers import adam, centred_rmsprop  # noqa: E402

NETWORKS = {
    "apex_dpg": ("policy", "policy_target", "critic", "critic_target"),
    "ddpg": ("policy", "policy_target", "critic", "critic_target"),
    "td3": ("policy", "policy_target", "critics", "critics_target"),
    "sac": ("policy", "critics", "critics_target"),
    "dqn": ("online", "target"),
    "apex_dqn": ("online", "target"),
}
LOSSES = {"apex_dpg": "critic_loss", "ddpg": "critic_loss", "td3": "critics_loss", "sac": "critics_loss", "dqn": "loss"}


class Setting:
    """A learner of small networks that all differ, on random items; what it drew and had before `learn`."""

    def __init__(self, name, make_fake_replay, *, action_size=1, **changes):
        agent = agents.find(name)
        self.spec = describe("Pendulum-v1" if agents.find(name).actions == "continuous" else "CartPole-v1")
        if action_size > 1:
            self.spec = dataclasses.replace(
                self.spec, action_low=(-2.0,) * action_size, action_high=(2.0,) * action_size
            )
        widths = [k for k in ("hidden", "policy_hidden", "critic_hidden") if hasattr(self.preset(agent), k)]
        self.config = dataclasses.replace(
            self.preset(agent), **{"batch_size": 32, **dict.fromkeys(widths, (16,)), **changes}
        )
        self.replay = make_fake_replay(max_size=200, priority_exponent=0.6)
        rng = np.random.default_rng(1)
        (size,) = self.spec.obs_shape
        for _ in range(200):
            obs, next_obs = rng.normal(size=(2, size)).astype(np.float32)
            action = (
                rng.uniform(-1, 1, action_size).astype(np.float32)
                if self.spec.action_size
                else np.int64(rng.integers(2))
            )
            numbers = {"reward": np.float32(rng.normal()), "discount": np.float32(rng.choice([0.0, 0.9]))}
            item = {"obs": obs, "next_obs": next_obs, "action": action, "weights_version": np.int64(0), **numbers}
            self.replay.insert(item, priority=float(rng.uniform(0.1, 2.0)))
        self.drawn = []
        sample = self.replay.sample_batch
        self.replay.sample_batch = lambda *args, **kwargs: self.drawn.append(sample(*args, **kwargs)) or self.drawn[-1]
        self.learner = agent.make_learner(self.spec, self.config, self.replay, seed=0, watch=Stopwatch())
        self.networks = self.learner._networks
        for network in self.networks.values():
            network.load(network.numpy() + 0.3 * rng.normal(size=network.numpy().shape).astype(np.float32))
        self.before = {name: network.numpy() for name, network in self.networks.items()}

    def preset(self, agent):
        return agent.load_preset(self.spec.env_id).config

    def learn(self):
        """One update; the batch, and the networks' parameters after it."""
        state = None if self.learner._generator is None else self.learner._generator.get_state()
        self.noise = None if state is None else torch.Generator()
        if state is not None:
            self.noise.set_state(state)
        self.learner.learn()
        self.after = {name: network.numpy() for name, network in self.networks.items()}
        data = self.drawn[-1].data
        self.batch = {name: torch.as_tensor(data[name]) for name in data}
        return self.after

    def with_parameters(self, network, flat):
        """The module of a network, with these parameters until the next call."""
        self.networks[network].load(flat)
        return self.networks[network].module


@pytest.fixture
def setting(make_fake_replay):
    return lambda name, **changes: Setting(name, make_fake_replay, **changes)


def drawn(policy, obs, noise):
    """SAC's actions and their log-densities, in float64, where tanh is not 1 so soon."""
    mean, log_sigma = policy.distribution(obs)
    u = (mean + log_sigma.exp() * torch.randn(mean.shape, generator=noise)).double()
    log_pi = torch.distributions.Normal(mean.double(), log_sigma.double().exp()).log_prob(u)
    return torch.tanh(u).float(), (log_pi - torch.log(1 - torch.tanh(u) ** 2)).sum(dim=1)


def expected_loss(setting, name, roles):
    """The critics' loss (of DQN: the loss) by plain arithmetic; `roles` assigns parameters to networks."""
    batch, config = setting.batch, setting.config
    reward, discount = batch["reward"], batch["discount"]

    def network(role):
        return setting.with_parameters(role, setting.before[roles.get(role, role)])

    with torch.no_grad():
        if name == "dqn":
            q_t = network("target")(batch["next_obs"]).amax(dim=1)
            q = network("online")(batch["obs"])[torch.arange(len(reward)), batch["action"]]
            errors = (reward + discount * q_t - q).abs()
            delta = config.huber_delta
            return torch.where(errors < delta, 0.5 * errors**2, delta * (errors - 0.5 * delta)).mean().item()
        critic = "critic" if "critic" in setting.networks else "critics"
        if name == "sac":
            a_t, log_pi = drawn(network("policy"), batch["next_obs"], setting.noise)
            temperature = np.exp(setting.before["temperature"].item())
            q_t = network("critics_target")(batch["next_obs"], a_t).amin(dim=0) - temperature * log_pi
        else:
            a_t = network("policy_target")(batch["next_obs"])
            if name == "td3":
                noise = torch.randn(a_t.shape, generator=setting.noise) * config.smoothing_sigma
                a_t = (a_t + noise.clamp(-config.smoothing_clip, config.smoothing_clip)).clamp(-1, 1)
            q_t = network(f"{critic}_target")(batch["next_obs"], a_t).amin(dim=0)
        errors = reward + discount * q_t - network(critic)(batch["obs"], batch["action"])
        if name == "apex_dpg":
            weights = setting.drawn[-1].weights(config.importance_exponent, config.importance_normalise)
            errors = errors * torch.from_numpy(weights).sqrt()
        return (errors**2).mean(dim=1).sum().item() * (0.5 if name in ("apex_dpg", "sac") else 1.0)


def stand_ins(name):
    """Every way in which an online network and its target could be taken for one another."""
    pairs = [(one, f"{one}_target") for one in NETWORKS[name] if f"{one}_target" in NETWORKS[name]]
    pairs = pairs or [("online", "target")]
    return [{a: b} for pair in pairs for a, b in itertools.permutations(pair)]


@pytest.mark.parametrize("name", LOSSES)
def test_targets_use_the_target_networks_and_predictions_the_online_networks(name, setting):
    one = setting(name)
    one.learn()
    reported = one.learner.metrics()[LOSSES[name]]
    noise = None if one.noise is None else one.noise.get_state()
    assert reported == pytest.approx(expected_loss(one, name, {}), rel=1e-4)
    for roles in stand_ins(name):
        if name == "sac" and "policy" in roles:
            continue
        if noise is not None:
            one.noise.set_state(noise)
        wrong = expected_loss(one, name, roles)
        unused = name in ("apex_dpg", "ddpg", "td3") and "policy" in roles  # the loss does not ask for it
        assert (wrong == pytest.approx(reported, rel=1e-3)) == unused, roles


@pytest.mark.parametrize("name", ["ddpg", "td3", "sac", "apex_dpg"])
def test_the_policy_loss_uses_the_updated_critics(name, setting):
    one = setting(name, **({"policy_period": 1} if name == "td3" else {}))
    after = one.learn()
    critic = "critic" if "critic" in one.networks else "critics"
    losses = {}
    for kind, flat in (("after", after[critic]), ("before", one.before[critic])):
        with torch.no_grad():
            policy = one.with_parameters("policy", one.before["policy"])
            judge, obs = one.with_parameters(critic, flat), one.batch["obs"]
            if name != "sac":
                losses[kind] = -judge(obs, policy(obs))[0].mean().item()
                continue
            state = one.noise.get_state()
            torch.randn(len(obs), 1, generator=one.noise)  # of the target
            a, log_pi = drawn(policy, obs, one.noise)
            one.noise.set_state(state)
            temperature = np.exp(one.before["temperature"].item())
            losses[kind] = (temperature * log_pi - judge(obs, a).amin(dim=0)).mean().item()
    metrics = one.learner.metrics()
    reported = -metrics["q"] if name == "apex_dpg" else metrics["policy_loss"]
    assert reported == pytest.approx(losses["after"], rel=1e-4, abs=1e-5)
    assert losses["before"] != pytest.approx(losses["after"], rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("name", ["ddpg", "td3", "sac"])
def test_target_networks_move_towards_the_updated_networks(name, setting):
    one = setting(name, target_rate=0.25, **({"policy_period": 1} if name == "td3" else {}))
    after = one.learn()
    moved = [network for network in NETWORKS[name] if f"{network}_target" in one.networks]
    assert moved
    for network in moved:
        start = one.before[f"{network}_target"]
        assert after[f"{network}_target"] == pytest.approx(start + 0.25 * (after[network] - start), abs=1e-6)
        assert np.abs(0.25 * (after[network] - one.before[network])).max() > 1e-5, "before the step would be elsewhere"


def test_the_temperature_rises_and_falls_by_the_entropy_of_all_numbers_of_an_action_together(setting):
    first = setting("sac", action_size=2)
    first.learn()
    entropy = first.learner.metrics()["entropy"]
    assert abs(entropy) > 0.3, "else half of it could not be distinguished from all"
    for offset, rises in ((0.1, True), (-0.1, False)):
        one = setting("sac", action_size=2, entropy_per_action=entropy / 2 + offset)
        assert (one.learn()["temperature"] > one.before["temperature"]) == rises
    fixed = setting("sac", temperature_learning_rate=0.0)
    assert fixed.learn()["temperature"] == fixed.before["temperature"]


@pytest.mark.parametrize(
    ("name", "optimizer", "power"),
    [("dqn", {}, 1.0), ("apex_dqn", {}, 1.0), ("apex_dqn", {"optimizer": "rmsprop"}, 0.5)],
)
def test_the_epsilon_of_the_optimiser_is_the_one_that_is_set(name, optimizer, power, setting):
    """Far above all gradients, it divides the step by as much: by its root where it is under the root."""
    epsilon = "adam_epsilon" if name == "dqn" else "optimizer_epsilon"
    steps = []
    for value in (1e3, 1e6):
        one = setting(name, learning_rate=1e3, **{epsilon: value}, **optimizer)
        after = one.learn()
        steps.append(np.abs(after["online"] - one.before["online"]).max())
    assert steps[0] > 1e-3
    assert steps[1] == pytest.approx(steps[0] / 1e3**power, rel=0.1)


class Vector:
    """Parameters without a network."""

    def __init__(self):
        self.flat = torch.nn.Parameter(torch.zeros(2))


def test_rmsprop_divides_by_the_deviation_of_gradients_that_decays_by_0_95():
    """Graves 2013, equations 38 to 41, without momentum: epsilon is under the root."""
    one, rate, epsilon = Vector(), 0.5, 0.1
    optimizer = centred_rmsprop(one, rate, epsilon)
    gradients = np.array([[1.0, -2.0], [0.5, 3.0], [2.0, 0.1]])
    n, g, x = np.zeros(2), np.zeros(2), np.zeros(2)
    for gradient in gradients:
        one.flat.grad = torch.tensor(gradient, dtype=torch.float32)
        optimizer.step()
        n, g = 0.95 * n + 0.05 * gradient**2, 0.95 * g + 0.05 * gradient
        x = x - rate * gradient / np.sqrt(n - g**2 + epsilon)
    assert one.flat.detach().numpy() == pytest.approx(x, rel=1e-4)
    other = Vector()
    other.flat.data.copy_(one.flat.data)
    again = centred_rmsprop(other, 0.1, 0.2)  # what it goes on from has its rate, too
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for vector, follows in ((one, optimizer), (other, again)):
        vector.flat.grad = torch.tensor([1.0, 2.0])
        follows.step()
    assert torch.equal(one.flat, other.flat)


def test_adam_is_the_papers_with_epsilon_added_to_the_corrected_root():
    """Kingma and Ba 2015, algorithm 1."""
    one, rate, epsilon = Vector(), 0.5, 0.1
    optimizer = adam(one, rate, epsilon)
    m, v, x = np.zeros(2), np.zeros(2), np.zeros(2)
    for t, gradient in enumerate(np.array([[1.0, -2.0], [0.5, 3.0], [2.0, 0.1]]), start=1):
        one.flat.grad = torch.tensor(gradient, dtype=torch.float32)
        optimizer.step()
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        x = x - rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + epsilon)
    assert one.flat.detach().numpy() == pytest.approx(x, rel=1e-4)
