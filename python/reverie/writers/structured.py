"""The structured writer: it makes items from every step by patterns that are given once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from reverie import _native
from reverie.structured.configs import Config, for_engine
from reverie.writers.context import EpisodeContext

__all__ = ["StructuredWriter"]


@final
class StructuredWriter(_native.StructuredWriter, EpisodeContext):
    """Makes an item from a step wherever a config applies; `client.structured_writer(...)` makes it.

    A config applies to a step where all its conditions hold and every cell of its pattern has a value. It is checked
    after every append, of parts of a step too, and at `end_episode`, until it applies: a step makes at most one item
    for each config. Items are sent in the order of the configs. Fields that no config refers to are ignored and not
    stored, and a step is kept for as long as a pattern can reach it. An episode without steps makes no items.

    One thread at a time may use it. Leaving the `with` block waits until all items are in their tables, except after an
    error of Reverie, Ctrl-C or an exit; it does not end the episode.

    Args:
        configs: from `reverie.structured.create_config`, all with one step structure.
        max_in_flight_bytes: `append` waits while items with more bytes than this are not in their tables yet; None
            takes the client's limit.
        timeout: seconds that `append` and `flush` may wait; None takes the client's default.
        variable: fields whose cells may differ in the size of their first axis, with the number of a cell's axes; the
            client takes them from the signatures of the configs' tables.

    Raises:
        ValueError: for no configs, configs with different step structures, or a priority that a table refuses.
        UnknownTableError: the server does not have the table of a config.
    """

    __slots__ = ()

    def __new__(
        cls,
        client: _native.Client,
        configs: Sequence[Config],
        *,
        max_in_flight_bytes: int | None = None,
        timeout: float | None = None,
        variable: Sequence[tuple[str, int]] = (),
    ) -> StructuredWriter:
        """Takes a live client; `client.structured_writer(...)` calls this."""
        paths, given = for_engine(configs)
        return super().__new__(
            cls,
            client,
            paths,
            given,
            max_in_flight_bytes=max_in_flight_bytes,
            timeout=timeout,
            variable=list(variable),
        )
