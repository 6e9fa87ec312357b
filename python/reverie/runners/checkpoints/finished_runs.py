"""The result of a run that has finished, read from its last checkpoint."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from reverie.agents import named_parameters
from reverie.agents.agent import Agent
from reverie.agents.core import Weights
from reverie.runners.planning.topology import Topology
from reverie.runners.reports.evaluation import Evaluation
from reverie.runners.reports.events import Result
from reverie.runners.reports.run_progress import RESULT, RunProgress


def is_finished(state: dict[str, Any], topology: Topology, *, stop_when_confirmed: bool) -> bool:
    """Whether the run of a checkpoint has its result and, with the settings of `topology`, nothing left to train."""
    if state.get(RESULT) is None:
        return False
    return bool(state["env_steps"] >= topology.run.max_env_steps or (stop_when_confirmed and _reached(state, topology)))


def _reached(state: dict[str, Any], topology: Topology) -> bool:
    """Whether the last weights reached the present target on the screening seeds and on the confirmation seeds."""
    _, _, screened, *_ = state["curve"][-1]
    return all(topology.run.reached_by(mean) for mean in (screened, float(np.mean(state[RESULT]["returns"]))))


def result_of(agent: Agent, topology: Topology, state: dict[str, Any]) -> Result:
    """The result of the finished run of a checkpoint. `confirmed` is by the target of `topology`."""
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
