"""Reverie is a replay buffer for reinforcement learning: it stores, selects and moves experience.

Experience flows in one direction: append -> chunk -> item -> table -> sample -> batch.
"""

import sys as _sys
import typing as _typing
from importlib import import_module as _import_module

from reverie import checkpointers, errors, extensions, parameters, rate_limiters, selectors, specs, structured, types
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
    SupersededError,
    TrainingWarning,
    UnauthenticatedError,
    UnavailableError,
    UnknownKeyError,
    UnknownOutcomeError,
    UnknownTableError,
)
from reverie.journal import Journal
from reverie.policies import load_policy
from reverie.ported import hook as _hook
from reverie.server import Server
from reverie.sharding import ShardedClient
from reverie.specs import TensorSpec
from reverie.tables import Table
from reverie.tls import ClientTLS, ServerTLS
from reverie.tokens import Token
from reverie.training import train
from reverie.types import Batch, BatchInfo, ReplaySample, SampleInfo, UpdateResult
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

_hook.install(_sys.modules[__name__])

__version__: str
"""The version of the installed package."""
if _typing.TYPE_CHECKING:
    # Names of dm-reverb, which are loaded when they are first used: `ported/names.py`.
    from reverie import info as info
    from reverie import selectors as item_selectors
    from reverie import types as replay_sample
    from reverie.datasets import patterns as pattern_dataset
    from reverie.info import TableInfo
    from reverie.ported import platform, reverb_types, structured_writer, trajectory_writer
    from reverie.ported import tf_client as tf_client
    from reverie.ported import trajectory_dataset as timestep_dataset
    from reverie.ported import trajectory_dataset as trajectory_dataset
    from reverie.ported.tf_client import TFClient
    from reverie.ported.trajectory_dataset import TimestepDataset, TrajectoryDataset
else:  # A type checker would take every name for one that exists.

    def __getattr__(name: str) -> object:
        """Names that are loaded when they are first used: those of dm-reverb, figures of tables, and the version, whose
        lookup takes a third of NumPy's import time."""
        if name == "__version__":
            from importlib.metadata import version

            value = version(__name__)
        elif name in ("TableInfo", "info"):
            # `from reverie import info` would ask this function for `info`.
            module = _import_module("reverie.info")
            value = module if name == "info" else module.TableInfo
        else:
            value = _hook.attribute(__name__, name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


# The public names, compared with a list in tests/seam/test_gate.py.
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
    "Journal",
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
    "SupersededError",
    "TFClient",
    "Table",
    "TableInfo",
    "TensorSpec",
    "TimestepDataset",
    "Token",
    "TrainingWarning",
    "TrajectoryColumn",
    "TrajectoryDataset",
    "TrajectoryWriter",
    "TransitionWriter",
    "UnauthenticatedError",
    "UnavailableError",
    "UnknownKeyError",
    "UnknownOutcomeError",
    "UnknownTableError",
    "UpdateResult",
    "VectorWriter",
    "Writer",
    "checkpointers",
    "errors",
    "extensions",
    "info",
    "item_selectors",
    "load_policy",
    "parameters",
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
    "train",
    "trajectory_writer",
    "types",
]
