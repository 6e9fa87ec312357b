"""The settings that a resumed run may change, and why it may not change the others.

Every setting of every built-in agent is in one of the two tables. A setting that may change takes effect at once: it
is read from the configuration of the resumed run, never from the checkpoint.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from reverie.agents.agent import Agent
from reverie.runners.checkpoints.checkpoint_files import CheckpointError
from reverie.runners.planning.topology import Topology

MAY_CHANGE = frozenset(
    {
        # the run
        "target_return",
        "max_env_steps",
        "evaluate_every",
        "threads",
        "screening_episodes",
        "confirmation_episodes",
        "checkpoint_every",
        "evaluation_seconds",
        "device",
        "actor_device",
        "prefetch",
        "compile",
        "gpus_per_actor",
        "replay_disk",
        "replay_memory",
        "replay_disk_bytes",
        "replay_compression",
        "replay_journal",
        "replay_journal_sync",
        # the environment
        "max_env_restarts",
        # optimisers
        "learning_rate",
        "policy_learning_rate",
        "critic_learning_rate",
        "temperature_learning_rate",
        "anneal_updates",
        "anneal_to",
        "anneal_shape",
        "warmup_updates",
        "anneal_clip",
        "adam_epsilon",
        "optimizer_epsilon",
        "rmsprop_decay",
        "rmsprop_epsilon",
        "max_grad_norm",
        "max_staleness",
        # batches and draws
        "batch_size",
        "capacity",
        "epochs",
        "minibatch_size",
        "priority_exponent",
        "eviction_exponent",
        "importance_exponent",
        "importance_normalise",
        "importance_anneal_updates",
        "priority_eps",
        "priority_clip",
        "priority_eta",
        "first_priority",
        # losses and targets
        "huber_delta",
        "munchausen",
        "munchausen_temperature",
        "munchausen_clip",
        "rescale_epsilon",
        "action_gradient_clip",
        "value_coefficient",
        "entropy_coefficient",
        "conservative_weight",
        "conservative_learning_rate",
        "sampled_actions",
        "imitation_updates",
        "entropy_in_target",
        "entropy_per_action",
        "clip",
        "value_clip",
        "target_kl",
        "normalise_advantages",
        "gae_lambda",
        "trace_lambda",
        "rho_bar",
        "c_bar",
        "target_period",
        "target_rate",
        "policy_period",
        "smoothing_sigma",
        "expectile",
        "advantage_scale",
        "advantage_clip",
        "smoothing_clip",
        "double",
        "num_quantiles",
        "policy_quantiles",
        "target_critics",
        "policy_critics",
        "dropout",
        "precision",
        # actors
        "weights_period",
        "epsilon_start",
        "epsilon_end",
        "epsilon_steps",
        "epsilon_base",
        "epsilon_alpha",
        "single_env_decay_steps",
        "random_steps",
        "random_hold",
        "noise_sigma",
        "noise_theta",
        "noise_theta_steps",
    }
)

_ACTORS = "each actor continues with its own counts and random state from the checkpoint"
_NETWORKS = "the networks of the checkpoint have these layers"
_LIMITER = "the table's limiter counts draws and inserts since the run began, and would block one side for long"
_ENVIRONMENT = "its stored steps, its networks and its curve are from environments that were made so"
_EVALUATIONS = "the points of its curve are of evaluations that were played so"
_SEQUENCES = "the sequences in its table were cut so"
_RETURNS = "the outputs of its networks are shares of the returns between these bounds"
_GOALS = "the items in its table were made with so many other goals"
_LEARNERS = "each learner and each parameter shard continues from its own state in the checkpoint"

MUST_STAY = {
    "agent": "the checkpoint has the networks and tables of that agent",
    "env_id": "its networks and stored steps have the shapes of that environment",
    "seed": "the random states of the checkpoint come from that seed",
    "num_actors": _ACTORS,
    "envs_per_actor": _ACTORS,
    "n_step": "the items in its table are over this number of steps",
    "discount": "the items in its table are discounted with it",
    "samples_per_insert": _LIMITER,
    "learning_starts": _LIMITER,
    "unroll_length": "the unrolls in its queue have this length",
    "queue_capacity": "its queue counts unrolls up to this number",
    "sequence_length": _SEQUENCES,
    "sequence_period": _SEQUENCES,
    "burn_in": _SEQUENCES,
    "lstm_units": _NETWORKS,
    "hidden": _NETWORKS,
    "shared_layers": _NETWORKS,
    "policy_hidden": _NETWORKS,
    "critic_hidden": _NETWORKS,
    "optimizer": "another optimiser cannot continue from the moments of this one",
    "initial_sigma": "the deviation has been learnt since, and continues from the checkpoint",
    "conservative_threshold": "the factor that it moves is part of the checkpoint, or is not",
    "initial_temperature": "the temperature has been learnt since, and continues from the checkpoint",
    "num_learners": _LEARNERS,
    "num_parameter_shards": _LEARNERS,
    "wrappers": _ENVIRONMENT,
    "time_limit": _ENVIRONMENT,
    "frame_stack": _ENVIRONMENT,
    "evaluation_env": _EVALUATIONS,
    "evaluation_wrappers": _EVALUATIONS,
    "normalise_observations": _ENVIRONMENT,
    "normalise_rewards": _ENVIRONMENT,
    "network": _NETWORKS,
    "head": _NETWORKS,
    "dueling": _NETWORKS,
    "noisy": _NETWORKS,
    "layer_norm": _NETWORKS,
    "spectral_norm": _NETWORKS,
    "num_critics": _NETWORKS,
    "num_atoms": _NETWORKS,
    "v_min": _RETURNS,
    "v_max": _RETURNS,
    "noisy_sigma": "the deviations have been learnt since, and continue from the checkpoint",
    "her": _GOALS,
    "her_k": _GOALS,
    "dataset": "the items in its table are rows of that data set",
    "dataset_rename": "the items in its table are of the columns that had these names",
    "prioritized": "the items in its table have no priorities, or its draws follow them",
    "bundled": "it decides how many tables the checkpoint has",
}
"""The reason why each of these settings cannot change, as the end of a message about the checkpoint."""


@dataclasses.dataclass(frozen=True)
class SettingChange:
    """A setting that differs between a checkpoint and the run that resumes it."""

    name: str
    """The setting's name as an argument of `train`, or in the agent's configuration."""
    before: Any
    """The value in the checkpoint."""
    now: Any
    refused: str
    """Why it may not change; empty if it may."""


class ChangedSettingsError(CheckpointError):
    """A run would resume with settings that may not change. `.changes` has a `SettingChange` for each."""

    def __init__(
        self,
        path: Path,
        changes: Sequence[SettingChange],
        option: Callable[[str], str] = lambda name: name,
        train_on: str = "",
    ) -> None:
        """`option` gives the user's name for a setting.

        `train_on` is what continues a run that has finished; empty for one that has not.
        """
        self.changes = tuple(changes)
        pairs = [(f"{option(one.name)} is {one.now!r}, and was {one.before!r}", one.refused) for one in changes]
        if train_on:
            text = (
                "is of a run that has finished, and was not trained with these settings:"
                f" {'; '.join(pair for pair, _ in pairs)}; leave them out to get its result, give {train_on} to train"
                " on with them, or another folder for a new run"
            )
        else:
            refused = (f"{pair}, which cannot change: {reason}" for pair, reason in pairs)
            text = f"cannot be resumed: {'; '.join(refused)}"
        super().__init__(path, text)


def changes(before: dict[str, Any], agent: Agent, topology: Topology) -> list[SettingChange]:
    """The settings in which a run differs from those of a checkpoint (`Topology.identity`).

    For another agent only that: its settings are not comparable.
    """
    now = topology.identity
    if before["agent"] != now["agent"]:
        return [SettingChange("agent", before["agent"], now["agent"], MUST_STAY["agent"])]
    # A checkpoint of a version without some setting was made as if that setting had its default.
    known = (*dataclasses.fields(topology.config), *dataclasses.fields(topology.env.settings))
    later = {field.name: field.default for field in known}
    found = []
    for name, value in now.items():
        was = before.get(name, later.get(name))
        if was != value:
            found.append(SettingChange(name, was, value, _refusal(name, agent)))
    return found


def _refusal(name: str, agent: Agent) -> str:
    if name in MAY_CHANGE or name in agent.may_change:
        return ""
    return MUST_STAY.get(name, f"it is a setting of {agent.name} alone, whose Agent.may_change does not name it")


def require_unchanged(path: Path, found: Sequence[SettingChange]) -> None:
    """Raise `ChangedSettingsError` if one of these changes is refused."""
    refused = [one for one in found if one.refused]
    if refused:
        raise ChangedSettingsError(path, refused)
