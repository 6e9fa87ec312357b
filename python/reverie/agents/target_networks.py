"""Target networks, which follow the online networks: at every update, or by copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from reverie.agents.flat import FlatNetwork
from reverie.agents.targets import TargetSettings

Pairs = Sequence[tuple[FlatNetwork[Any], FlatNetwork[Any]]]
"""Target networks, each with its online network."""


def polyak_update(target: FlatNetwork[Any], online: FlatNetwork[Any], rate: float) -> None:
    """Polyak averaging: move the target by a fraction `rate` of the way to the online network."""
    with torch.no_grad():
        target.flat.lerp_(online.flat, rate)


def follow(pairs: Pairs, config: TargetSettings) -> None:
    """Move the targets by `target_rate`, as part of an update; nothing where it is 0."""
    if config.target_rate > 0:
        for target, online in pairs:
            polyak_update(target, online, config.target_rate)


def copy_if_due(pairs: Pairs, config: TargetSettings, updates: int) -> None:
    """Copy the online networks after every `target_period` of all `updates` so far; never with a `target_rate`."""
    if not config.target_rate and updates % config.target_period == 0:
        for target, online in pairs:
            target.copy_from(online)
