"""The last observations of episodes, as Gymnasium's vector environments give them in `info["final_obs"]`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reverie import _native
from reverie.errors import SignatureError

__all__ = ["last_rows"]


def last_rows(obs: Any, found: npt.NDArray[np.object_], terminated: Any, truncated: Any) -> Any:
    """A nest of arrays `[num_envs, ...]`: rows of ended episodes are from `found`, the others from `obs`.

    `found` is an array of objects `[num_envs]`: observations where episodes ended, elsewhere anything, such as None.

    Raises:
        ValueError: for another number of objects, and for None where an episode ended.
        SignatureError: for an observation with other parts or shapes than `obs`, and for numbers that the dtypes of
            `obs` do not have, such as fractions among integers.
    """
    ended = np.logical_or(terminated, truncated)
    if found.shape != ended.shape:
        raise ValueError(f"final_obs has the shape {list(found.shape)}, and there are {ended.size} environments")
    leaves, structure = _native.flatten(obs)
    columns = [np.array(leaf) for leaf in leaves]
    for env in np.flatnonzero(ended).tolist():
        if found[env] is None:
            raise ValueError(f"final_obs[{env}] is None, and the episode of environment {env} ended")
        parts, form = _native.flatten(found[env])
        if form != structure:
            got, want = ", ".join(form.paths), ", ".join(structure.paths)
            raise SignatureError(f"final_obs[{env}]: got the parts {got}, want {want} as in obs", got=got, want=want)
        for path, column, part in zip(structure.paths, columns, parts, strict=True):
            if np.shape(part) != column.shape[1:]:
                shape, want = list(np.shape(part)), str(list(column.shape[1:]))
                raise SignatureError(
                    f"{_named(env, path)}: got the shape {shape}, want {want}", got=str(shape), want=want
                )
            column[env] = part
            if column.dtype.kind != "f" and not np.array_equal(column[env], part):
                got, want = str(np.asarray(part).dtype), str(column.dtype)
                raise SignatureError(f"{_named(env, path)}: got {got}, want {want} as in obs", got=got, want=want)
    return structure.unflatten(columns)


def _named(env: int, path: str) -> str:
    return f"final_obs[{env}]" + (f", part '{path}'" if path else "")
