import copy
import dataclasses
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

pytest.importorskip("torch")

from reverie import agents
from reverie.agents import presets
from reverie.agents.env_settings import EnvSettings
from reverie.agents.log_settings import LogSettings
from reverie.agents.settings import Settings

DQN = agents.find("dqn")


@pytest.fixture
def preset():
    return DQN.load_preset("CartPole-v1")


def test_scalars_and_arrays_of_numpy_become_values_of_python(preset, tmp_path):
    config = dataclasses.replace(
        preset.config,
        learning_rate=np.float64(0.5),
        discount=np.float32(0.5),
        capacity=np.int64(60_000),
        layer_norm=np.bool_(True),
        hidden=[np.int64(8), np.int32(9)],
        her=np.str_("future"),
    )
    values = [getattr(config, n) for n in ("learning_rate", "discount", "capacity", "layer_norm", "hidden", "her")]
    assert values == [0.5, 0.5, 60_000, True, (8, 9), "future"]
    assert [type(value) for value in values] == [float, float, int, bool, tuple, str]
    assert [type(width) for width in config.hidden] == [int, int]
    assert dataclasses.replace(config, hidden=np.array([3, 4])).hidden == (3, 4)

    run = dataclasses.replace(preset.run, target_return=np.float32(7), prefetch=np.int16(2), device=np.str_("cpu"))
    assert [type(value) for value in (run.target_return, run.prefetch, run.device)] == [float, int, str]
    environment = EnvSettings(time_limit=np.int64(9), normalise_rewards=np.bool_(True))
    assert [type(value) for value in (environment.time_limit, environment.normalise_rewards)] == [int, bool]

    changed = dataclasses.replace(preset, config=config, run=run, environment=environment)
    (tmp_path / "mine.toml").write_text(presets.dump(changed))
    again = DQN.load_preset("-", tmp_path / "mine.toml")
    assert (again.config, again.run, again.environment) == (config, run, environment)


def test_numbers_are_converted_as_those_of_files(preset):
    config = dataclasses.replace(preset.config, learning_rate=1, capacity=1e6)
    assert (type(config.learning_rate), type(config.capacity)) == (float, int)
    run = dataclasses.replace(preset.run, target_return=100, replay_disk=Path("disk"))
    assert (type(run.target_return), run.replay_disk) == (float, "disk")


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("learning_rate", "1e-3", "a float"),
        ("hidden", 32, "a list of integers such as [128, 128]"),
        ("hidden", [32, 1.5], "a list of integers such as [128, 128]"),
        ("huber_delta", None, "a float"),
        ("layer_norm", "yes", "a bool"),
        ("layer_norm", 1, "a bool"),
        ("batch_size", True, "an int"),
        ("batch_size", 1.5, "an int"),
        ("learning_rate", 10**400, "a float"),
        ("precision", 32, "a str"),
        ("max_env_steps", "9", "an int"),
        ("target_return", "a", "a float"),
        ("device", 0, "a str"),
        ("time_limit", "9", "an int"),
        ("normalise_rewards", "no", "a bool"),
    ],
)
def test_a_value_of_another_type_is_refused_by_the_name_of_its_setting(preset, name, value, wanted):
    (settings,) = (one for one in (preset.config, preset.run, preset.environment) if hasattr(one, name))
    with pytest.raises(TypeError) as caught:
        dataclasses.replace(settings, **{name: value})
    assert str(caught.value) == f"{name} is {value!r}, and must be {wanted}"


@pytest.mark.parametrize("name", agents.BUILT_IN)
def test_every_setting_of_every_agent_refuses_another_type_by_its_name(name):
    agent = agents.find(name)
    config = presets.load(sorted(agent.presets.glob("*.toml"))[0], agent.config).config
    for field in dataclasses.fields(config):
        with pytest.raises(TypeError, match=f"^{field.name} is {{}}, and must be "):
            dataclasses.replace(config, **{field.name: {}})


def test_logs_are_a_list_of_words():
    assert LogSettings(to=["wandb"], tags=[np.str_("a")]) == LogSettings(to=("wandb",), tags=("a",))
    with pytest.raises(TypeError, match="to is 'wandb', and must be a list of words"):
        LogSettings(to="wandb")


@dataclass(frozen=True, kw_only=True)
class Mine(Settings):
    gains: tuple[float, ...] = (1.0,)
    pair: tuple[int, float] = (1, 1.0)
    rule: Literal["a", "b"] = "a"
    depth: int | str | None = None
    more: dict | None = None


def test_settings_of_other_packages_are_converted_by_their_base_class():
    found = Mine(gains=[1, np.float32(0.5)], pair=[2.0, 3], rule="b", depth=np.int64(3), more={"a": 1})
    assert found == Mine(gains=(1.0, 0.5), pair=(2, 3.0), rule="b", depth=3, more={"a": 1})
    assert [type(one) for one in (*found.gains, *found.pair, found.depth)] == [float, float, int, float, int]
    assert Mine(depth="all").depth == "all"
    for wrong, wanted in (
        ({"gains": 1.0}, r"gains is 1\.0, and must be a list of numbers"),
        ({"pair": (1,)}, r"pair is \(1,\), and must be tuple\[int, float\]"),
        ({"rule": "c"}, "rule is 'c', and must be 'a' or 'b'"),
        ({"depth": 1.5}, "depth is 1.5, and must be an int or a str"),
    ):
        with pytest.raises(TypeError, match=wanted):
            Mine(**wrong)


@dataclass(frozen=True, kw_only=True)
class Plain:
    rate: object = 1.0


def test_a_preset_is_written_with_values_of_toml_only(preset):
    plain = dataclasses.replace(preset, config=Plain(rate=np.float64(0.001)))
    assert "rate = 0.001\n" in presets.dump(plain)
    with pytest.raises(TypeError, match=r"rate is .*Plain.*, which cannot be written to a preset file"):
        presets.dump(dataclasses.replace(preset, config=Plain(rate=Plain())))


def test_a_long_value_of_another_type_is_named_by_its_type_and_arrays_by_the_way_to_a_data_set():
    iql = agents.find("iql").load_preset("Pendulum-v1").config
    arrays = {"obs": np.zeros((1_000, 3)), "action": np.zeros((1_000, 1))}
    wanted = (
        r"^dataset is a dict, and must be a str; arrays become a data set as a Parquet file \(the guide 'Data sets'\)$"
    )
    with pytest.raises(TypeError, match=wanted):
        dataclasses.replace(iql, dataset=arrays)
    with pytest.raises(TypeError, match=r"^expectile is a list, and must be a float$"):
        dataclasses.replace(iql, expectile=list(range(1_000)))
    with pytest.raises(TypeError, match=r"^expectile is \[1, 2\], and must be a float$"):
        dataclasses.replace(iql, expectile=[1, 2])


class Undecorated(DQN.config):
    huber_scale: float = 1.0


class AnotherDefault(DQN.config):
    discount: float = 0.5


class OnlyMethods(DQN.config):
    def without_effect(self):
        return {}


@pytest.mark.parametrize(("config", "name"), [(Undecorated, "huber_scale"), (AnotherDefault, "discount")])
def test_settings_of_a_class_that_is_no_dataclass_are_refused_by_the_name_of_the_class(preset, config, name):
    words = rf"^{config.__name__} declares {name}, and is no dataclass: write @dataclass\(frozen=True, kw_only=True\)"
    for make in (
        lambda: config(**vars(preset.config)),
        lambda: config(**vars(preset.config), **{name: 2.0} if name == "huber_scale" else {}),
        lambda: dataclasses.replace(DQN, name="own", config=config).load_preset("CartPole-v1"),
    ):
        with pytest.raises(TypeError, match=words):
            make()


def test_a_class_of_settings_that_only_changes_methods_needs_no_decorator(preset):
    config = OnlyMethods(**vars(preset.config))
    assert vars(config) == vars(preset.config)
    assert copy.deepcopy(config) == config
    assert pickle.loads(pickle.dumps(config)) == config
