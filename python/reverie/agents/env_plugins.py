"""Environments of installed packages that register them through the entry points of Gymnasium's plugins.

Gymnasium loads such packages by itself no more (since 1.0); each would have to be imported by hand, in every process.
"""

from __future__ import annotations

import functools
import warnings
from importlib.metadata import entry_points

import gymnasium

GROUP = "gymnasium.envs"


def register_for(env_id: str) -> None:
    """Register the environments of all such packages, once, unless an environment of this id is there already.

    A package that fails is reported as a warning, and the others are registered.
    """
    if ":" not in env_id and env_id not in gymnasium.registry:
        _register_all()


@functools.cache
def _register_all() -> None:
    for plugin in entry_points(group=GROUP):
        try:
            plugin.load()()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            warnings.warn(f"the environments of {plugin.value} cannot be registered: {reason}", stacklevel=2)
