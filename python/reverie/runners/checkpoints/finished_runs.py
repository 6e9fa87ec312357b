"""The result of a run that has finished, read from its last checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from reverie.agents import named_parameters, presets
from reverie.agents.agent import Agent
from reverie.agents.core import Preset, Weights
from reverie.runners.checkpoints.best_policies import best_of_finished
from reverie.runners.checkpoints.checkpoint_files import PRESET
from reverie.runners.checkpoints.setting_changes import ChangedSettingsError, SettingChange, changes
from reverie.runners.planning.topology import Topology
from reverie.runners.reports.evaluation import Evaluation
from reverie.runners.reports.events import Result
from reverie.runners.reports.run_progress import RESULT, RunProgress


def is_finished(state: dict[str, Any], topology: Topology, *, stop_when_confirmed: bool) -> bool:
    """Whether the run of a checkpoint has its result and, with the settings of `topology`, nothing left to train."""
    if state.get(RESULT) is None:
        return False
    return bool(state["env_steps"] >= topology.run.max_env_steps or (stop_when_confirmed and _reached(state, topology)))


EVALUATIONS = ("evaluate_every", "screening_episodes", "confirmation_episodes")
"""The settings of a run, and not of its agent or environment, with which its curve and result would be others."""
MAY_DIFFER = ("max_env_restarts",)
"""The settings of the environment with which nothing would be other."""


def changed_after_the_end(
    path: Path, agent: Agent, topology: Topology, state: Mapping[str, Any]
) -> list[SettingChange]:
    """The settings of `topology` with which the finished run of the checkpoint at `path` was not trained or evaluated.

    Others decide whether the run trains on, or only how it runs.
    """
    before = vars(_settings_of(path, agent).run)
    found = [one for one in changes(state["identity"], agent, topology) if one.name not in MAY_DIFFER]
    now = vars(topology.run)
    return found + [
        SettingChange(name, before[name], now[name], "") for name in EVALUATIONS if before[name] != now[name]
    ]


def same_training(one: Preset, other: Preset) -> bool:
    """Whether runs with these settings have the same weights and evaluations, up to the step at which they end."""
    evaluations = ([getattr(preset.run, name) for name in EVALUATIONS] for preset in (one, other))
    same = (one.config, one.environment) == (other.config, other.environment)
    return same and next(evaluations) == next(evaluations)


def require_trained_with(path: Path, agent: Agent, topology: Topology, state: Mapping[str, Any]) -> None:
    """Raise `ChangedSettingsError` if a finished run was trained with other settings than those of `topology`."""
    found = changed_after_the_end(path, agent, topology, state)
    if found:
        at_end = state["env_steps"] >= topology.run.max_env_steps
        train_on = "a higher max_env_steps" if at_end else "stop_when_confirmed=False or a higher target_return"
        raise ChangedSettingsError(path, found, train_on=train_on)


def _settings_of(path: Path, agent: Agent) -> Preset:
    return presets.load(path / PRESET, agent.config)


def _reached(state: dict[str, Any], topology: Topology) -> bool:
    """Whether the last weights reached the present target on the screening seeds and on the confirmation seeds."""
    _, _, screened, *_ = state["curve"][-1]
    return all(topology.run.reached_by(mean) for mean in (screened, float(np.mean(state[RESULT]["returns"]))))


def result_of(path: Path, agent: Agent, topology: Topology, state: dict[str, Any]) -> Result:
    """The result of the finished run of the checkpoint at `path`, with the settings that the run had.

    The target is that of `topology`, and `confirmed` is by it.
    """
    run = dataclasses.replace(_settings_of(path, agent).run, target_return=topology.run.target_return)
    topology = dataclasses.replace(topology, run=run)
    account, ended = RunProgress(topology), state[RESULT]
    account.load_state_dict(state)
    policy = agent.make_policy(topology.env, topology.config)
    named_parameters.load(policy.module, state["weights"]["parameters"], "this run")
    return Result(
        topology=topology,
        env_steps=account.env_steps,
        seconds=account.seconds_before,
        confirmed=_reached(state, topology),
        evaluation=_evaluation(ended),
        curve=tuple(account.curve),
        replay=ended["replay"],
        learner=ended["learner"],
        activities=dict(account.watch.seconds),
        weights=Weights(state["weights"]["version"], flat_of(policy.module)),
        agent=agent,
        best=best_of_finished(path),
    )


def _evaluation(ended: dict[str, Any]) -> Evaluation:
    """The last evaluation. Checkpoints of earlier versions have neither lengths nor successes."""
    successes = ended.get("successes")
    return Evaluation(
        tuple(ended["seeds"]),
        tuple(ended["returns"]),
        tuple(ended.get("lengths", ())),
        None if successes is None else tuple(successes),
    )


def flat_of(module: nn.Module) -> Any:
    """The parameters of `module` as one float32 vector `[P]`, in the order of memory, as `FlatNetwork` has them.

    Some parameters are not in row-major order.
    """
    return torch.cat([one.detach().as_strided((one.numel(),), (1,)) for one in module.parameters()]).numpy()
