"""Env runners that add their samples to a server themselves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from reverie.client import Client
from reverie.integrations._replay_table import RemoteTable, check_prioritized
from reverie.integrations.rllib.episodes import SingleAgentEpisodeWriter

__all__ = ["AddSamples"]


class AddSamples:
    """The callback `on_sample_end` of env runners that add their samples to a server: each from its own process.

    For a buffer with `added_by="env_runners"`. Ray pickles it to the env runners; each connects at its first sample.

    Args:
        server: an address, several addresses, or a `reverie.Client` (for a token or TLS). With several servers each
            environment's steps go to one of them.
        table: the table's name.
        n_step: the number of steps of a transition, that of the buffer.

    Raises:
        UnknownTableError: at the first sample: the server has no such table.
    """

    def __init__(self, server: str | Sequence[str] | Client, table: str = "replay", n_step: int = 1) -> None:
        self._server, self._name, self._n_step = server, table, n_step
        self._writer: SingleAgentEpisodeWriter | None = None
        self._process = os.getpid()

    def __call__(self, *, samples: Sequence[Any], **rest: Any) -> None:
        """Adds what an env runner has sampled. Waits while the client's `max_in_flight_bytes` are unacknowledged."""
        if self._writer is None or self._process != os.getpid():
            table = RemoteTable(self._server, self._name)
            check_prioritized(table)
            self._writer, self._process = SingleAgentEpisodeWriter(table, self._n_step), os.getpid()
        self._writer.write(samples)
        self._writer.flush()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_writer": None}
