"""Settings that change nothing with the others as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any

from reverie.agents.environments import EnvSpec
from reverie.agents.settings import Settings


def may_need_note(config: Any, env: EnvSpec) -> bool:
    """Whether settings without effect are not at their default, or have none: see `no_effect_note`."""
    return any(value not in defaults for _, value, defaults, _ in _idle(config, env))


def no_effect_note(config: Any, env: EnvSpec, usual: Sequence[Any] = ()) -> str:
    """A sentence about settings that have been changed and have no effect, with the reason; else empty.

    Changed are those that are neither at their default nor as in `usual`, presets of the agent itself: a number that
    they have for a part which the user switches off is not noted. Without `usual`, settings that have no default are
    not, either.
    """
    found: dict[str, list[str]] = {}
    for name, value, defaults, reason in _idle(config, env):
        theirs = [getattr(one, name) for one in usual if hasattr(one, name)]
        own = [*defaults, *theirs] if theirs else defaults or [value]
        if value not in own:
            found.setdefault(reason, []).append(f"{name} ({value})")
    return "; ".join(
        f"{_joined(names)} {'has' if len(names) == 1 else 'have'} no effect while {reason}"
        for reason, names in found.items()
    )


def _idle(config: Any, env: EnvSpec) -> list[tuple[str, Any, list[Any], str]]:
    """Settings without effect in the order of the class: each with its value, its default if any, and the reason."""
    if not isinstance(config, Settings):
        return []
    reasons = config.without_effect_in(env)
    return [
        (one.name, getattr(config, one.name), [] if one.default is MISSING else [one.default], reasons[one.name])
        for one in fields(config)  # type: ignore[arg-type]
        if one.name in reasons
    ]


def _joined(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
