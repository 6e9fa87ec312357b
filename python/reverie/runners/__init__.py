"""Runners: how a run is laid out (`topology`), how it runs, what it tells (`events`), and who judges it.

`train` runs in this process (`local`); `runners.process.train` and `runners.ray.train` take the same arguments and give
every role a process, here or on a cluster. A runner receives an agent's module and knows no algorithm by name.
"""

from __future__ import annotations

from reverie.runners.checkpoints import CheckpointError
from reverie.runners.local import train
from reverie.runners.planning.nodes import Node, NoRoomError
from reverie.runners.planning.topology import DeviceError, DoesNotFitError, Topology, plan
from reverie.runners.reports.evaluation import Evaluation, Evaluator
from reverie.runners.reports.events import (
    CurvePoint,
    EnvironmentRestarted,
    Evaluated,
    Event,
    Finished,
    NotSaved,
    Progress,
    Result,
    RoleAwaited,
    RoleError,
    RoleMissingError,
    RoleRestarted,
    Saved,
    ShardMoved,
    StalledError,
    Started,
    StoppedError,
)

__all__ = [
    "CheckpointError",
    "CurvePoint",
    "DeviceError",
    "DoesNotFitError",
    "EnvironmentRestarted",
    "Evaluated",
    "Evaluation",
    "Evaluator",
    "Event",
    "Finished",
    "NoRoomError",
    "Node",
    "NotSaved",
    "Progress",
    "Result",
    "RoleAwaited",
    "RoleError",
    "RoleMissingError",
    "RoleRestarted",
    "Saved",
    "ShardMoved",
    "StalledError",
    "Started",
    "StoppedError",
    "Topology",
    "plan",
    "train",
]
