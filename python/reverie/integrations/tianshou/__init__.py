"""Replay buffers for the off-policy algorithms of tianshou, in this process or on a server."""

try:
    import tianshou as _tianshou  # noqa: F401
except ImportError as error:
    raise ImportError('tianshou is missing: pip install "reverie[tianshou]"') from error

from reverie.integrations.tianshou.buffers import PrioritizedReplayBuffer, ReplayBuffer

__all__ = ["PrioritizedReplayBuffer", "ReplayBuffer"]
