"""The structured writer: items of every step by patterns that are given once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from reverie import _native
from reverie.structured.configs import Config, for_engine
from reverie.writers.context import EpisodeContext

__all__ = ["StructuredWriter"]


@final
class StructuredWriter(_native.StructuredWriter, EpisodeContext):
    """Appends steps, and makes items of them wherever a config applies; `client.structured_writer(...)` makes it.

    A config applies to a step where all of its conditions hold and every cell of its pattern has a value: at the first
    append of the step at which that is so, parts of a step included, or at `end_episode`; so a step gives at most one
    item for each config. The items go out in the order of the configs. Fields that no config refers to are neither
    looked at nor stored, and steps are kept as long as a pattern may reach them. An episode without steps gives no
    items.

    One thread at a time may use it. Leaving the `with` block waits until all items are in their tables, unless an
    error of the replay itself passes through; it does not end the episode.

    Args:
        configs: what `reverie.structured.create_config` gave, all of one step structure.
        max_in_flight_bytes: `append` waits while more bytes of items are not in their tables yet; None takes the
            client\'s.
        timeout: seconds that `append` and `flush` may wait; None takes the client's.

    Raises:
        ValueError: for no configs, configs of different step structures, or a priority that a table refuses.
        UnknownTableError: for a config whose table the server does not have.
    """

    __slots__ = ()

    def __new__(
        cls,
        client: _native.Client,
        configs: Sequence[Config],
        *,
        max_in_flight_bytes: int | None = None,
        timeout: float | None = None,
    ) -> StructuredWriter:
        """Takes a live client; `client.structured_writer(...)` calls this."""
        paths, given = for_engine(configs)
        return super().__new__(cls, client, paths, given, max_in_flight_bytes=max_in_flight_bytes, timeout=timeout)
