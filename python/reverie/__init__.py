"""Reverie stores, selects and moves experience for reinforcement learning.

Experience flows in one direction: append -> chunk -> item -> table -> sample -> batch.
"""

import sys as _sys
import typing as _typing

from reverie import (
    _ported,
    checkpointers,
    errors,
    extensions,
    item_selectors,
    pattern_dataset,
    platform,
    rate_limiters,
    replay_sample,
    reverb_types,
    selectors,
    specs,
    structured,
    structured_writer,
    timestep_dataset,
    trajectory_writer,
    types,
)
from reverie.client import Client
from reverie.datasets.patterns import PatternDataset
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
    UnknownFateError,
    UnknownKeyError,
    UnknownTableError,
)
from reverie.server import Server
from reverie.sharding import ShardedClient
from reverie.specs import TensorSpec
from reverie.tables import Table
from reverie.tf_client import TFClient
from reverie.tls import ClientTLS, ServerTLS
from reverie.tokens import Token
from reverie.trajectory_dataset import TimestepDataset, TrajectoryDataset
from reverie.types import Batch, BatchInfo, ReplaySample, SampleInfo, TableInfo, UpdateResult
from reverie.writers import (
    EpisodeWriter,
    SequenceWriter,
    StructuredWriter,
    TrajectoryColumn,
    TrajectoryWriter,
    TransitionWriter,
    VectorWriter,
    Writer,
)

_ported.install(_sys.modules[__name__])
# In dm-reverb `structured` is the writer's own module; ours is of a layer below it.
vars(structured)["StructuredWriter"] = StructuredWriter

__version__: str
"""Of the installed package."""
if not _typing.TYPE_CHECKING:  # for a checker every name would be there

    def __getattr__(name: str) -> str:
        """`__version__`, looked up when it is asked for: what does takes a third of NumPy's time to import."""
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib.metadata import version

        return version(__name__)


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
    "EpisodeWriter",
    "ForkedError",
    "InternalError",
    "PatternDataset",
    "ProtocolError",
    "RaggedError",
    "ReplayError",
    "ReplaySample",
    "ResourceExhaustedError",
    "ReverbError",
    "SampleInfo",
    "SequenceWriter",
    "Server",
    "ServerRestartedWarning",
    "ServerTLS",
    "ShardedClient",
    "SignatureError",
    "StorageError",
    "StructuredWriter",
    "TFClient",
    "Table",
    "TableInfo",
    "TensorSpec",
    "TimestepDataset",
    "Token",
    "TrajectoryColumn",
    "TrajectoryDataset",
    "TrajectoryWriter",
    "TransitionWriter",
    "UnauthenticatedError",
    "UnavailableError",
    "UnknownFateError",
    "UnknownKeyError",
    "UnknownTableError",
    "UpdateResult",
    "VectorWriter",
    "Writer",
    "checkpointers",
    "errors",
    "extensions",
    "item_selectors",
    "pattern_dataset",
    "platform",
    "rate_limiters",
    "replay_sample",
    "reverb_types",
    "selectors",
    "specs",
    "structured",
    "structured_writer",
    "timestep_dataset",
    "trajectory_writer",
    "types",
]
