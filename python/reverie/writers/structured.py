"""The structured writer: items of every step by patterns that are given once."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, final

from reverie import _native
from reverie.errors import ReplayError
from reverie.structured.configs import Config, for_engine

__all__ = ["StructuredWriter"]


@final
class StructuredWriter(_native.StructuredWriter):
    """Appends steps, and makes items of them wherever a config applies; `client.structured_writer(...)` makes it.

    A config applies to a step where all of its conditions hold and every cell of its pattern has a value: at the first
    append of the step at which that is so, parts of a step included, or at `end_episode`; so a step gives at most one
    item for each config. The items go out in the order of the configs. Fields that no config refers to are neither
    looked at nor stored, and steps are kept as long as a pattern may reach them.

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

    def flush(
        self, block_until_num_items: int = 0, timeout_ms: int | None = None, *, timeout: float | None = None
    ) -> None:
        """Waits until at most so many items are not in their tables yet.

        Args:
            block_until_num_items: how many may be left.
            timeout_ms: milliseconds to wait; None, as -1 of ported code, takes `timeout`.
            timeout: seconds to wait.

        Raises:
            DeadlineExceededError: the insertion goes on in the background.
        """
        self._flush(block_until_num_items, timeout if timeout_ms is None or timeout_ms == -1 else timeout_ms / 1e3)

    def end_episode(
        self, clear_buffers: bool = True, timeout_ms: int | None = None, *, timeout: float | None = None
    ) -> None:
        """Ends the step and the episode, then waits until all items are in their tables.

        Configs that wait for it (`Condition.is_end_episode()`) are applied to the last step, unless they were. An
        episode without steps gives no items.

        Args:
            clear_buffers: True begins a new history; with False later items may still refer to the steps before.
            timeout_ms: as for `flush`.
            timeout: as for `flush`.

        Raises:
            DeadlineExceededError: the episode has ended, and the insertion goes on in the background.
        """
        self._end_episode(clear_buffers)
        self.flush(0, timeout_ms, timeout=timeout)

    def close(self) -> None:
        """Ends the writer without a last item; what was sent goes on into its tables. Idempotent."""
        self._close()

    def __enter__(self) -> StructuredWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None or not issubclass(kind, ReplayError):
                self.flush()
        finally:
            self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a writer is live in its process and cannot be pickled; make it where it is used")
