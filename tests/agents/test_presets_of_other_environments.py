"""Environments without a preset: the settings of the nearest one, a target of their own, wrappers and time limits."""

import dataclasses
import pickle

import gymnasium
import numpy as np
import pytest

pytest.importorskip("torch")

from reverie import agents
from reverie.agents import preset_choice, presets
from reverie.agents.env_settings import EnvSettings
from reverie.agents.environments import UnsupportedEnvironmentError, describe, make_one
from reverie.agents.wrappers import ActionsFromZero
from reverie.runners import Evaluator, plan, train

DQN, CQL, GORILA, APEX = (agents.find(name) for name in ("dqn", "cql", "gorila", "apex-dqn"))
SAC, TD3, D4PG = (agents.find(name) for name in ("sac", "td3", "d4pg"))


class Halved(gymnasium.ObservationWrapper):
    """Observations with half their numbers, times `factor`."""

    def __init__(self, env, factor=1.0):
        super().__init__(env)
        self.factor, n = factor, env.observation_space.shape[0] // 2
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (n,), np.float32)

    def observation(self, observation):
        return (self.factor * observation[: len(observation) // 2]).astype(np.float32)


def broken(env):
    raise RuntimeError("no such thing")


def nothing(env):
    return None


HALVED = f"{__name__}:Halved"


def test_an_environment_without_a_preset_takes_settings_of_its_kind_and_its_own_target():
    found = CQL.load_preset("MountainCar-v0")
    cartpole = CQL.load_preset("CartPole-v1")
    assert found.config == cartpole.config
    assert found.run == dataclasses.replace(cartpole.run, target_return=-110.0)
    assert found.note == (
        "MountainCar-v0 takes the settings of the preset for CartPole-v1; its target is its own, -110"
    )
    assert cartpole.note == ""
    assert APEX.load_preset("CartPole-v0").path.stem == "CartPole-v1", "the nearest by name"
    assert SAC.load_preset("MountainCarContinuous-v0").run.target_return == 90.0


PPO = agents.find("ppo")


class Grid(gymnasium.Env):
    """A grid of bits, as MinAtar's games show."""

    observation_space = gymnasium.spaces.Box(0, 1, (10, 10, 4), bool)
    action_space = gymnasium.spaces.Discrete(6)

    def reset(self, *, seed=None, options=None):
        return np.zeros((10, 10, 4), bool), {}

    def step(self, action):
        return np.zeros((10, 10, 4), bool), 0.0, True, False, {}


@pytest.fixture
def grids():
    names = ("MinAtar/Asterix-v7", "MinAtar/Pong-v7", "Breakout-v7")
    for name in names:
        gymnasium.register(name, entry_point=Grid)
    yield
    for name in names:
        gymnasium.registry.pop(name)


@pytest.mark.parametrize(
    ("agent", "env_id", "stem"),
    [
        ("dqn", "MinAtar/Asterix-v7", "MinAtar_Breakout-v0"),
        ("dqn", "MinAtar/Pong-v7", "MinAtar_Breakout-v0"),  # and not Atari's Pong
        ("rainbow", "MinAtar/Asterix-v7", "MinAtar_Breakout-v0"),  # and not its defaults for images
        ("ppo", "MinAtar/Asterix-v7", "images"),
        ("rainbow", "Breakout-v7", "images"),
        ("dqn", "Breakout-v7", "ALE_Pong-v5"),  # images of no namespace are no grids
        ("impala", "MinAtar/Asterix-v7", "ALE_Pong-v5"),
    ],
)
def test_games_of_one_namespace_share_a_preset(grids, agent, env_id, stem):
    found = agents.find(agent).load_preset(env_id)
    assert found.path.stem == stem
    assert found.run.target_return is None


@pytest.mark.usefixtures("mujoco")
@pytest.mark.parametrize(
    ("agent", "env_id", "stem"),
    [
        ("sac", "Walker2d-v5", "HalfCheetah-v5"),
        ("td3", "Walker2d-v5", "HalfCheetah-v5"),
        ("d4pg", "Walker2d-v5", "HalfCheetah-v5"),
        ("sac", "Hopper-v5", "Hopper-v5"),
        ("td3", "Hopper-v5", "Hopper-v5"),
        ("d4pg", "Hopper-v5", "Hopper-v5"),
        ("ppo", "Hopper-v5", "continuous"),
    ],
)
def test_walkers_of_mujoco_share_a_preset_and_not_its_target(agent, env_id, stem):
    found = agents.find(agent).load_preset(env_id)
    assert found.path.stem == stem
    assert found.run.target_return == describe(env_id).reward_threshold
    assert SAC.load_preset("MountainCarContinuous-v0").path.stem == "continuous", "no walker"


def test_atari_games_take_the_settings_of_another_one_and_not_of_minatars(grids):
    pytest.importorskip("ale_py")
    assert DQN.load_preset("ALE/Breakout-v5").path.stem == "ALE_Pong-v5"


@pytest.mark.parametrize(
    ("agent", "env_id", "kind", "words"),
    [
        ("ppo", "Acrobot-v1", "discrete", "discrete actions; its target is its own, -100"),
        ("ppo", "MountainCarContinuous-v0", "continuous", "continuous actions; its target is its own, 90"),
        ("impala", "Acrobot-v1", "discrete", "discrete actions; its target is its own, -100"),
    ],
)
def test_an_agent_with_defaults_for_a_kind_gives_them_to_environments_without_a_preset(agent, env_id, kind, words):
    found = (of_kind := agents.find(agent)).load_preset(env_id)
    assert found.path == of_kind.presets / "defaults" / f"{kind}.toml"
    assert found.config == presets.load(found.path, of_kind.config).config
    assert found.note == f"{env_id} takes its agent's defaults for {words}"
    assert of_kind.load_preset(env_id, found.path) == found
    assert found.run.target_return == describe(env_id).reward_threshold


def test_presets_with_the_values_of_another_file_differ_in_nothing_else():
    for one in (SAC, TD3, D4PG):
        hopper, continuous = (
            presets.load(one.presets / name, one.config) for name in ("Hopper-v5.toml", "defaults/continuous.toml")
        )
        assert (hopper.config, hopper.environment) == (continuous.config, continuous.environment)
        assert hopper.run == dataclasses.replace(continuous.run, target_return=hopper.run.target_return)
    gorilas, dqns = (
        vars(presets.load(one.presets / "defaults" / "discrete.toml", one.config).config) for one in (GORILA, DQN)
    )
    differ = {name for name in dqns if gorilas[name] != dqns[name]}
    assert differ == {"num_actors", "envs_per_actor"}
    assert gorilas["num_actors"] * gorilas["envs_per_actor"] == dqns["num_actors"] * dqns["envs_per_actor"]


def test_another_version_of_an_environment_with_a_preset_takes_its_settings():
    found = PPO.load_preset("CartPole-v0")
    assert found.path.stem == "CartPole-v1"
    assert found.note.startswith("CartPole-v0 takes the settings of the preset for CartPole-v1;")


def test_defaults_normalise_no_observations_where_there_are_no_numbers():
    continuous = PPO.presets / "defaults" / "continuous.toml"
    assert presets.load(continuous, PPO.config).environment.normalise_observations
    spec = describe("FrozenLake-v1")  # one of 16 places
    asked = EnvSettings(normalise_observations=True, normalise_rewards=True)
    assert preset_choice._fitting(asked, spec) == EnvSettings(normalise_rewards=True)
    assert preset_choice._fitting(asked, describe("Pendulum-v1")) == asked
    plan(PPO, "FrozenLake-v1")


def test_defaults_for_images_are_those_of_games():
    pytest.importorskip("ale_py")
    found = PPO.load_preset("ALE/Breakout-v5")
    assert found.path == PPO.presets / "defaults" / "images.toml"
    assert found.config.shared_layers
    assert found.run.target_return is None


@pytest.mark.long
def test_images_take_the_settings_of_images_and_a_game_without_a_threshold_has_no_target():
    pytest.importorskip("ale_py")
    found = APEX.load_preset("ALE/Breakout-v5")
    assert found.path.stem == "ALE_Pong-v5"
    assert found.run.target_return is None
    assert found.note.endswith("it has no target and trains to its last step")
    assert "without a target, 3,000,000" in plan(APEX, "ALE/Breakout-v5", check_memory=False).describe()


@pytest.mark.parametrize("named", ["CartPole-v1", DQN.presets / "CartPole-v1.toml"])
def test_a_preset_of_another_environment_gives_its_settings_and_never_its_target(named):
    found = DQN.load_preset("Acrobot-v1", named)
    assert found.config == DQN.load_preset("CartPole-v1").config
    assert found.run.target_return == -100.0
    assert plan(DQN, "Acrobot-v1", preset=named).run.target_return == -100.0


def test_a_file_of_ones_own_keeps_its_target_and_one_without_has_none(tmp_path):
    text = (DQN.presets / "CartPole-v1.toml").read_text()
    own = tmp_path / "own.toml"
    own.write_text(text)
    assert DQN.load_preset("Acrobot-v1", own).run.target_return == 475.0
    own.write_text("\n".join(line for line in text.splitlines() if "target_return" not in line))
    assert DQN.load_preset("CartPole-v1", own).run.target_return is None


def test_the_replay_of_an_environment_without_a_preset_is_cut_to_what_its_observations_need(monkeypatch):
    monkeypatch.setattr(preset_choice, "DEFAULT_REPLAY_BYTES", 64 * 2_000)
    found = DQN.load_preset("Acrobot-v1")  # 6 float32, stored twice at most
    assert found.config.capacity == 64 * 2_000 // 48
    assert DQN.load_preset("CartPole-v1").config.capacity == 50_000, "a preset of its own stays as it is"


def test_wrappers_and_time_limit_come_from_the_preset_and_return_to_it(tmp_path):
    own = tmp_path / "own.toml"
    text = (DQN.presets / "CartPole-v1.toml").read_text()
    own.write_text(f'{text}\n[environment]\nwrappers = ["{HALVED}(factor=2.0)"]\ntime_limit = 7\n')
    preset = DQN.load_preset("CartPole-v1", own)
    assert preset.environment == EnvSettings(wrappers=(f"{HALVED}(factor=2.0)",), time_limit=7)
    (tmp_path / "again.toml").write_text(presets.dump(preset))
    assert DQN.load_preset("CartPole-v1", tmp_path / "again.toml").environment == preset.environment
    changed = presets.override(preset, ["time_limit=9", f'wrappers=["{HALVED}"]'])
    assert changed.environment == EnvSettings(wrappers=(HALVED,), time_limit=9)
    spec = plan(DQN, "CartPole-v1", preset=own).env
    assert spec.obs_shape == (2,)
    assert pickle.loads(pickle.dumps(spec)) == spec
    env = make_one(spec)
    plain = gymnasium.make("CartPole-v1")
    assert np.allclose(env.reset(seed=3)[0], 2 * plain.reset(seed=3)[0][:2])
    ends = [env.step(i % 2)[3] for i in range(7)]
    assert ends == [False] * 6 + [True]


def test_classes_may_be_given_as_wrappers_in_python_and_are_kept_by_name():
    assert EnvSettings(wrappers=[Halved]).wrappers == (HALVED,)
    with pytest.raises(ValueError, match="defined within a function"):
        EnvSettings(wrappers=(lambda env: env,))
    with pytest.raises(ValueError, match="wrappers: 3 is neither a text module:name nor a function or class"):
        EnvSettings(wrappers=(3,))


@pytest.mark.parametrize(
    ("wrapper", "reason"),
    [
        ("gymnasium.wrappers:Flatten", "cannot be imported: .*Flatten"),
        ("no_such_module:Wrapper", "cannot be imported: No module named 'no_such_module'"),
        (f"{__name__}:broken", "cannot wrap CartPole-v1: RuntimeError: no such thing"),
        (f"{__name__}:nothing", "returns a NoneType, and must return a gymnasium.Env"),
        (f"{__name__}:HALVED", "is a str, and must be a function or class"),
    ],
)
def test_a_wrapper_that_does_not_work_is_named_before_anything_starts(wrapper, reason):
    with pytest.raises(UnsupportedEnvironmentError, match=reason) as caught:
        plan(DQN, "CartPole-v1", environment=EnvSettings(wrappers=(wrapper,)))
    assert wrapper in str(caught.value)


@pytest.mark.parametrize("text", ["FlattenObservation", "a:b(c=d)", "a:b(*[1])", "a:b(**{})", "a b:c", ":c", "a:"])
def test_a_malformed_wrapper_is_refused_where_it_is_given(text):
    with pytest.raises(ValueError, match="is malformed: write module:name"):
        EnvSettings(wrappers=(text,))
    with pytest.raises(presets.PresetError, match="is malformed"):
        presets.override(DQN.load_preset("CartPole-v1"), [f"wrappers=['{text}']"])


def test_invalid_settings_of_environments_are_refused_by_name():
    with pytest.raises(ValueError, match="time_limit is 0, and must be at least 1"):
        EnvSettings(time_limit=0)
    with pytest.raises(ValueError, match="wrappers is 'a:b', and must be a list"):
        EnvSettings(wrappers="a:b")
    with pytest.raises(presets.PresetError, match=r"\[environment\] wrappers is 3, and must be a list of names"):
        presets.override(DQN.load_preset("CartPole-v1"), ["wrappers=3"])
    with pytest.raises(TypeError, match="environment is a dict"):
        plan(DQN, "CartPole-v1", environment={"time_limit": 3})


@pytest.mark.long
def test_atari_games_take_a_time_limit_and_no_wrappers():
    pytest.importorskip("ale_py")
    with pytest.raises(UnsupportedEnvironmentError, match="without wrappers: leave it out"):
        describe("ALE/Pong-v5", EnvSettings(wrappers=(HALVED,)))
    game = make_one(describe("ALE/Pong-v5", EnvSettings(time_limit=5)))
    game.reset(seed=1)
    assert [game.step(0)[3] for _ in range(5)][-1]


def test_a_run_without_a_target_trains_to_its_last_step_and_a_wrapper_reaches_actors_and_evaluators(tmp_path):
    config = dataclasses.replace(DQN.load_preset("CartPole-v1").config, learning_starts=50, hidden=(8,))
    run = dataclasses.replace(
        DQN.load_preset("CartPole-v1").run,
        target_return=None,
        max_env_steps=200,
        evaluate_every=100,
        screening_episodes=1,
        confirmation_episodes=1,
    )
    made = EnvSettings(wrappers=(HALVED,), time_limit=10)
    result = train(DQN, "CartPole-v1", config=config, run=run, environment=made, folder=tmp_path)
    assert not result.confirmed
    assert result.env_steps >= 200
    assert max(result.evaluation.returns) <= 10
    import reverie

    policy = reverie.load_policy(tmp_path)
    assert policy.spec.settings == made
    assert policy(np.zeros(2, np.float32)).shape == ()
    again = reverie.load_policy(policy.save(tmp_path / "policy.safetensors"))
    assert again.spec == policy.spec
    evaluator = Evaluator(again.spec, 1)
    assert evaluator.evaluate(again, [1]).mean_return <= 10
    evaluator.close()
    from reverie.runners.checkpoints import ChangedSettingsError

    longer = dataclasses.replace(run, max_env_steps=300)
    with pytest.raises(ChangedSettingsError, match="time_limit is None, and was 10, which cannot change"):
        train(
            DQN,
            "CartPole-v1",
            config=config,
            run=longer,
            environment=EnvSettings(wrappers=(HALVED,)),
            folder=tmp_path,
            resume=True,
        )


class Shifted(Grid):
    """Choices 1 and 2 of an observation of numbers; the reward is the choice."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2, start=1)

    def reset(self, *, seed=None, options=None):
        return np.zeros(4, np.float32), {}

    def step(self, action):
        assert action in (1, 2)
        return np.zeros(4, np.float32), float(action), True, False, {}


class AsGrid(gymnasium.ObservationWrapper):
    """Four numbers as an image."""

    observation_space = gymnasium.spaces.Box(0, 1, (10, 10, 4), bool)

    def observation(self, observation):
        return np.zeros((10, 10, 4), bool)


FROM_ZERO = "reverie.agents.wrappers:ActionsFromZero"
gymnasium.register("ReverieShiftedChoices-v0", Shifted)


@pytest.mark.parametrize("wrapper", [FROM_ZERO, ActionsFromZero])
def test_the_wrapper_that_a_refusal_names_lets_an_environment_without_a_preset_be_learnt(wrapper):
    short = {"max_env_steps": 60, "evaluate_every": 30, "learning_starts": 20, "hidden": (8,)}
    with pytest.raises(UnsupportedEnvironmentError, match=f"name {FROM_ZERO} in wrappers"):
        train("dqn", "ReverieShiftedChoices-v0", **short)
    for given in ({"wrappers": [wrapper]}, {"environment": EnvSettings(wrappers=(wrapper,))}):
        result = train("dqn", "ReverieShiftedChoices-v0", **short, **given)
        assert result.evaluation.mean_return in (1.0, 2.0)
        assert result.topology.env.settings.wrappers == (FROM_ZERO,)


def test_the_kind_of_an_environment_is_that_of_its_wrapped_observations():
    wrappers = (FROM_ZERO, f"{__name__}:AsGrid")
    found = PPO.load_preset("ReverieShiftedChoices-v0", environment={"wrappers": wrappers})
    assert found.path.stem == "images"
    assert found.environment.wrappers == wrappers
    only = PPO.load_preset("ReverieShiftedChoices-v0", environment={"wrappers": (FROM_ZERO,)})
    assert only.path.stem == "discrete"
    assert plan(PPO, "ReverieShiftedChoices-v0", environment=EnvSettings(wrappers=wrappers)).preset == found.path


def test_changed_settings_of_the_environment_are_in_a_preset_however_it_is_found():
    own = DQN.load_preset("CartPole-v1", environment={"time_limit": 7})
    named = DQN.load_preset("Acrobot-v1", "CartPole-v1", {"time_limit": 7})
    nearest = GORILA.load_preset("Acrobot-v1", environment={"time_limit": 7})
    assert [one.environment for one in (own, named, nearest)] == [EnvSettings(time_limit=7)] * 3
    wrong = r"^settings of gorila: \[environment\] time_limit is 'long', and must be an int"
    with pytest.raises(presets.PresetError, match=wrong):
        GORILA.load_preset("Acrobot-v1", environment={"time_limit": "long"})


def test_the_note_names_the_environment_for_evaluations_whose_threshold_is_the_target():
    found = GORILA.load_preset("MountainCar-v0", environment={"evaluation_env": "MountainCar-v0(goal_velocity=0.01)"})
    assert found.note.endswith("; its target is that of MountainCar-v0(goal_velocity=0.01), -110")
