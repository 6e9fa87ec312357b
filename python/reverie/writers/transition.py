"""The writer of n-step transitions."""

from __future__ import annotations

from typing import Any, Literal, final

from reverie import _native
from reverie.writers.context import WriterContext

__all__ = ["Autoreset", "TransitionWriter"]

#: How a vector environment resets after an episode, by Gymnasium's names (`AutoresetMode`).
Autoreset = Literal["next_step", "same_step", "disabled"]


@final
class TransitionWriter(_native.TransitionWriter, WriterContext):
    """Makes n-step transitions from the steps of one or more environments; `client.transition_writer(...)` makes it.

    An item has the columns `obs`, `action`, `reward`, `discount`, `next_obs` and the extras of its first step. Let m be
    the number of steps from `obs` to `next_obs`: n, or fewer at the end of an episode. Then `reward` is the sum of
    discount**k * r_k over k < m (float32), and `discount` is discount**m, or 0 where the last step terminated (Sutton &
    Barto, 2nd ed., section 7.1): a target is `reward + discount * value(next_obs)` in every case. At the end of an
    episode the shorter transitions are sent too. Every observation is stored once. Cells may differ in the size of
    their first axis where the table's signature has None for it; the environments have one size in each step.

    Args:
        n_step: the number of steps from an item's observation to its next observation.
        discount: per step, within [0, 1].
        num_envs: the number of environments that step together; None means one environment, whose arrays have no such
            axis.
        frame_stack: observations of items are stacks of this number of frames, where each append has only the newest
            frame. The first frame of an episode is repeated before it.
        stack_axis: the position of the stack's axis among a frame's axes: 0 gives `[B, 4, 84, 84]`.
        autoreset: where the last observation of an episode comes from. "next_step" (the default with `num_envs`, as
            Gymnasium's): it is the `obs` of the next append, which does not make a transition. "same_step" and
            "disabled" (the default for one environment): it is `final_obs`, which may be Gymnasium's
            `info["final_obs"]`.
        priority_eps: added to |TD error| where priorities are computed from `q_taken`.
        priority_clip: the upper limit of |TD error|, before `priority_eps` is added; None means no limit. `append` has
            the unit of both.
        priority: the priority of items whose TD error is not known; "max" is the largest priority in the table.
        max_in_flight_bytes: `append` waits while items with more bytes than this are not in the table yet; None takes
            the client's limit.
        timeout: seconds that `append` may wait; None takes the client's default.
        variable: columns whose cells may differ in the size of their first axis, with the number of a cell's axes; the
            client takes them from the table's signature.

    Raises:
        ValueError: for arguments that can never work.
        UnknownTableError.
    """

    __slots__ = ()

    def close(self, *, bootstrap_value: Any = None, timeout: float | None = None) -> None:
        """Ends all episodes, closes the writer, and waits until all items are in the table. Idempotent.

        Args:
            bootstrap_value: as for `end_episodes`.
            timeout: seconds to wait.

        Raises:
            DeadlineExceededError: the insert continues in the background.
        """
        self.end_episodes(bootstrap_value=bootstrap_value)
        self._close()
        self.flush(timeout=timeout)

    def _finish(self, timeout: float | None = None) -> None:
        self.close(timeout=timeout)

    def _abandon(self) -> None:
        self._close()
