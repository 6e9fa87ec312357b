"""Runners: `train` runs an agent in this process, in many, or on a Ray cluster.

A run is planned (`planning`), its roles (`roles`) reach each other over links (`links`), a supervisor restarts them
(`supervision`), and it is reported (`reports`) and saved (`checkpoints`). A runner receives an agent and imports no
algorithm by name.
"""

from __future__ import annotations

from reverie.pages import Page
from reverie.runners.checkpoints import CheckpointError
from reverie.runners.launch import train
from reverie.runners.planning.devices import DeviceError
from reverie.runners.planning.memory import DoesNotFitError
from reverie.runners.planning.nodes import ClusterNode, NoRoomError
from reverie.runners.planning.plan import plan
from reverie.runners.planning.topology import Topology
from reverie.runners.reports.evaluation import Evaluation, Evaluator
from reverie.runners.reports.events import (
    BestPolicy,
    CurvePoint,
    EnvironmentRestarted,
    Evaluated,
    Event,
    Finished,
    LogNotWritten,
    NotSaved,
    PageOpened,
    PolicyNotSaved,
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
    TrainingWaits,
    UpdatesCompiled,
    WeightsNotPublished,
)
from reverie.runners.reports.recorded_episodes import RecordedEpisodes, record_episodes

__all__ = [
    "BestPolicy",
    "CheckpointError",
    "ClusterNode",
    "CurvePoint",
    "DeviceError",
    "DoesNotFitError",
    "EnvironmentRestarted",
    "Evaluated",
    "Evaluation",
    "Evaluator",
    "Event",
    "Finished",
    "LogNotWritten",
    "NoRoomError",
    "NotSaved",
    "Page",
    "PageOpened",
    "PolicyNotSaved",
    "Progress",
    "RecordedEpisodes",
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
    "TrainingWaits",
    "UpdatesCompiled",
    "WeightsNotPublished",
    "plan",
    "record_episodes",
    "train",
]
