"""The environment steps at which the learning rate of a run stops rising or falling."""

from __future__ import annotations

from typing import Any

from reverie.agents.core import RunSettings, TableNeeds

EARLY = 0.5
"""A rate that has fallen before this share of the run's steps is reported."""


def annealing_note(config: Any, needs: TableNeeds, run: RunSettings) -> str:
    """A sentence if the rate stays at its lowest for most of the run, with the value that would fit; else empty.

    Empty, too, where the settings do not determine how many steps an update takes.
    """
    updates, per_update = getattr(config, "anneal_updates", 0), steps_per_update(config, needs)
    if not updates or per_update is None:
        return ""
    first, steps = getattr(config, "learning_starts", 0), run.max_env_steps
    end = first + updates * per_update
    if end >= EARLY * steps:
        return ""
    if hasattr(config, "learning_rate"):
        falls = f"the learning rate falls to {config.anneal_to:g} of {config.learning_rate:g}"
        stay, them = "stays", "it"
    else:
        falls, stay, them = f"the learning rates fall to {config.anneal_to:g} of their values", "stay", "them"
    return (
        f"{falls} within {end:,.0f} of {steps:,}"
        f" environment steps and {stay} there: anneal_updates is {updates:,}, and {(steps - first) / per_update:,.0f}"
        f" would let {them} fall until the last step"
    )


def warmup_note(config: Any, needs: TableNeeds, run: RunSettings) -> str:
    """A sentence if the run ends before its learning rate has risen to its value; else empty.

    Empty, too, where the settings do not determine how many steps an update takes.
    """
    updates, made = getattr(config, "warmup_updates", 0), updates_of_run(config, needs, run)
    if made is None:
        return ""
    if made >= updates:
        return ""
    one = hasattr(config, "learning_rate")
    rate = f"the learning rate rises to {made / updates:.2g} of {config.learning_rate:g}" if one else ""
    return (
        f"{rate or f'the learning rates rise to {made / updates:.2g} of their values'} only: warmup_updates is"
        f" {updates:,}, and the run makes about {made:,.0f} updates in {run.max_env_steps:,} environment steps"
    )


def updates_of_run(config: Any, needs: TableNeeds, run: RunSettings) -> float | None:
    """Updates of a run that goes on to its last step; None where settings do not determine them."""
    per_update = steps_per_update(config, needs)
    if per_update is None:
        return None
    return max(0.0, (run.max_env_steps - getattr(config, "learning_starts", 0)) / per_update)


def steps_per_update(config: Any, needs: TableNeeds) -> float | None:
    """Environment steps between two updates once the agent learns; None where settings do not determine them."""
    if hasattr(config, "samples_per_insert"):
        # An item is not a step where items are sequences, or hindsight adds some.
        other = hasattr(config, "sequence_length") or bool(getattr(config, "her", ""))
        return None if other else float(needs.batch_size / config.samples_per_insert)
    if hasattr(config, "unroll_length"):  # a queue, from which every unroll is learnt once
        return float(needs.batch_size * config.unroll_length)
    return None
