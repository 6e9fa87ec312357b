"""Settings that change nothing with the others as they are."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from reverie.agents.settings import Settings


def no_effect_note(config: Any, usual: Any = None) -> str:
    """A sentence about settings that have been changed and have no effect, with the reason; else empty.

    Changed are those that are neither at their default nor as in `usual`, the agent's own preset for the environment:
    a number that it has for a part which the user switches off is not noted. Nor is a setting without a default, which
    is in every preset.
    """
    if not isinstance(config, Settings):
        return ""
    defaults = {one.name: one.default for one in fields(config) if one.default is not MISSING}  # type: ignore[arg-type]
    idle: dict[str, list[str]] = {}
    for name, reason in config.without_effect().items():
        value = getattr(config, name)
        if value not in (defaults.get(name, value), getattr(usual, name, defaults.get(name, value))):
            idle.setdefault(reason, []).append(f"{name} ({value})")
    return "; ".join(
        f"{_joined(names)} {'has' if len(names) == 1 else 'have'} no effect while {reason}"
        for reason, names in idle.items()
    )


def _joined(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
