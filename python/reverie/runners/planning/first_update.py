"""Runs that end before their first update."""

from __future__ import annotations

import math
from typing import Any

from reverie.agents.core import RunSettings, TableNeeds


def no_update_note(config: Any, needs: TableNeeds, run: RunSettings) -> str:
    """A sentence if the run ends before its first update, with the settings to change; else empty.

    Empty, too, where the settings do not determine the environment steps before the first update.
    """
    before, setting = steps_before_update(config, needs)
    if run.max_env_steps > before:
        return ""
    return (
        f"the run may end without an update: the first one comes after about {before:,} environment steps ({setting}),"
        f" and max_env_steps is {run.max_env_steps:,}: raise it, or lower {setting.partition(' ')[0]}"
    )


def steps_before_update(config: Any, needs: TableNeeds) -> tuple[int, str]:
    """Environment steps before the first update, and the settings that decide it; 0 if not determined.

    They are fewer where episodes end in the first unrolls, in which resets have rows, too.
    """
    starts, unroll = getattr(config, "learning_starts", None), getattr(config, "unroll_length", None)
    if hasattr(config, "sequence_length"):  # an episode's end makes a sequence, too
        return 0, ""
    if starts is not None:
        # Hindsight adds items of its own to that of each step.
        items = 1 + (config.her_k if getattr(config, "her", "") else 0)
        return math.ceil(starts / items), f"learning_starts is {starts:,}"
    if unroll is not None:
        return needs.batch_size * unroll, f"unroll_length is {unroll:,}, and a batch has {needs.batch_size:,} unrolls"
    return 0, ""
