import dataclasses

import numpy as np
import pytest

pytest.importorskip("torch")

from reverie.agents import preset_choice, presets
from reverie.agents.apex_dqn import agent as apex_dqn
from reverie.agents.apex_dqn.config import ApexDqnConfig
from reverie.agents.epsilon_ladder import epsilon_ladder

PRESETS = sorted(apex_dqn.presets.glob("*.toml"))


@pytest.fixture
def config():
    return apex_dqn.load_preset("CartPole-v1").config


def test_the_ladder_runs_from_0_4_to_0_4_to_the_eighth_in_equal_ratios():
    ladder = epsilon_ladder(8, 0.4, 7.0)
    assert ladder[0] == pytest.approx(0.4)
    assert ladder[-1] == pytest.approx(0.4**8)
    assert ladder[1:] / ladder[:-1] == pytest.approx(np.full(7, 0.4))


def test_a_single_environment_decays_along_the_ladder_and_stays_at_its_end(config):
    config = dataclasses.replace(config, epsilon_base=0.4)
    walk = [config.epsilon_alone(step) for step in (0, 5_000, 10_000, 50_000)]
    assert walk == pytest.approx([0.4, 0.4**4.5, 0.4**8, 0.4**8])


@pytest.mark.parametrize("path", PRESETS, ids=lambda p: p.stem)
def test_every_preset_can_be_read(path):
    assert isinstance(apex_dqn.load_preset(preset_choice.environment_of(path), path).config, ApexDqnConfig)


def test_an_unknown_first_priority_is_refused(config):
    with pytest.raises(ValueError, match=r'first_priority is \'mean\', and must be "td_error" or "max"'):
        dataclasses.replace(config, first_priority="mean")


def test_an_agent_without_any_preset_asks_for_one(tmp_path):
    with pytest.raises(presets.PresetError, match=r"has no presets: write one, and name the file"):
        dataclasses.replace(apex_dqn, presets=tmp_path).load_preset("Blackjack-v1")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("batch_size =", "batchsize =", r"unknown setting 'batchsize'; did you mean batch_size\?"),
        ("n_step = ", "n_step = 0 #", r"n_step is 0, and must be at least 1"),
        ("discount = ", "discount = 1.5 #", r"discount is 1.5, and must lie in \[0, 1\]"),
        ("capacity = ", "capacity = 10 #", r"learning_starts is \d+, above the capacity of 10"),
        ("capacity = ", 'capacity = "many" #', r"\[agent\] capacity is 'many', and must be an int"),
        ("hidden = ", "hidden = [] #", r"hidden is \(\)"),
        ("hidden = ", "hidden = [1.5] #", r"hidden is \[1.5\]"),
        ("max_env_steps = ", "max_env_steps = 0 #", r"max_env_steps is 0"),
        ("[run]", "[running]", r"needs \[agent\] and \[run\]"),
        ("capacity = ", "# ", r"\[agent\] is missing capacity"),
        ("capacity = ", "capacity ", r"is not TOML"),
    ],
)
def test_a_wrong_preset_is_refused_with_the_file_and_the_name(tmp_path, old, new, message):
    text = (apex_dqn.presets / "CartPole-v1.toml").read_text()
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(presets.PresetError, match=message) as caught:
        apex_dqn.load_preset("CartPole-v1", path)
    assert str(path) in str(caught.value)
    assert caught.value.path == path


@pytest.mark.parametrize("prefetch", [None, 3])
def test_dumped_settings_are_read_back_unchanged_without_adding_defaults(tmp_path, prefetch):
    preset = apex_dqn.load_preset("CartPole-v1")
    preset = dataclasses.replace(preset, run=dataclasses.replace(preset.run, prefetch=prefetch))
    (tmp_path / "mine.toml").write_text(presets.dump(preset))
    again = apex_dqn.load_preset("-", tmp_path / "mine.toml")
    assert (again.config, again.run) == (preset.config, preset.run)


def test_ints_may_be_written_as_floats_and_floats_as_ints_but_not_as_strings():
    preset = apex_dqn.load_preset("CartPole-v1")
    changed = presets.override(preset, ["capacity=1e5", "learning_rate=1", "prefetch=3"])
    now = changed.config.capacity, changed.config.learning_rate, changed.run.prefetch
    assert (now, [type(value) for value in now]) == ((100_000, 1.0, 3), [int, float, int])
    for setting in ("capacity=1.5", "capacity=true", "learning_rate=true", "prefetch=2.5"):
        with pytest.raises(presets.PresetError, match=r"and must be (an int|a float)( |$)"):
            presets.override(preset, [setting])


@pytest.mark.parametrize("samples_per_insert", [0.25, 1.0, 7.3, 128.0])
@pytest.mark.parametrize("batch_size", [1, 32, 500])
def test_the_error_buffer_never_blocks_both_sides(config, samples_per_insert, batch_size):
    config = dataclasses.replace(config, samples_per_insert=samples_per_insert, batch_size=batch_size)
    low, high = (config.samples_per_insert * config.learning_starts + s * config.error_buffer for s in (-1, 1))
    for diff in np.linspace(low, high, 1_000):
        can_sample = diff - batch_size >= low
        can_insert = diff + config.inserts_per_act * samples_per_insert <= high
        assert can_sample or can_insert


def test_memory_grows_with_the_capacity_by_at_least_the_bytes_of_its_items(config):
    from reverie.agents.environments import describe

    spec = describe("CartPole-v1")
    small, large = (
        sum(apex_dqn.memory(spec, dataclasses.replace(config, capacity=c)).values()) for c in (50_000, 10**7)
    )
    assert large - small >= (10**7 - 50_000) * (2 * 16 + 8 + 4 + 4 + 8)
