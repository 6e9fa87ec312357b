"""Settings that change nothing with the others as they are."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from reverie.agents.settings import Settings


def may_need_note(config: Any) -> bool:
    """Whether settings without effect are not at their default, or have none: see `no_effect_note`."""
    return any(value not in defaults for _, value, defaults, _ in _idle(config))


def no_effect_note(config: Any, usual: Any = None) -> str:
    """A sentence about settings that have been changed and have no effect, with the reason; else empty.

    Changed are those that are neither at their default nor as in `usual`, the agent's own preset for the environment:
    a number that it has for a part which the user switches off is not noted. Without `usual`, settings that have no
    default are not, either.
    """
    found: dict[str, list[str]] = {}
    for name, value, defaults, reason in _idle(config):
        own = [*defaults, getattr(usual, name)] if hasattr(usual, name) else defaults or [value]
        if value not in own:
            found.setdefault(reason, []).append(f"{name} ({value})")
    return "; ".join(
        f"{_joined(names)} {'has' if len(names) == 1 else 'have'} no effect while {reason}"
        for reason, names in found.items()
    )


def _idle(config: Any) -> list[tuple[str, Any, list[Any], str]]:
    """Settings without effect in the order of the class: each with its value, its default if any, and the reason."""
    if not isinstance(config, Settings):
        return []
    reasons = config.without_effect()
    return [
        (one.name, getattr(config, one.name), [] if one.default is MISSING else [one.default], reasons[one.name])
        for one in fields(config)  # type: ignore[arg-type]
        if one.name in reasons
    ]


def _joined(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
