"""Errors of environments that cannot be made or played."""

from __future__ import annotations

from reverie._picklable import Picklable


class UnknownEnvironmentError(Picklable, ValueError):
    """No environment of this id is registered. `.env_id`, `.reason`, `.nearest` (ids that look like it)."""

    def __init__(self, env_id: str, reason: str, nearest: tuple[str, ...], *, listed: bool = True) -> None:
        """`listed`: whether a list of registered environments may help."""
        self.env_id, self.reason, self.nearest = env_id, reason, nearest
        named = ":" in env_id  # the module is not the registry's
        lists = "" if named or not listed else "; `gymnasium.pprint_registry()` lists them"
        hint = f"; did you mean {' or '.join(nearest)}?" if nearest else lists
        super().__init__(f"no environment {env_id!r}: {reason}{hint}")


class UnsupportedEnvironmentError(ValueError):
    """The environment exists, but this agent cannot play it. The text names what would fit."""
