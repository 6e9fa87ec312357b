"""Names that other libraries have for settings: errors have the right one, and what differs."""

import dataclasses
import inspect
import re

import pytest

pytest.importorskip("torch")

from reverie import agents
from reverie.agents import presets
from reverie.agents.core import RunSettings
from reverie.agents.env_settings import EnvSettings
from reverie.agents.synonyms import HINTS, SYNONYMS
from reverie.runners import train

WITH_TARGET_PERIOD = [
    name
    for name in agents.BUILT_IN
    if "target_period" in {field.name for field in dataclasses.fields(agents.find(name).config)}
]


def env_of(agent):
    return "Pendulum-v1" if agents.find(agent).actions == "continuous" else "CartPole-v1"


@pytest.mark.parametrize(
    ("agent", "name", "words"),
    [
        ("ppo", "ent_coef", "; did you mean entropy_coefficient?"),
        ("sac", "ent_coef", ": the temperature is learnt, from initial_temperature on"),
        ("ppo", "clip_range", "; did you mean clip?"),
        ("ppo", "n_steps", "; did you mean unroll_length?"),
        ("dqn", "n_steps", "; did you mean n_step?"),
        ("ppo", "batch_size", "; did you mean minibatch_size?"),
        ("dqn", "n_envs", ": envs_per_actor is the number for each of num_actors"),
        ("dqn", "train_freq", ": samples_per_insert is the number of draws for each step that is stored"),
        ("dqn", "exploration_fraction", ": epsilon_steps is the number of environment steps"),
        ("dqn", "net_arch", ": hidden is one list of widths: of images that of all layers after the convolutions"),
        ("dqn", "buffer_size", "; did you mean capacity?"),
        ("r2d2", "buffer_size", ": capacity counts sequences"),
        ("gorila", "buffer_size", ": capacity is that of each table"),
        ("ppo", "vf_coef", ": value_coefficient is the weight of half the mean squared error, as in CleanRL; Stable"),
        ("ppo", "clip_range_vf", ": value_clip is how far a value can move, and 0 means no limit"),
        ("ppo", "num_envs", ": envs_per_actor is the number for each of num_actors"),
        ("dqn", "target_update_period", ": target_period counts updates"),
        ("dqn", "policy_kwargs", ": settings that end in hidden have the widths of the layers, and network takes"),
        ("dqn", "callback", ": on_event takes functions that get the events of the run"),
        ("dqn", "best_model_save_path", ": a run with a folder keeps its best policy there, in best.safetensors"),
        ("td3", "tau", "; did you mean target_rate?"),
        ("ppo", "tau", ", and other agents have target_rate in its place: apex-dqn, apex-dpg, ddpg"),
        *((name, "tau", ": for a tau of 1, target_period is the number of updates") for name in WITH_TARGET_PERIOD),
        ("iql", "tau", ": the paper's tau is expectile; target_rate is"),
        ("rainbow", "alpha", ": priority_exponent is the alpha of prioritized replay"),
        ("cql", "alpha", ": conservative_weight is the alpha of CQL"),
        ("cql-sac", "alpha", ": the temperature is learnt, from initial_temperature on"),
        ("td3", "policy_frequency", "; did you mean policy_period?"),
        ("sac", "policy_frequency", ": policy_period is the number of updates of the critics for each of the policy"),
        ("td3", "action_noise", ": noise_sigma is the deviation of the noise"),
        ("td3", "policy_delay", "; did you mean policy_period?"),
        ("td3", "target_policy_noise", "; did you mean smoothing_sigma?"),
        ("sac", "target_entropy", ": entropy_per_action is that of each number of an action, -1 in the paper"),
        ("sac", "q_lr", "; did you mean critic_learning_rate?"),
        ("ppo", "update_epochs", "; did you mean epochs?"),
        ("ppo", "anneal_lr", ": learning rates fall with anneal_updates, anneal_to and anneal_shape"),
        ("rainbow", "prioritized_replay_alpha", "; did you mean priority_exponent?"),
        (
            "ppo",
            "policy",
            ": observations decide the layers, settings that end in hidden have their widths, and",
        ),
        (
            "sac",
            "policy",
            ": observations decide the layers, settings that end in hidden have their widths, and",
        ),
        ("td3", "policy_kwargs", ": settings that end in hidden have the widths of the layers, and network takes"),
        ("sac", "net_arch", ": this agent has policy_hidden and critic_hidden"),
        ("d4pg", "hidden", ": this agent has policy_hidden and critic_hidden"),
        ("ppo", "target_entropy", ", and other agents have entropy_per_action in its place: sac, cql-sac"),
        ("dqn", "ent_coef", ", and other agents have entropy_coefficient in its place: ppo, impala"),
        ("rainbow", "policy_frequency", ", and other agents have policy_period in its place: td3, sac, cql-sac"),
        ("dqn", "prioritized", ", and other agents have it: ddpg, td3, sac, cql-sac, rainbow, d4pg"),
        ("sac", "max_grad_norm", ", and other agents have it: apex-dqn, dqn, gorila, ppo, impala, r2d2, cql, rainbow"),
    ],
)
def test_names_of_other_libraries_get_the_setting_or_the_argument_here(agent, name, words):
    with pytest.raises(presets.PresetError, match="^" + re.escape(f"{agent} has no setting {name!r}{words}")):
        train(agent, env_of(agent), **{name: 1})


def test_every_name_of_another_library_stands_for_a_setting_or_an_argument_that_exists():
    configs = [agents.find(name).config for name in agents.BUILT_IN]
    named = {field.name for one in (RunSettings, EnvSettings, *configs) for field in dataclasses.fields(one)}
    named |= set(inspect.signature(train).parameters)
    meant = [*(setting for several in SYNONYMS.values() for setting in several), *(one.setting for one in HINTS)]
    assert set(meant) | {one.having for one in HINTS if one.having} <= named
    theirs = {*SYNONYMS, *(name for one in HINTS for name in one.names)}
    assert theirs & named == {"batch_size", "learning_rate", "hidden"}, "some agents have them"


@pytest.mark.parametrize("name", agents.BUILT_IN)
def test_tau_is_searched_as_the_rate_only_where_the_target_is_never_copied(name):
    """A tau of 1, the default of other libraries' DQN, is a copy once in a period: as a rate it is one every update."""
    preset = agents.find(name).load_preset(env_of(name))
    known = {field.name for field in dataclasses.fields(preset.config)}
    if "target_rate" in known and not known & {"target_period", "expectile"}:
        assert presets.setting_named("tau", preset) == "target_rate"
    else:
        with pytest.raises(presets.PresetError, match="has no setting 'tau'"):
            presets.setting_named("tau", preset)
