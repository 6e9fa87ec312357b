"""The results of an update, on their way from the device: new priorities, and figures."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reverie._picklable import Picklable
from reverie.types import Batch

NO_WEIGHTS = -1
"""The `weights_version` of an item that no weights made: a row of a data set, or an item without this column."""


class DivergedError(Picklable, RuntimeError):
    """A loss or a TD error is no longer finite; no priority of that batch was written to the table. `.version`"""

    def __init__(self, version: int, what: str, rates: Mapping[str, float]) -> None:
        """`rates` are the agent's settings of learning rates, by name."""
        self.version = version
        cause = (
            "learning diverged;"
            if version
            else "rewards or observations may be too large, or not finite; scale or normalise them, or"
        )
        lower = ", ".join(f"{name} ({rate:g})" for name, rate in rates.items() if rate > 0)
        super().__init__(f"{what} is not finite at update {version}: {cause} lower {lower or 'the learning rate'}")


class UpdateOutcome:
    """The results of an update. Their copies from a GPU begin when it is made, and `wait` ends them.

    The device may overwrite the tensors afterwards.
    """

    def __init__(
        self, version: int, batch: Batch, priorities: Tensor | None, figures: Mapping[str, float | Tensor], unit: float
    ) -> None:
        """`version` is the number of updates before this one, `unit` the factor of its priorities."""
        # A copy: the keys of a batch over a network are in the same memory as its columns.
        self.version, self.keys = version, np.array(batch.info.key)
        self._count_and_sum = _copied(_versions_of(batch))
        self._priorities, self._unit = _copied(priorities), unit
        self._figures = {name: _copied(one) if isinstance(one, Tensor) else one for name, one in figures.items()}
        device = next(iter(batch.data.values())).device
        self._all_copied = torch.cuda.current_stream(device).record_event() if device.type == "cuda" else None

    def wait(self) -> tuple[NDArray[np.float64] | None, dict[str, float]]:
        """New priorities `[B]`, of an update that makes some, and its figures. Blocks until the device has made it."""
        if self._all_copied is not None:
            self._all_copied.synchronize()
        priorities = None if self._priorities is None else self._priorities.double().numpy() * self._unit
        return priorities, {name: float(one) for name, one in self._figures.items()}  # type: ignore[arg-type]

    def age(self) -> float | None:
        """Average age, in updates, of the weights that made the items; None if none did. Valid after `wait`."""
        return _age(self.version, self._count_and_sum)


def age(version: int, batch: Batch) -> float | None:
    """Average age, in updates, of the weights that made the items of a batch of tensors; None if none did."""
    return _age(version, _versions_of(batch))


def _versions_of(batch: Batch) -> Tensor | None:
    """The number of items that weights made, and the sum of their versions; None for items without the column."""
    versions: Tensor | None = batch.data.get("weights_version")
    if versions is None:
        return None
    made = versions != NO_WEIGHTS
    return torch.stack([made.sum(), torch.where(made, versions, 0).sum()])


def _age(version: int, count_and_sum: Tensor | None) -> float | None:
    count, total = (0, 0) if count_and_sum is None else count_and_sum.tolist()
    return version - total / count if count else None


def _copied(tensor: Tensor | None) -> Tensor | None:
    """The tensor, or its copy in page-locked memory, which has only begun."""
    return None if tensor is None else tensor.detach().to("cpu", non_blocking=True)
