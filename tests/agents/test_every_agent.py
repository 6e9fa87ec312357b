"""The properties that every `Agent` must have."""

import copy
import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import reverie  # noqa: E402
from reverie import agents  # noqa: E402
from reverie.agents import preset_choice, presets  # noqa: E402
from reverie.agents.core import RunSettings, Stopwatch, Weights  # noqa: E402
from reverie.agents.environments import UnsupportedEnvironmentError, describe  # noqa: E402
from reverie.agents.outcomes import DivergedError  # noqa: E402

ENVIRONMENTS = {"discrete": "CartPole-v1", "continuous": "Pendulum-v1", "any": "CartPole-v1"}
AGENTS = [
    *(pytest.param(agents.find(name), id=name) for name in agents.BUILT_IN),
    # Plays both kinds of actions, here the continuous ones.
    pytest.param(dataclasses.replace(agents.find("ppo"), actions="continuous"), id="ppo-continuous"),
]
PRESETS = [
    pytest.param(agents.find(name), path, id=f"{name}-{path.relative_to(agents.find(name).presets).with_suffix('')}")
    for name in agents.BUILT_IN
    for path in sorted(agents.find(name).presets.rglob("*.toml"))
    if path.parent.name != preset_choice.DEFAULTS
]

#: At most these: `learning_starts` counts sequences where an agent draws sequences.
SMALL = {
    "learning_starts": 64,
    "batch_size": 16,
    "unroll_length": 16,
    "minibatch_size": 64,
    "epochs": 2,
    "sequence_length": 4,
    "sequence_period": 4,
    "burn_in": 4,
    "lstm_units": 16,
}


def env_of(agent):
    return ENVIRONMENTS[agent.actions]


class Harness:
    """A learner and its actors on the agent's own tables, taking turns as the local runner does."""

    def __init__(self, agent, *, seed=0, state=None, actors=None, **changes):
        self.spec = describe(env_of(agent))
        preset = agent.load_preset(self.spec.env_id)
        self.config = dataclasses.replace(preset.config, **changes)
        self.server = reverie.Server(agent.make_tables(self.spec, self.config, seed=seed), listen=False)
        self.client = self.server.client()
        self.needs = agent.needs(self.config)
        options = {"seed": seed, "watch": Stopwatch()}
        self.learner = agent.make_learner(self.spec, self.config, self.client, **options)
        self.actors = [
            agent.make_actor(self.spec, self.config, self.client, self.learner, index=i, **options)
            for i in range(agent.layout(self.config)[0])
        ]
        self.turn = 0

    def learn(self, updates):
        while self.learner.version < updates:
            if self.client.can_sample(self.needs.name, self.needs.batch_size):
                self.learner.learn()
                continue
            assert self.client.can_insert(self.needs.name, self.needs.inserts_per_act)
            self.actors[self.turn % len(self.actors)].act()
            self.turn += 1

    def close(self):
        for actor in self.actors:
            actor.close()
        self.server.stop()


@pytest.fixture
def harness():
    made = []

    def make(agent, **options):
        config = agent.load_preset(env_of(agent)).config
        names = SMALL.keys() & {field.name for field in dataclasses.fields(config)}
        small = {name: min(getattr(config, name), SMALL[name]) for name in names}
        made.append(Harness(agent, **{**small, **options}))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.usefixtures("minatar", "mujoco")
@pytest.mark.parametrize(("agent", "path"), PRESETS)
def test_every_preset_can_be_read_and_fits_its_environment(agent, path):
    spec = describe(preset_choice.environment_of(path))
    agent.check(spec)
    named = None if path.parent == agent.presets else Path(path.parent.name)
    preset = agent.load_preset(spec.env_id, named)
    assert preset.path == path
    assert agent.layout(preset.config)[0] >= 1
    assert all(size > 0 for size in agent.memory(spec, preset.config).values())


@pytest.mark.parametrize("agent", AGENTS)
def test_no_setting_of_an_agent_has_the_name_of_one_of_runs(agent):
    config = {field.name for field in dataclasses.fields(agent.load_preset(env_of(agent)).config)}
    assert not config & {field.name for field in dataclasses.fields(RunSettings)}


@pytest.mark.parametrize("agent", [one for one in AGENTS if one.values[0].actions != "any"])
def test_the_other_kind_of_actions_is_refused_with_the_agents_that_fit(agent):
    own = env_of(agent)
    (kind, other) = next((kind, env_id) for kind, env_id in ENVIRONMENTS.items() if env_id != own)
    fitting = [name for name in agents.BUILT_IN if agents.find(name).actions in (kind, "any")]
    with pytest.raises(UnsupportedEnvironmentError) as caught:
        agent.check(describe(other))
    assert f"actions need {', '.join(fitting)}." in str(caught.value)
    assert agent.name in str(caught.value)


@pytest.mark.parametrize("agent", AGENTS)
def test_a_learner_has_one_base_class_at_most_and_so_can_be_read_alone(agent):
    bases = [one for one in agent.make_learner.__mro__[1:] if one.__module__.startswith("reverie.")]
    assert len(bases) <= 1


@pytest.mark.parametrize("agent", [agents.find(name) for name in agents.BUILT_IN], ids=agents.BUILT_IN)
def test_the_name_that_a_person_types_finds_the_agent(agent):
    assert agents.find(agent.name) is agent


def test_an_unknown_agent_names_the_nearest():
    with pytest.raises(agents.UnknownAgentError, match=r"no agent 'apex-dqm'; did you mean apex-dqn") as caught:
        agents.find("apex-dqm")
    assert caught.value.nearest[0] == "apex-dqn"
    with pytest.raises(agents.UnknownAgentError, match=r"no agent 'zzzz'; there is: apex-dqn, "):
        agents.find("zzzz")


@pytest.mark.parametrize("agent", AGENTS)
def test_a_seed_decides_weights_and_actions_and_the_global_random_state_is_left_alone(agent, harness):
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    one, two, other = harness(agent, seed=4), harness(agent, seed=4), harness(agent, seed=5)
    for each in (one, two, other):
        each.learn(3)
    flat = [each.learner.latest(-1).flat for each in (one, two, other)]
    assert (flat[0] == flat[1]).all()
    assert (flat[0] != flat[2]).any()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002


@pytest.mark.parametrize("agent", AGENTS)
def test_a_learner_with_the_state_of_another_continues_bit_for_bit(agent, harness, networks_of):
    """Both learn from the same table, so a difference could only come from their state."""
    first = harness(agent, seed=1)
    first.learn(3)
    second = harness(agent, seed=2)
    batches = record(first, updates=6)
    second.learner.load_state_dict(first.start)
    replay_of(second, batches)
    a, b = first.learner.state_dict(), second.learner.state_dict()
    assert a["version"] == b["version"] == 6
    for name, flat in networks_of(a).items():
        assert (flat == networks_of(b)[name]).all(), name


def record(harness, *, updates):
    """Learn on, and keep what the learner drew; `harness.start` is its state before."""
    harness.start = harness.learner.state_dict()
    batches, sample = [], harness.client.sample_batch

    class Tape:
        def __getattr__(self, name):
            return getattr(harness.client, name)

        def sample_batch(self, *args, **kwargs):
            batches.append(sample(*args, **kwargs))
            return copy.copy(batches[-1])  # the learner makes tensors of its columns

    harness.learner._client = Tape()
    harness.learn(updates)
    return batches


def replay_of(harness, batches):
    class Tape:
        def sample_batch(self, *args, **kwargs):
            return batches.pop(0)

        def update_priorities(self, table, keys, priorities):
            return reverie.UpdateResult(len(keys), 0)

    harness.learner._client = Tape()
    while batches:
        harness.learner.learn()


@pytest.mark.parametrize("agent", AGENTS)
def test_every_network_of_the_learner_moves_when_it_learns(agent, harness, networks_of):
    period = {"target_period": 5} if hasattr(agent.load_preset(env_of(agent)).config, "target_period") else {}
    one = harness(agent, **period)
    before = networks_of(one.learner)
    one.learn(10)
    after = networks_of(one.learner)
    assert {name for name in before if (before[name] == after[name]).all()} == set()


@pytest.mark.parametrize("agent", AGENTS)
def test_values_that_are_not_finite_stop_learning_and_name_the_rates_to_lower(agent, harness):
    one = harness(agent)
    rates = [field.name for field in dataclasses.fields(one.config) if field.name.endswith("learning_rate")]
    batches = record(one, updates=2)
    for batch in batches:
        batch.data["reward"][:] = np.inf
    with pytest.raises(DivergedError, match=r"is not finite at update 2: learning diverged; lower ") as raised:
        replay_of(one, batches)
    named = re.findall(r"(\w+) \(", str(raised.value).partition(" lower ")[2])
    # Without a threshold, nothing steps at the rate of the conservative term's factor.
    assert sorted(named) == sorted(set(rates) - {"conservative_learning_rate"})
    assert one.learner.version == 2


@pytest.mark.parametrize("agent", AGENTS)
def test_weights_are_given_once_per_version_and_are_copies(agent, harness):
    one = harness(agent)
    first = one.learner.latest(newer_than=-1)
    assert first.version == 0
    assert one.learner.latest(newer_than=0) is None
    kept = first.flat.copy()
    one.learn(1)
    assert one.learner.latest(newer_than=0).version == 1
    assert (first.flat == kept).all()


@pytest.mark.parametrize("agent", AGENTS)
def test_a_policy_takes_the_learners_weights_and_refuses_others(agent, harness):
    one = harness(agent)
    policy = agent.make_policy(one.spec, one.config)
    policy.load(one.learner.latest(newer_than=-1))
    obs = np.zeros((5, *one.spec.obs_shape), np.float32)
    actions = policy(obs)
    assert actions.shape == ((5,) if one.spec.num_actions else (5, one.spec.action_size))
    with pytest.raises(ValueError, match=r"weights have shape \(3,\)"):
        policy.load(Weights(1, np.zeros(3, np.float32)))


@pytest.mark.parametrize("agent", AGENTS)
def test_an_actor_with_the_state_of_another_draws_as_that_one_from_new_episodes(agent, harness):
    one = harness(agent, seed=1)
    one.learn(2)
    state = one.actors[0].state_dict()
    starts = []
    for seed in (7, 8):
        other = harness(agent, seed=seed)
        other.actors[0].load_state_dict(state)
        assert other.actors[0].env_steps == one.actors[0].env_steps > 0
        starts.append(other.actors[0]._obs)
        assert other.actors[0].act() == other.config.envs_per_actor
    assert (starts[0] == starts[1]).all()


@pytest.mark.parametrize("agent", AGENTS)
def test_an_index_outside_the_actors_is_refused(agent, harness):
    one = harness(agent)
    count = len(one.actors)
    with pytest.raises(ValueError, match=f"actor {count} of {count}: the index must lie in"):
        agent.make_actor(one.spec, one.config, one.client, one.learner, index=count, seed=0, watch=Stopwatch())


def test_settings_given_as_text_replace_those_of_the_preset():
    preset = agents.find("apex-dqn").load_preset("CartPole-v1")
    changed = presets.override(preset, ["n_step=5", "hidden = [64]", "max_env_steps=2_000", "learning_rate=1"])
    assert changed.config == dataclasses.replace(preset.config, n_step=5, hidden=(64,), learning_rate=1.0)
    assert changed.run == dataclasses.replace(preset.run, max_env_steps=2_000)
    assert presets.override(preset, ["importance_normalise=table"]).config.importance_normalise == "table"


@dataclasses.dataclass(frozen=True, kw_only=True)
class NamedAsOthers(type(agents.find("dqn").load_preset("CartPole-v1").config)):
    """Settings of an agent of another package, two of which have names of `[environment]`."""

    network: str = "small"
    max_env_restarts: int = 1


def test_a_setting_of_the_agent_comes_before_one_of_the_environment_with_its_name():
    preset = agents.find("dqn").load_preset("CartPole-v1")
    preset = dataclasses.replace(preset, config=NamedAsOthers(**vars(preset.config)))
    for changed in (
        presets.override(preset, ["network=big", "max_env_restarts=5"]),
        presets.changed(preset, {"network": "big", "max_env_restarts": 5}),
    ):
        assert (changed.config.network, changed.config.max_env_restarts) == ("big", 5)
        assert changed.environment == preset.environment


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("xyz", r"'xyz' is not a setting; write name=value"),
        ("n_step", r"n_step has no value: write n_step=VALUE"),
        ("n_step=", r"n_step has no value: write n_step=VALUE"),
        ("n_stp", r"has no setting 'n_stp'; did you mean n_step\?"),
        ("learn=3", r"has no setting 'learn'; did you mean learning_rate or learning_starts\?"),
        ("learning=3", r"has no setting 'learning'; did you mean learning_rate or learning_starts\?"),
        ("n_stp=3", r"has no setting 'n_stp'; did you mean n_step\?"),
        ("n_step=three", r"\[agent\] n_step is 'three', and must be an int"),
        ("n_step=0", r"with n_step=0: n_step is 0, and must be at least 1"),
        ("max_env_steps=1.5", r"\[run\] max_env_steps is 1.5, and must be an int"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_name(setting, message):
    preset = agents.find("apex-dqn").load_preset("CartPole-v1")
    with pytest.raises(presets.PresetError, match=message):
        presets.override(preset, [setting])


@pytest.mark.parametrize("agent", AGENTS)
def test_agents_that_support_prefetch_use_it_and_the_others_raise_the_reason(agent, harness, until):
    one = harness(agent)
    if not one.needs.draws_ahead:
        with pytest.raises(TypeError, match="no table that it draws from ahead"):
            one.learner.draw_ahead(2)
        return
    one.learn(1)
    one.client.configure(one.needs.name, rate_limiter=reverie.rate_limiters.MinSize(1))
    counts, tables = [], one.client.info
    one.learner.draw_ahead(2)
    for _ in range(3):
        until(one.learner.fetch)
        one.learner.learn()
    until(lambda: tables().tables[one.needs.name].num_samples > (4 + 1) * one.needs.batch_size)
    one.learner.draw_ahead(0)
    state = one.learner.state_dict()
    ahead = state["draws"]["ahead"]
    assert one.learner.metrics()["draws"] == 4 * one.needs.batch_size
    assert (4 + len(ahead)) * one.needs.batch_size == tables().tables[one.needs.name].num_samples
    # Learnt from by another one, each once, before anything more is drawn.
    other = harness(agent, seed=1)
    other.learner._client = one.client
    other.learner.load_state_dict(state)
    before = tables().tables[one.needs.name].num_samples
    for _ in ahead:
        counts.append(tables().tables[one.needs.name].num_samples)
        other.learner.learn()
    assert counts == [before] * len(ahead) != []
    other.learner.learn()
    assert tables().tables[one.needs.name].num_samples == before + one.needs.batch_size


@pytest.mark.parametrize("name", ["apex-dqn", "apex-dpg"])
def test_priorities_of_prefetched_batches_reach_the_drawn_items(name, harness, until):
    one = harness(agents.find(name))
    one.learn(1)
    one.client.configure(one.needs.name, rate_limiter=reverie.rate_limiters.MinSize(1))
    drawn, update, updates = [], one.learner._update, one.client.update_priorities

    def noting(data, weights):
        priorities, figures = update(data, weights)
        drawn.append((data["obs"].clone(), priorities.double().numpy()))
        return priorities, figures

    def checking(table, keys, priorities):
        obs, reported = drawn[-1]
        assert (one.client.get(table, keys).data["obs"] == obs.numpy()).all()
        assert (priorities == reported).all()
        return updates(table, keys, priorities)

    one.learner._update = noting

    class Checking:
        update_priorities = staticmethod(checking)

        def __getattr__(self, attribute):
            return getattr(one.client, attribute)

    one.learner._client = Checking()
    one.learner.draw_ahead(2)
    for _ in range(10):
        until(one.learner.fetch)
        one.learner.learn()
    one.learner.draw_ahead(0)
    assert len(drawn) == 10
    assert one.learner.metrics()["priorities_applied"] >= 11 * one.needs.batch_size - 11


def test_none_takes_a_presets_value_away_where_a_setting_may_have_none():
    preset = agents.find("dqn").load_preset("CartPole-v1")
    assert preset.run.target_return is not None
    changed = presets.override(preset, ["target_return=none", "time_limit=none", "replay_compression=none"])
    assert changed.run.target_return is None
    assert changed.environment.time_limit is None
    assert changed.run.replay_compression == "none", "a word of the setting itself"
    with pytest.raises(presets.PresetError, match="max_env_steps is 'none', and must be an int"):
        presets.override(preset, ["max_env_steps=none"])


@pytest.mark.parametrize("name", ["seed", "seeds"])
def test_a_seed_as_a_setting_names_the_flag(name):
    preset = agents.find("dqn").load_preset("CartPole-v1")
    for call in (lambda: presets.override(preset, [f"{name}=3"]), lambda: presets.setting_named(name, preset)):
        with pytest.raises(presets.PresetError, match=r"a seed is not a setting; give --seed, or --seeds"):
            call()
