"""Ids of environments with options: `FrozenLake-v1(is_slippery=False)`, which checkpoints and policies keep as text."""

from __future__ import annotations

from typing import Any

from reverie.agents.env_errors import UnknownEnvironmentError, UnsupportedEnvironmentError
from reverie.agents.named_parts import PartError, task_and_options

RESERVED = frozenset({"id", "render_mode", "disable_env_checker", "num_envs", "vectorization_mode"})
"""Arguments of `gymnasium.make` that runs set."""


def without_options(env_id: str) -> str:
    """The id without its options: `FrozenLake-v1` of `FrozenLake-v1(is_slippery=False)`."""
    return env_id.partition("(")[0]


def id_and_options(env_id: str) -> tuple[str, dict[str, Any]]:
    """The id, and its literal options, which `gymnasium.make` takes.

    Raises `UnknownEnvironmentError` for a malformed text, and `UnsupportedEnvironmentError` for an option that a run
    sets.
    """
    try:
        name, options = task_and_options(env_id)
    except PartError as error:
        example = f"{without_options(env_id)}(name=3)"
        raise UnknownEnvironmentError(
            env_id, f"its options are malformed: write {example} with literals", (), listed=False
        ) from error
    reserved = sorted(RESERVED & set(options))
    if reserved:
        raise UnsupportedEnvironmentError(f"{env_id} sets {', '.join(reserved)}, which the run sets: leave it out")
    return name, options
