"""The names that other libraries, above all Stable-Baselines3, have for settings and arguments of a run."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence

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
}
"""Names with the same meaning and the same values; of several settings the first that the agent has."""

HINTS: dict[str, tuple[str, str]] = {
    "n_envs": ("envs_per_actor", "envs_per_actor is the number for each of num_actors"),
    "eval_freq": ("evaluate_every", "evaluate_every counts the steps of all environments together"),
    "eval_env": ("evaluation_env", "evaluation_env takes the id of an environment, or its class"),
    "save_freq": ("checkpoint_every", "checkpoint_every counts the steps of all environments together"),
    "train_freq": ("samples_per_insert", "samples_per_insert is the number of draws for each step that is stored"),
    "gradient_steps": ("samples_per_insert", "samples_per_insert is the number of draws for each step that is stored"),
    "target_update_interval": ("target_period", "target_period counts updates"),
    "exploration_fraction": ("epsilon_steps", "epsilon_steps is the number of environment steps"),
    "learning_rate": (
        "policy_learning_rate",
        "this agent has policy_learning_rate and critic_learning_rate",
    ),
    "lr": ("policy_learning_rate", "this agent has policy_learning_rate and critic_learning_rate"),
    "lr_schedule": ("anneal_updates", "learning rates fall with anneal_updates, anneal_to and anneal_shape"),
    "learning_rate_schedule": ("anneal_updates", "learning rates fall with anneal_updates, anneal_to and anneal_shape"),
    "ent_coef": ("initial_temperature", "the temperature is learnt, from initial_temperature on"),
    "policy_kwargs": ("hidden", "hidden has the widths of the layers, and network takes layers of your own"),
    "action_noise": ("noise_sigma", "noise_sigma is the deviation of the noise"),
    "callback": ("on_event", "on_event takes functions that get the events of the run"),
    "callbacks": ("on_event", "on_event takes functions that get the events of the run"),
    "verbose": ("on_event", "on_event takes functions that get the events of the run"),
    "progress_bar": ("on_event", "on_event takes functions that get the events of the run"),
    "tensorboard_log": (
        "on_event",
        "on_event takes reverie.runners.reports.scalar_logs.TensorBoard(FOLDER), and the command has --log tensorboard",
    ),
    "best_model_save_path": ("folder", "a run with a folder keeps its best policy there, in best.safetensors"),
    "log_path": ("folder", "a run with a folder keeps its log there"),
}
"""The setting or argument of `reverie.train` for names with another meaning or other values, and how it differs."""


def synonym(name: str, known: Collection[str]) -> str:
    """The setting that another library calls so, with the same values; empty without one."""
    return next((one for one in SYNONYMS.get(name, ()) if one in known), "")


def suggestion(name: str, known: Sequence[str]) -> str:
    """The end of an error about an unknown name: the setting that it means, the nearest one, or all."""
    if setting := synonym(name, known):
        return f"; did you mean {setting}?"
    setting, words = HINTS.get(name, ("", ""))
    if setting in known:
        return f": {words}"
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"
