"""The names that other libraries, such as Stable-Baselines3 and CleanRL, have for settings and arguments of a run."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import fields
from importlib import import_module
from typing import NamedTuple

from reverie.agents.built_in import AGENTS

SYNONYMS: dict[str, tuple[str, ...]] = {
    "lr": ("learning_rate",),
    "gamma": ("discount",),
    "tau": ("target_rate",),
    "buffer_size": ("capacity",),
    "batch_size": ("minibatch_size",),
    "total_timesteps": ("max_env_steps",),
    "max_steps": ("max_env_steps",),
    "n_eval_episodes": ("screening_episodes",),
    "n_epochs": ("epochs",),
    "n_steps": ("unroll_length", "n_step"),
    "clip_range": ("clip",),
    "ent_coef": ("entropy_coefficient",),
    "normalize_advantage": ("normalise_advantages",),
    "exploration_initial_eps": ("epsilon_start",),
    "exploration_final_eps": ("epsilon_end",),
    "num_steps": ("unroll_length",),
    "update_epochs": ("epochs",),
    "clip_coef": ("clip",),
    "norm_adv": ("normalise_advantages",),
    "lam": ("gae_lambda",),
    "start_e": ("epsilon_start",),
    "end_e": ("epsilon_end",),
    "policy_lr": ("policy_learning_rate",),
    "actor_lr": ("policy_learning_rate",),
    "q_lr": ("critic_learning_rate",),
    "critic_lr": ("critic_learning_rate",),
    "policy_delay": ("policy_period",),
    "policy_frequency": ("policy_period",),
    "target_policy_noise": ("smoothing_sigma",),
    "policy_noise": ("smoothing_sigma",),
    "target_noise_clip": ("smoothing_clip",),
    "noise_clip": ("smoothing_clip",),
    "exploration_noise": ("noise_sigma",),
    "prioritized_replay": ("prioritized",),
    "prioritized_replay_alpha": ("priority_exponent",),
    "prioritized_replay_beta0": ("importance_exponent",),
    "importance_sampling_exponent": ("importance_exponent",),
    "max_replay_size": ("capacity",),
    "min_replay_size": ("learning_starts",),
}
"""Names with the same meaning and the same values; of several settings the first that the agent has."""


class SettingHint(NamedTuple):
    """A setting, or an argument of `reverie.train`, for names with another meaning or other values."""

    names: tuple[str, ...]
    """The names of other libraries."""
    setting: str
    words: str
    """The difference, in words."""
    having: str = ""
    """The hint is for agents that have this setting; empty: for those that have `setting`."""

    def applies(self, name: str, known: Collection[str]) -> bool:
        """Whether it is for this name where these settings are known."""
        return name in self.names and {self.setting, self.having or self.setting} <= set(known)


HINTS: tuple[SettingHint, ...] = (
    SettingHint(("n_envs", "num_envs"), "envs_per_actor", "envs_per_actor is the number for each of num_actors"),
    SettingHint(("eval_freq",), "evaluate_every", "evaluate_every counts the steps of all environments together"),
    SettingHint(("eval_env",), "evaluation_env", "evaluation_env takes the id of an environment, or its class"),
    SettingHint(("save_freq",), "checkpoint_every", "checkpoint_every counts the steps of all environments together"),
    SettingHint(
        (
            *("train_freq", "gradient_steps", "train_frequency"),
            *("utd", "utd_ratio", "replay_ratio", "updates_per_step"),
        ),
        "samples_per_insert",
        "samples_per_insert is the number of draws for each step that is stored, which is batch_size times the updates"
        " for each step",
    ),
    SettingHint(
        ("target_update_interval", "target_network_frequency", "target_update_period"),
        "target_period",
        "target_period counts updates",
    ),
    SettingHint(
        ("tau",),
        "target_period",
        "for a tau of 1, target_period is the number of updates between two copies; an agent that has target_rate takes"
        " a smaller tau there, applies it at every update, and makes no copies then",
    ),
    SettingHint(
        ("tau",),
        "expectile",
        "the paper's tau is expectile; target_rate is how far the target critics move at every update",
    ),
    SettingHint(
        ("buffer_size",), "capacity", "capacity counts sequences, of sequence_length steps each", "sequence_length"
    ),
    SettingHint(
        ("buffer_size",), "capacity", "capacity is that of each table, and bundled actors have one each", "bundled"
    ),
    SettingHint(("exploration_fraction",), "epsilon_steps", "epsilon_steps is the number of environment steps"),
    SettingHint(
        ("learning_rate", "lr"),
        "policy_learning_rate",
        "this agent has policy_learning_rate and critic_learning_rate",
    ),
    SettingHint(
        ("lr_schedule", "learning_rate_schedule", "anneal_lr"),
        "anneal_updates",
        "learning rates fall with anneal_updates, anneal_to and anneal_shape",
    ),
    SettingHint(
        ("ent_coef", "alpha"),
        "initial_temperature",
        "the temperature is learnt, from initial_temperature on; temperature_learning_rate=0 keeps it there",
    ),
    SettingHint(("alpha",), "conservative_weight", "conservative_weight is the alpha of CQL"),
    SettingHint(("alpha",), "priority_exponent", "priority_exponent is the alpha of prioritized replay"),
    SettingHint(
        ("autotune",),
        "temperature_learning_rate",
        "temperature_learning_rate=0 keeps the temperature where it starts",
    ),
    SettingHint(
        ("target_entropy",),
        "entropy_per_action",
        "entropy_per_action is that of each number of an action, -1 in the paper",
    ),
    SettingHint(
        ("policy_frequency",),
        "policy_period",
        "policy_period is the number of updates of the critics for each of the policy; CleanRL's SAC makes as many of"
        " both, as policy_period=1 does",
        "entropy_per_action",
    ),
    SettingHint(
        ("vf_coef",),
        "value_coefficient",
        "value_coefficient is the weight of half the mean squared error, as in CleanRL; Stable-Baselines3 has the whole"
        " error, so that its 0.5 is 1.0 here",
    ),
    SettingHint(("num_minibatches",), "minibatch_size", "minibatch_size is the number of steps in each"),
    SettingHint(
        ("clip_vloss", "clip_range_vf"), "value_clip", "value_clip is how far a value can move, and 0 means no limit"
    ),
    SettingHint(
        ("use_sde",), "noise_theta", "noise_theta below 1 lets the noise of a step resemble that of the last one"
    ),
    SettingHint(
        ("policy",),
        "network",
        "observations decide the layers, settings that end in hidden have their widths, and network takes layers of"
        " your own",
    ),
    SettingHint(("hidden", "net_arch"), "policy_hidden", "this agent has policy_hidden and critic_hidden"),
    SettingHint(
        ("net_arch",),
        "hidden",
        "hidden is one list of widths: of images that of all layers after the convolutions, and with an LSTM that of"
        " the layers before it",
    ),
    SettingHint(
        ("policy_kwargs",),
        "network",
        "settings that end in hidden have the widths of the layers, and network takes layers of your own",
    ),
    SettingHint(("action_noise",), "noise_sigma", "noise_sigma is the deviation of the noise"),
    SettingHint(
        ("replay_buffer_class", "replay_buffer_kwargs"),
        "capacity",
        "every agent has its table; prioritized and her are settings of some",
    ),
    SettingHint(
        ("callback", "callbacks", "verbose", "progress_bar"),
        "on_event",
        "on_event takes functions that get the events of the run",
    ),
    SettingHint(
        ("log_interval",),
        "on_event",
        "on_event takes functions that get the progress of the run about ten times a second",
    ),
    SettingHint(
        ("tensorboard_log",),
        "on_event",
        "on_event takes reverie.runners.reports.scalar_logs.TensorBoard(FOLDER), and the command has --log tensorboard",
    ),
    SettingHint(
        ("best_model_save_path",), "folder", "a run with a folder keeps its best policy there, in best.safetensors"
    ),
    SettingHint(("log_path",), "folder", "a run with a folder keeps its log there"),
    SettingHint(("save_model",), "folder", "a run with a folder keeps checkpoints and its best policy there"),
    SettingHint(
        ("capture_video",), "folder", "of a run with a folder, reverie eval FOLDER --video FILE records an episode"
    ),
    SettingHint(
        ("reset_num_timesteps",),
        "resume",
        "resume=True continues a run and its counters, init_from begins one with weights",
    ),
)
"""Hints by names of other libraries; if several have a name, the first that applies is given."""
SEEDS = ("seed", "seeds")
"""Names of what a command and `reverie.train` take next to settings."""

MOST_LONGER = 5
"""The most settings that begin with an unknown name, for which an error lists them."""


def synonym(name: str, known: Collection[str]) -> str:
    """The setting that another library calls so, with the same values; empty without one, and where a hint applies."""
    if _hint(name, known) is not None:
        return ""
    return next((one for one in SYNONYMS.get(name, ()) if one in known), "")


def suggestion(name: str, known: Sequence[str]) -> str:
    """The end of an error about an unknown name: the setting that it means, agents with it, the nearest, or all.

    The nearest one is not for names of other libraries: the setting that they mean is another one.
    """
    if name in SEEDS:
        return ": a seed is not a setting; give --seed, or --seeds for several runs, and in Python seed="
    if setting := synonym(name, known):
        return f"; did you mean {setting}?"
    if hint := _hint(name, known):
        return f": {hint.words}"
    for meant in (name, *SYNONYMS.get(name, ()), *(one.setting for one in HINTS if name in one.names)):
        if others := agents_with(meant):
            what = "it" if meant == name else f"{meant} in its place"
            return f", and other agents have {what}: {', '.join(others)}"
    longer = [one for one in known if name and one.startswith(name)]
    if 1 < len(longer) <= MOST_LONGER:
        return f"; did you mean {', '.join(longer[:-1])} or {longer[-1]}?"
    near = longer if len(longer) == 1 else difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"


def has_hint(name: str) -> bool:
    """Whether there is a hint about this name, for any agent."""
    return any(name in one.names for one in HINTS)


def _hint(name: str, known: Collection[str]) -> SettingHint | None:
    return next((one for one in HINTS if one.applies(name, known)), None)


def agents_with(name: str) -> list[str]:
    """The agents of this package that have a setting, which are imported for it."""
    configs = {one: import_module(f"{__package__}.{one.replace('-', '_')}").agent.config for one in AGENTS}
    return [one for one, config in configs.items() if name in {field.name for field in fields(config)}]
