"""RLlib's configuration of SAC, with replay buffers of other packages."""

from __future__ import annotations

from ray.rllib.algorithms import sac

__all__ = ["SACConfig"]


class SACConfig(sac.SACConfig):  # type: ignore[misc]
    """RLlib's `SACConfig`, which refuses every `type` of a replay buffer but RLlib's own; this takes Reverie's, too."""

    def validate(self) -> None:
        """Checks the options, as RLlib does, with RLlib's buffer in the place of Reverie's."""
        given = self.replay_buffer_config
        kind = given["type"]
        if isinstance(kind, str) and kind.startswith("reverie."):
            # Not by an assignment: a configuration may be frozen, and is the same afterwards.
            self.__dict__["replay_buffer_config"] = {**given, "type": "PrioritizedEpisodeReplayBuffer"}
        try:
            super().validate()
        finally:
            self.__dict__["replay_buffer_config"] = given
