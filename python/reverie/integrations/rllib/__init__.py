"""A prioritised replay buffer for RLlib's DQN and SAC, in this process or on a server."""

try:
    from ray import rllib as _rllib  # noqa: F401
except ImportError as error:
    raise ImportError('RLlib is missing: pip install "reverie[rllib]"') from error

from reverie.integrations.rllib.buffers import PrioritizedEpisodeReplayBuffer
from reverie.integrations.rllib.configs import SACConfig
from reverie.integrations.rllib.env_runners import AddSamples

__all__ = ["AddSamples", "PrioritizedEpisodeReplayBuffer", "SACConfig"]
