"""Learning rates of every agent, which settings change during a run; and functions, which no setting may be."""

import dataclasses
import functools
import json
import re

import pytest

torch = pytest.importorskip("torch")

import reverie  # noqa: E402
from reverie import agents  # noqa: E402
from reverie.agents.core import Stopwatch  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402
from reverie.agents.optimizers import FlatOptimizer  # noqa: E402
from reverie.agents.outcomes import DivergedError  # noqa: E402
from reverie.agents.presets import PresetError, changed  # noqa: E402
from reverie.agents.rates import AnnealSettings  # noqa: E402
from reverie.runners.reports.calls import DirectCalls  # noqa: E402
from reverie.runners.reports.scalar_logs import ScalarLog  # noqa: E402

SMALL = {"learning_starts": 32, "batch_size": 8, "unroll_length": 8, "minibatch_size": 8, "epochs": 1,
         "sequence_length": 4, "sequence_period": 4, "burn_in": 2, "lstm_units": 8}  # fmt: skip
UPDATES = 6


def rates_of(config):
    """The names of the learning rates of an agent's settings."""
    return {one.name for one in dataclasses.fields(config) if one.name.endswith("learning_rate")}


def with_small_networks(preset, **changes):
    names = {one.name for one in dataclasses.fields(preset.config)}
    own = {name: min(value, getattr(preset.config, name)) for name, value in SMALL.items() if name in names}
    widths = {name: (8,) for name in ("hidden", "policy_hidden", "critic_hidden") if hasattr(preset.config, name)}
    return dataclasses.replace(preset.config, **{**own, **widths, **changes})


class NoSink:
    """A sink of scalars that keeps nothing."""

    where = ""

    def begin(self, run):
        """Nothing to begin."""

    def add_scalars(self, step, scalars):
        """Nothing is kept."""

    def add_summary(self, step, summary):
        """Nothing is kept."""

    def close(self, outcome):
        """Nothing to close."""


@pytest.fixture
def made_at(monkeypatch):
    """The rates of the steps of every optimiser, and those they began with, since it was last emptied."""
    found, descend = [], FlatOptimizer.descend

    def recorded(optimizer, *args, **options):
        found.append((optimizer.rate, optimizer.param_groups[0]["initial_lr"]))
        return descend(optimizer, *args, **options)

    monkeypatch.setattr(FlatOptimizer, "descend", recorded)
    return found


@pytest.mark.parametrize("name", agents.BUILT_IN)
def test_every_agent_learns_at_rates_that_rise_and_fall_as_its_settings_say(name, made_at):
    agent = agents.find(name)
    spec = describe("Pendulum-v1" if agent.actions == "continuous" else "CartPole-v1")
    preset = agent.load_preset(spec.env_id)
    all_steer = {"conservative_threshold": 1.0} if hasattr(preset.config, "conservative_threshold") else {}
    config = with_small_networks(
        preset, anneal_updates=4, anneal_to=0.1, anneal_shape="cosine", warmup_updates=2, **all_steer
    )
    needs, options = agent.needs(config), {"seed": 0, "watch": Stopwatch()}
    with reverie.Server(agent.make_tables(spec, config, seed=0), listen=False) as server:
        client = server.client()
        learner = agent.make_learner(spec, config, client, **options)
        count = agent.layout(config)[0]
        actors = [agent.make_actor(spec, config, client, learner, index=i, **options) for i in range(count)]
        for turn in range(1_000_000):
            if learner.version == UPDATES:
                break
            table = needs.table_of(turn % count)
            if client.can_sample(table, needs.batch_size):
                made_at.clear()
                version = learner.version
                learner.learn()
                assert made_at
                for rate, first in made_at:
                    assert rate == pytest.approx(first * config.rate_share(version))
                share = 1.0 if learner.version == version else config.rate_share(version)  # a dropped gradient
                reported = {key: rate for key, rate in learner.metrics().items() if key.endswith("learning_rate")}
                assert reported == {key: pytest.approx(getattr(config, key) * share) for key in rates_of(config)}
            else:
                actors[turn % count].act()
        for actor in actors:
            actor.close()


def test_a_rate_rises_in_a_line_and_then_falls_in_a_line_or_in_half_a_wave():
    linear = AnnealSettings(anneal_updates=100, anneal_to=0.2, warmup_updates=4)
    assert [linear.rate_share(k) for k in (0, 1, 3)] == pytest.approx([0.25, 0.5 * 0.99, 0.97])
    assert [linear.rate_share(k) for k in (50, 80, 100, 10**6)] == pytest.approx([0.5, 0.2, 0.2, 0.2])
    cosine = AnnealSettings(anneal_updates=100, anneal_to=0.2, anneal_shape="cosine")
    assert [cosine.rate_share(k) for k in (0, 50, 100, 10**6)] == pytest.approx([1.0, 0.6, 0.2, 0.2])
    assert AnnealSettings().rate_share(10**6) == 1.0
    with pytest.raises(ValueError, match="anneal_shape is 'step', and must be"):
        AnnealSettings(anneal_shape="step")
    with pytest.raises(ValueError, match="warmup_updates is -1"):
        AnnealSettings(warmup_updates=-1)


def test_a_resumed_learner_goes_on_at_the_rate_of_its_update_and_not_from_a_rate_that_has_fallen(make_fake_replay):
    agent, spec = agents.find("sac"), describe("Pendulum-v1")
    config = with_small_networks(agent.load_preset("Pendulum-v1"), anneal_updates=10, anneal_to=0.0)
    learners = [agent.make_learner(spec, config, None, seed=0, watch=Stopwatch()) for _ in range(2)]
    for learner in learners:
        learner._learn_as_drawn = lambda *args: None
    learners[0].version = 5
    learners[0].learn()
    learners[1].load_state_dict(learners[0].state_dict())
    learners[1].learn()
    learners[1].learn()
    rates = [[one.param_groups[0]["lr"] for one in learner._optimizers.values()] for learner in learners]
    halves = [config.policy_learning_rate / 2, config.critic_learning_rate / 2, config.temperature_learning_rate / 2]
    assert rates == [pytest.approx(halves)] * 2


def test_rates_that_no_setting_changes_are_left_to_a_learner_that_changes_its_own():
    agent, spec = agents.find("sac"), describe("Pendulum-v1")
    learner = agent.make_learner(spec, agent.load_preset(spec.env_id).config, None, seed=0, watch=Stopwatch())
    learner._learn_as_drawn = lambda *args: None
    learner.learn()
    learner._optimizers["policy"].param_groups[0]["lr"] = 1e-9
    learner.learn()
    assert learner._optimizers["policy"].rate == 1e-9


def test_the_rate_to_lower_after_a_divergence_is_that_of_the_settings_and_not_the_share_of_a_step():
    agent, spec = agents.find("sac"), describe("Pendulum-v1")
    config = with_small_networks(agent.load_preset(spec.env_id), warmup_updates=1_000, critic_learning_rate=0.25)
    learner = agent.make_learner(spec, config, None, seed=0, watch=Stopwatch())

    def diverge(*args):
        assert learner._optimizers["critics"].rate == pytest.approx(0.25 / 1_000)
        learner._check({"loss": float("nan")})

    learner._learn_as_drawn = diverge
    rates = ["policy_learning_rate (0.001)", "critic_learning_rate (0.25)", "temperature_learning_rate (0.001)"]
    with pytest.raises(DivergedError, match=f"lower {re.escape(', '.join(rates))}$"):
        learner.learn()


@pytest.mark.parametrize(
    ("rates", "words"), [({"a_rate": 0.5, "b_rate": 0.0}, "a_rate (0.5)"), ({}, "the learning rate")]
)
def test_a_rate_that_cannot_be_lower_is_not_named_after_a_divergence(rates, words):
    assert str(DivergedError(3, "loss", rates)).endswith(f"learning diverged; lower {words}")


def test_rates_are_reported_after_an_update_and_not_of_one_that_is_to_come():
    agent, spec = agents.find("dqn"), describe("CartPole-v1")
    learner = agent.make_learner(spec, agent.load_preset(spec.env_id).config, None, seed=0, watch=Stopwatch())
    assert "learning_rate" not in learner.metrics()


def test_a_run_reports_the_rate_of_each_update_in_its_log_and_in_logs_of_scalars(tmp_path):
    class Sink(NoSink):
        def __init__(self):
            self.rows = []

        def add_scalars(self, step, scalars):
            self.rows.append(scalars)

    sink = Sink()
    log = ScalarLog(sink, "sink", DirectCalls())
    result = reverie.train(
        "td3",
        "Pendulum-v1",
        max_env_steps=140,
        learning_starts=64,
        anneal_updates=1_000_000,
        anneal_to=0.5,
        warmup_updates=10_000,
        folder=tmp_path,
        on_event=log,
    )
    config, updates = result.topology.config, result.learner["updates"]
    wanted = {name: getattr(config, name) * config.rate_share(updates - 1) for name in rates_of(config)}
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    last = [line["learner"] for line in lines if line["event"] == "progress"][-1]
    shown = [row for row in sink.rows if "learner/policy_learning_rate" in row][-1]
    assert len(wanted) == 2
    for name, rate in wanted.items():
        assert last[name] == shown[f"learner/{name}"] == result.learner[name] == pytest.approx(rate)


FUNCTIONS = [
    ("ppo", "learning_rate", "a float", "; a learning rate falls with anneal_updates, anneal_to and anneal_shape,"),
    ("sac", "critic_learning_rate", "a float", "; a learning rate falls with anneal_updates, anneal_to and"),
    ("ppo", "clip", "a float", "; it falls with the learning rate if anneal_clip is true"),
    ("dqn", "discount", "a float", ""),
]


@pytest.mark.parametrize(("name", "setting", "words", "end"), FUNCTIONS)
def test_a_function_is_no_setting_and_the_error_names_those_that_do_it(name, setting, words, end):
    preset = agents.find(name).load_preset("Pendulum-v1" if name == "sac" else "CartPole-v1")
    wanted = f"{setting} is a function, and must be {words}: settings are saved in files{end}"
    with pytest.raises(PresetError, match=re.escape(wanted)):
        changed(preset, {setting: lambda progress: 1e-3 * progress})
    with pytest.raises(TypeError, match=re.escape(wanted)):
        dataclasses.replace(preset.config, **{setting: lambda progress: 1e-3 * progress})


class LinearSchedule:
    """A schedule with the attributes of Stable-Baselines3's."""

    def __call__(self, progress_remaining):
        return 1e-3 * progress_remaining


@pytest.mark.parametrize(
    "schedule", [LinearSchedule(), functools.partial(lambda rate, progress: rate * progress, 1e-3)]
)
def test_a_callable_object_is_no_setting_either(schedule):
    preset, kind = agents.find("ppo").load_preset("CartPole-v1"), type(schedule).__name__
    wanted = f"learning_rate is a callable {kind}, and must be a float: settings are saved"
    with pytest.raises(PresetError, match=rf"{wanted} in files; a learning rate falls with anneal_updates"):
        changed(preset, {"learning_rate": schedule})
    with pytest.raises(TypeError, match=r"learning_rate is <class '.*LinearSchedule'>, and must be a float$"):
        dataclasses.replace(preset.config, learning_rate=LinearSchedule)


@pytest.mark.parametrize(
    ("name", "setting", "words"),
    [
        ("sac", "learning_rate", "this agent has policy_learning_rate and critic_learning_rate"),
        ("td3", "lr", "this agent has policy_learning_rate and critic_learning_rate"),
        ("dqn", "lr_schedule", "learning rates fall with anneal_updates, anneal_to and anneal_shape"),
    ],
)
def test_names_of_other_libraries_for_rates_lead_to_the_settings(name, setting, words):
    preset = agents.find(name).load_preset("CartPole-v1" if name == "dqn" else "Pendulum-v1")
    with pytest.raises(PresetError, match=f"has no setting '{setting}': {words}"):
        changed(preset, {setting: 1e-3})
