"""Replay buffers for TorchRL, in this process or on a server."""

try:
    import torchrl as _torchrl  # noqa: F401
except ImportError as error:
    raise ImportError('TorchRL is missing: pip install "reverie[torchrl]"') from error

from reverie.integrations.torchrl.buffers import PrioritizedReplayBuffer, ReplayBuffer

__all__ = ["PrioritizedReplayBuffer", "ReplayBuffer"]
