"""Environments of installed packages that register them through the entry points of Gymnasium's plugins.

Since 1.0 Gymnasium no longer loads such packages: each would have to be imported by hand, in every process.
"""

from __future__ import annotations

import functools
from importlib.metadata import entry_points

import gymnasium

from reverie.agents.error_places import warn

GROUP = "gymnasium.envs"


def register_for(env_id: str) -> None:
    """Register the environments of all such packages, once, unless this one is known without them.

    A package that fails is reported as a warning, and the others are registered.
    """
    from reverie.agents.atari import is_game

    if not (":" in env_id or is_game(env_id) or any(_is_version_of(known, env_id) for known in gymnasium.registry)):
        _register_all()


def _is_version_of(known: str, env_id: str) -> bool:
    return known == env_id or known.rpartition("-v")[0] == env_id


@functools.cache
def _register_all() -> None:
    for plugin in entry_points(group=GROUP):
        try:
            plugin.load()()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            warn(f"the environments of {plugin.value} cannot be registered: {reason}")
