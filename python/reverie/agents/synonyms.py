"""The names that other libraries, such as Stable-Baselines3 and CleanRL, have for settings and arguments of a run."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import fields
from importlib import import_module

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
    "clip_range_vf": ("value_clip",),
    "ent_coef": ("entropy_coefficient",),
    "vf_coef": ("value_coefficient",),
    "normalize_advantage": ("normalise_advantages",),
    "exploration_initial_eps": ("epsilon_start",),
    "exploration_final_eps": ("epsilon_end",),
    "net_arch": ("hidden",),
    "num_envs": ("envs_per_actor",),
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
    "alpha": ("priority_exponent",),
    "prioritized_replay_beta0": ("importance_exponent",),
    "importance_sampling_exponent": ("importance_exponent",),
    "max_replay_size": ("capacity",),
    "min_replay_size": ("learning_starts",),
    "target_update_period": ("target_period",),
}
"""Names with the same meaning and the same values; of several settings the first that the agent has."""

UPDATES = (
    "samples_per_insert is the number of draws for each step that is stored, which is batch_size times the updates for"
    " each step"
)

HINTS: dict[str, tuple[str, str]] = {
    "n_envs": ("envs_per_actor", "envs_per_actor is the number for each of num_actors"),
    "eval_freq": ("evaluate_every", "evaluate_every counts the steps of all environments together"),
    "eval_env": ("evaluation_env", "evaluation_env takes the id of an environment, or its class"),
    "save_freq": ("checkpoint_every", "checkpoint_every counts the steps of all environments together"),
    "train_freq": ("samples_per_insert", UPDATES),
    "gradient_steps": ("samples_per_insert", UPDATES),
    "train_frequency": ("samples_per_insert", UPDATES),
    "utd": ("samples_per_insert", UPDATES),
    "utd_ratio": ("samples_per_insert", UPDATES),
    "replay_ratio": ("samples_per_insert", UPDATES),
    "updates_per_step": ("samples_per_insert", UPDATES),
    "target_update_interval": ("target_period", "target_period counts updates"),
    "target_network_frequency": ("target_period", "target_period counts updates"),
    "exploration_fraction": ("epsilon_steps", "epsilon_steps is the number of environment steps"),
    "learning_rate": (
        "policy_learning_rate",
        "this agent has policy_learning_rate and critic_learning_rate",
    ),
    "lr": ("policy_learning_rate", "this agent has policy_learning_rate and critic_learning_rate"),
    "lr_schedule": ("anneal_updates", "learning rates fall with anneal_updates, anneal_to and anneal_shape"),
    "learning_rate_schedule": ("anneal_updates", "learning rates fall with anneal_updates, anneal_to and anneal_shape"),
    "anneal_lr": ("anneal_updates", "learning rates fall with anneal_updates, anneal_to and anneal_shape"),
    "ent_coef": (
        "initial_temperature",
        "the temperature is learnt, from initial_temperature on; temperature_learning_rate=0 keeps it there",
    ),
    "alpha": (
        "initial_temperature",
        "the temperature is learnt, from initial_temperature on; temperature_learning_rate=0 keeps it there",
    ),
    "autotune": ("temperature_learning_rate", "temperature_learning_rate=0 keeps the temperature where it starts"),
    "target_entropy": ("entropy_per_action", "entropy_per_action is that of each number of an action, -1 in the paper"),
    "num_minibatches": ("minibatch_size", "minibatch_size is the number of steps in each"),
    "clip_vloss": ("value_clip", "value_clip is how far a value can move, and 0 is no limit"),
    "use_sde": ("noise_theta", "noise_theta below 1 lets the noise of a step resemble that of the last one"),
    "hidden": ("policy_hidden", "this agent has policy_hidden and critic_hidden"),
    "net_arch": ("policy_hidden", "this agent has policy_hidden and critic_hidden"),
    "policy": (
        "network",
        "observations decide the layers, settings that end in hidden have their widths, and network takes layers of"
        " your own",
    ),
    "policy_kwargs": (
        "network",
        "settings that end in hidden have the widths of the layers, and network takes layers of your own",
    ),
    "action_noise": ("noise_sigma", "noise_sigma is the deviation of the noise"),
    "replay_buffer_class": ("capacity", "every agent has its table; prioritized and her are settings of some"),
    "replay_buffer_kwargs": ("capacity", "every agent has its table; prioritized and her are settings of some"),
    "callback": ("on_event", "on_event takes functions that get the events of the run"),
    "callbacks": ("on_event", "on_event takes functions that get the events of the run"),
    "verbose": ("on_event", "on_event takes functions that get the events of the run"),
    "progress_bar": ("on_event", "on_event takes functions that get the events of the run"),
    "log_interval": ("on_event", "on_event takes functions that get the progress of the run about ten times a second"),
    "tensorboard_log": (
        "on_event",
        "on_event takes reverie.runners.reports.scalar_logs.TensorBoard(FOLDER), and the command has --log tensorboard",
    ),
    "best_model_save_path": ("folder", "a run with a folder keeps its best policy there, in best.safetensors"),
    "log_path": ("folder", "a run with a folder keeps its log there"),
    "save_model": ("folder", "a run with a folder keeps checkpoints and its best policy there"),
    "capture_video": ("folder", "of a run with a folder, reverie eval FOLDER --video FILE records an episode"),
    "reset_num_timesteps": (
        "resume",
        "resume=True continues a run and its counters, init_from begins one with weights",
    ),
}
"""The setting or argument of `reverie.train` for names with another meaning or other values, and how it differs."""


def synonym(name: str, known: Collection[str]) -> str:
    """The setting that another library calls so, with the same values; empty without one, and where a hint applies."""
    if HINTS.get(name, ("",))[0] in known:
        return ""
    return next((one for one in SYNONYMS.get(name, ()) if one in known), "")


def suggestion(name: str, known: Sequence[str]) -> str:
    """The end of an error about an unknown name: the setting that it means, agents with it, the nearest, or all.

    The nearest one is not for names of other libraries: the setting that they mean is another one.
    """
    if setting := synonym(name, known):
        return f"; did you mean {setting}?"
    setting, words = HINTS.get(name, ("", ""))
    if setting in known:
        return f": {words}"
    for meant in filter(None, (name, *SYNONYMS.get(name, ()), setting)):
        if others := agents_with(meant):
            what = "it" if meant == name else f"{meant} in its place"
            return f", and other agents have {what}: {', '.join(others)}"
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"


def agents_with(name: str) -> list[str]:
    """The agents of this package that have a setting, which are imported for it."""
    configs = {one: import_module(f"{__package__}.{one.replace('-', '_')}").agent.config for one in AGENTS}
    return [one for one, config in configs.items() if name in {field.name for field in fields(config)}]
