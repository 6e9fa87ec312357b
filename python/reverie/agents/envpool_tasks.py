"""Tasks of EnvPool: vectors of environments that its own threads step, as `envpool:TASK`."""

from __future__ import annotations

import difflib
from typing import Any

from reverie.agents.env_errors import UnknownEnvironmentError, UnsupportedEnvironmentError
from reverie.agents.named_parts import PartError, task_and_options

PARAMETERS = frozenset({"seed", "render_mode", "max_episode_steps"})
"""The options of `envpool.make` that runs set."""
_SEEDS = 2**31 - 2**20
"""The limit of EnvPool's seeds, which are int32; environment i has `seed + i`."""


class _Task:
    def __init__(self, task: str, options: dict[str, Any]) -> None:
        self._task, self._options = task, options

    def __call__(self, *, num_envs: int, seed: int = 0, **options: Any) -> Any:
        import envpool

        # One thread steps one environment: a pool of threads for it only costs.
        threads = {"num_threads": 1} if num_envs == 1 else {}
        given = {**threads, **self._options, **options}
        return envpool.make(self._task, env_type="gymnasium", num_envs=num_envs, seed=seed % _SEEDS, **given)


def factory_of(env_id: str) -> _Task:
    """The factory of `envpool:TASK`, or of `envpool:TASK(option=3)` with literal options of `envpool.make`.

    Raises `UnsupportedEnvironmentError` without EnvPool, and `UnknownEnvironmentError` for another task.
    """
    try:
        import envpool
    except ImportError as error:
        raise UnsupportedEnvironmentError(
            f'{env_id} needs a package that is not installed: pip install "reverie[envpool]" ({error})'
        ) from error
    try:
        task, options = task_and_options(env_id.partition(":")[2])
    except PartError as error:
        raise UnknownEnvironmentError(env_id, str(error), ()) from error
    reserved = sorted({"num_envs", "batch_size", "env_type", "env_seed", *PARAMETERS} & set(options))
    if reserved:
        raise UnsupportedEnvironmentError(f"{env_id} sets {', '.join(reserved)}, which the run sets: leave it out")
    known = envpool.list_all_envs()
    if task not in known:
        near = tuple(f"envpool:{one}" for one in difflib.get_close_matches(task, known, n=3, cutoff=0.6))
        raise UnknownEnvironmentError(env_id, "EnvPool has no such task", near)
    return _Task(task, options)
