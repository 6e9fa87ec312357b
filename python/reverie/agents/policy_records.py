"""The record in a policy's file, which has everything but the weights, and the error of reading or writing a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reverie._picklable import Picklable
from reverie.agents.agent import Agent
from reverie.agents.environments import EnvSpec


class PolicyError(Picklable, ValueError):
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


@dataclass(frozen=True)
class PolicyRecord:
    """Everything in the file of a policy but its weights."""

    agent: Agent
    reference: str
    """The agent's name for `reverie.agents.find`, or `module:agent`."""
    spec: EnvSpec
    """The observations and actions of the environment that it was trained in."""
    config: Any
    """The agent's settings."""
    run: TrainingRun
