"""The number of updates for each environment step when hindsight adds items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reverie.agents.replay import HindsightSettings


def relabels(config: Any) -> bool:
    """Whether items with other goals are inserted."""
    return isinstance(config, HindsightSettings) and bool(config.her)


def relabelling_note(config: Any, usual: Sequence[Any]) -> str:
    """A sentence if `her` is set, and `samples_per_insert` is that of a preset in `usual` without `her`; else empty.

    It has the number of updates for each environment step, and the value that would keep it.
    """
    if not relabels(config):
        return ""
    ratios = [one.samples_per_insert for one in usual if isinstance(one, HindsightSettings) and not one.her]
    if config.samples_per_insert not in ratios:
        return ""
    items, ratio = 1 + config.her_k, config.samples_per_insert
    return (
        f"her adds {config.her_k} items for each step, and samples_per_insert counts them: the run makes"
        f" {ratio * items / config.batch_size:.3g} updates for each environment step, {items} times as many as without"
        f" her; samples_per_insert={ratio / items:g} in place of {ratio:g} would keep their number"
    )
