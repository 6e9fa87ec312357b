"""The writer of n-step transitions."""

from __future__ import annotations

from typing import Any, Literal, final

from reverie import _native
from reverie.writers.context import WriterContext

__all__ = ["Autoreset", "TransitionWriter"]

#: What a vector environment does after an episode's end, by Gymnasium's names (`AutoresetMode`).
Autoreset = Literal["next_step", "same_step", "disabled"]


@final
class TransitionWriter(_native.TransitionWriter, WriterContext):
    """Makes n-step transitions of the steps of one or more environments; `client.transition_writer(...)` makes it.

    An item has the columns `obs`, `action`, `reward`, `discount`, `next_obs` and the extras of its first step. With m
    steps from `obs` to `next_obs` (n, or fewer at an episode's end), `reward` is the sum of discount**k * r_k over
    k < m (float32), and `discount` is discount**m, or 0 where the last of them terminated (Sutton & Barto, 2nd ed.,
    section 7.1); so a target is `reward + discount * value(next_obs)`, whatever happened. At an episode's end all
    shorter tails are emitted too. Every observation is stored once.

    Args:
        n_step: steps from an item's observation to its next observation.
        discount: per step, within [0, 1].
        num_envs: environments that step together; None for a single one whose arrays have no axis for it.
        frame_stack: observations of items are stacks of so many frames, while the environment gives the newest frame
            alone; at an episode's start the first frame is repeated.
        stack_axis: where the stack's axis stands among a frame's axes: 0 gives `[B, 4, 84, 84]`.
        autoreset: where the last observation of an episode comes from. "next_step" (Gymnasium's default): the append
            after the one that ended it has it as `obs`, and is no transition. "same_step" and "disabled": `final_obs`.
        priority_eps: added to |TD error| where priorities are computed from `q_taken`.
        priority_clip: what |TD error| counts for at most, before `priority_eps`; None: whatever it is.
        priority: of items whose TD error is not known; "max" takes the largest that the table holds.
        max_in_flight_bytes: `append` waits while more bytes of items are not in the table yet; None takes the
            client\'s.
        timeout: seconds that `append` may wait; None takes the client's.

    Raises:
        ValueError: for arguments that can never work.
        UnknownTableError.
    """

    __slots__ = ()

    def close(self, *, bootstrap_value: Any = None, timeout: float | None = None) -> None:
        """Ends all episodes as they are and the writer, and waits until every item is in the table. Idempotent.

        Args:
            bootstrap_value: as for `end_episodes`.
            timeout: seconds to wait.

        Raises:
            DeadlineExceededError: the insertion goes on in the background.
        """
        self.end_episodes(bootstrap_value=bootstrap_value)
        self._close()
        self.flush(timeout=timeout)

    def _finish(self) -> None:
        self.close()

    def _abandon(self) -> None:
        self._close()
