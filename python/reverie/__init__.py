"""Reverie stores, selects and moves experience for reinforcement learning.

Experience flows in one direction: append -> chunk -> item -> table -> sample -> batch.
"""

from reverie import checkpointers, errors, rate_limiters, selectors, specs, types
from reverie.client import Client
from reverie.errors import (
    ClosedError,
    DamagedError,
    DeadlineExceededError,
    ForkedError,
    InternalError,
    ProtocolError,
    RaggedError,
    ReplayError,
    ResourceExhaustedError,
    ReverbError,
    ServerRestartedWarning,
    SignatureError,
    StorageError,
    UnauthenticatedError,
    UnavailableError,
    UnknownKeyError,
    UnknownTableError,
)
from reverie.server import Server
from reverie.specs import TensorSpec
from reverie.tables import Table
from reverie.tls import ClientTLS, ServerTLS
from reverie.trajectory_dataset import TimestepDataset, TrajectoryDataset
from reverie.types import Batch, BatchInfo, ReplaySample, SampleInfo, TableInfo, UpdateResult
from reverie.writers import TrajectoryColumn, TrajectoryWriter, TransitionWriter

# What the user names, in the order of the flow: where experience is kept, who reaches it, what comes out, what goes
# wrong.
__all__ = [
    "Batch",
    "BatchInfo",
    "Client",
    "ClientTLS",
    "ClosedError",
    "DamagedError",
    "DeadlineExceededError",
    "ForkedError",
    "InternalError",
    "ProtocolError",
    "RaggedError",
    "ReplayError",
    "ReplaySample",
    "ResourceExhaustedError",
    "ReverbError",
    "SampleInfo",
    "Server",
    "ServerRestartedWarning",
    "ServerTLS",
    "SignatureError",
    "StorageError",
    "Table",
    "TableInfo",
    "TensorSpec",
    "TimestepDataset",
    "TrajectoryColumn",
    "TrajectoryDataset",
    "TrajectoryWriter",
    "TransitionWriter",
    "UnauthenticatedError",
    "UnavailableError",
    "UnknownKeyError",
    "UnknownTableError",
    "UpdateResult",
    "checkpointers",
    "errors",
    "rate_limiters",
    "selectors",
    "specs",
    "types",
]
