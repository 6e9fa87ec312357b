"""Replay buffers for Stable-Baselines3, in this process or on a server, prioritised DQN and SAC, hindsight replay.

Pass a class as `replay_buffer_class=`, and its options as `replay_buffer_kwargs=`.
"""

try:
    import stable_baselines3 as _stable_baselines3  # noqa: F401
except ImportError as error:
    raise ImportError('Stable-Baselines3 is missing: pip install "reverie[stable-baselines3]"') from error

from reverie.integrations.stable_baselines3.algorithms import PrioritizedDQN, PrioritizedSAC
from reverie.integrations.stable_baselines3.buffers import DictReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer
from reverie.integrations.stable_baselines3.her import HerReplayBuffer
from reverie.integrations.stable_baselines3.samples import PrioritizedSamples

__all__ = [
    "DictReplayBuffer",
    "HerReplayBuffer",
    "PrioritizedDQN",
    "PrioritizedReplayBuffer",
    "PrioritizedSAC",
    "PrioritizedSamples",
    "ReplayBuffer",
]
