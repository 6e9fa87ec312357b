"""`TrainedPolicy`: an agent's policy with trained weights, for programs other than the run that trained it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reverie import _checks
from reverie.agents.agent import Agent
from reverie.agents.core import Policy
from reverie.agents.environments import EnvSpec

if TYPE_CHECKING:
    from torch import nn


class PolicyError(ValueError):
    """A policy cannot be loaded, saved or exported. `.path` (the file), `.reason`"""

    def __init__(self, path: Path, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"policy {path} {reason}")


@dataclass(frozen=True)
class TrainingRun:
    """The run that trained a policy."""

    seed: int
    env_steps: int
    """Environment steps so far."""
    updates: int
    """Updates so far, which is the version of the weights."""
    target_return: float | None
    """The mean return that the run was to reach; None for a run without a target."""


@dataclass(frozen=True, eq=False)
class TrainedPolicy:
    """A policy that was loaded: called with observations, it returns actions. Not thread-safe.

    It computes on the CPU, in the precision of its settings.
    """

    agent: Agent
    reference: str
    """How `reverie.agents.find` finds the agent: its name, or `module:agent`."""
    spec: EnvSpec
    """The observations and actions of the environment that it was trained in."""
    config: Any
    """The agent's settings."""
    run: TrainingRun
    policy: Policy
    """The agent's own object, which has its network as `module`."""
    path: Path
    """The checkpoint or the file that it was loaded from."""
    rng: np.random.Generator
    """Draws sampled actions."""

    def __call__(self, observation: ArrayLike, *, greedy: bool = True) -> NDArray[Any]:
        """The action for one observation, or actions for a batch of them.

        `observation` is `spec.obs_shape` or `[N, *spec.obs_shape]`, of a dtype that converts to `spec.obs_dtype` within
        its kind (integers also to floats). The action is as the environment takes it: int64 `[]`, float32 `[A]`, or
        with a first axis `[N]` for a batch. With `greedy=False` it is drawn from `rng` as an actor draws it at the end
        of training.

        Raises ValueError for another shape, and TypeError for another kind of dtype.
        """
        observations, single = self._batch(observation)
        if greedy:
            actions = self.policy(observations)
        else:
            actions = _part(self.policy, self.agent, "sample")(observations, self.rng)
        return np.asarray(actions[0]) if single else actions

    @property
    def module(self) -> nn.Module:
        """The network, whose named parameters are the weights. Raises TypeError if the agent's policy has none."""
        module: nn.Module = _part(self.policy, self.agent, "module")
        return module

    def save(self, path: Path | str) -> Path:
        """Write weights, architecture and specs as one `.safetensors` file, which `reverie.load_policy` loads.

        The file replaces an older one when it is complete. Returns its path. Raises `PolicyError` for a path without
        that suffix, TypeError if the agent's policy has no `module`, and OSError if the file cannot be written.
        """
        from reverie.agents.policy_files import write

        return write(self, _checks.path("path", path))

    def _batch(self, observation: ArrayLike) -> tuple[NDArray[Any], bool]:
        """The observations `[N, ...]` as the network takes them, and whether one was given alone."""
        given, wanted, shape = np.asarray(observation), np.dtype(self.spec.obs_dtype), self.spec.obs_shape
        if not np.can_cast(given.dtype, wanted, "same_kind"):
            raise TypeError(f"observations are {given.dtype}, and this policy takes {wanted}: convert them first")
        single = given.shape == shape
        if not single and given.shape[1:] != shape:
            raise ValueError(
                f"observations have shape {given.shape}, and this policy takes {shape}, or a batch (N, "
                f"{', '.join(map(str, shape))})"
            )
        # PyTorch shares the array's memory, and warns about memory that is read-only.
        return np.require(given[None] if single else given, wanted, ["C", "W"]), single


def _part(policy: Policy, agent: Agent, name: str) -> Any:
    """An attribute of an agent's policy. Raises TypeError, which names it, for a policy of another package without."""
    if not hasattr(policy, name):
        raise TypeError(f"the policy of agent {agent.name} has no {name}; reverie.agents.core.Policy describes it")
    return getattr(policy, name)
