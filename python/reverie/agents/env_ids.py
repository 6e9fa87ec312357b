"""Ids of environments: the texts that name them in a run's folder, in policies and for other processes.

It is the id of a registered environment, with options of `gymnasium.make` if it has any, such as
`FrozenLake-v1(is_slippery=False)`; or `module:name`, with literal arguments, of a class or a function.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from multiprocessing import spawn
from typing import Any, NamedTuple

from reverie.agents.env_errors import UnknownEnvironmentError, UnsupportedEnvironmentError
from reverie.agents.named_parts import PartError, load_part, reference_of, resolve, task_and_options

RESERVED = frozenset({"id", "render_mode", "disable_env_checker", "num_envs", "vectorization_mode"})
"""Arguments of `gymnasium.make` that runs set."""
WORDS = {"True": True, "False": False, "None": None}
"""Python's literals that a command line gives as text."""
PROGRAM = "__main__:"
"""The start of the names of objects that the program itself defines."""


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


def id_of(env: object, setting: str = "env_id") -> str:
    """The id of an environment: that text itself, or `module:name` of a class or function that makes environments.

    Raises TypeError, which names the `setting`, for an environment itself, for a class or function that other processes
    cannot import by its name, and for anything else.
    """
    import gymnasium

    if isinstance(env, str):
        return env
    wanted = "must be the id of an environment, or a class or function that makes one"
    if isinstance(env, gymnasium.Env | gymnasium.vector.VectorEnv):
        name = type(env.unwrapped).__name__
        own = repr(env.spec.id) if env.spec is not None else "the id of a registered one"
        raise TypeError(
            f"{setting} is an environment, a {name}, and {wanted}, since every role of a run makes its own: give"
            f" {own}, the class {name}, or a function that makes it with its wrappers"
        )
    if isinstance(env, partial):
        raise TypeError(
            f"{setting} is a functools.partial, and {wanted}: write the text module:name(size=3) with literal"
            " arguments, or a function at the top of a module"
        )
    if not callable(env):
        raise TypeError(f"{setting} is a {type(env).__name__}, and {wanted}")
    try:
        return reference_of(env)
    except PartError as error:
        raise TypeError(f"{setting}: {error}; it {wanted}") from error


class EnvironmentMaker(NamedTuple):
    """A class or function that an id names."""

    make: Callable[..., Any]
    """It fills in the arguments of the id."""
    parameters: frozenset[str]
    """The names of its parameters."""
    of_vectors: bool
    """Whether it makes vectors of environments, with `num_envs=`."""
    takes_any: bool
    """Whether it takes parameters of any name."""

    def takes(self, parameter: str) -> bool:
        """Whether a parameter of this name can be given."""
        return self.takes_any or parameter in self.parameters


def maker_of(env_id: str) -> EnvironmentMaker | None:
    """The class or function that an id names as `module:name`; None for any other id, such as one that is registered.

    A class derived from `gymnasium.Env` and a function without a parameter `num_envs` make single environments. The
    module is imported; an error of its import is left to `gymnasium.make`, which imports it again.
    """
    import gymnasium

    module, colon, name = without_options(env_id).partition(":")
    if not colon:
        return None
    with suppress(Exception):
        importlib.import_module(module)
    if name in gymnasium.registry:
        return None
    try:
        part = resolve(env_id).part
    except PartError:
        return None
    signature = inspect.signature(part).parameters
    single = isinstance(part, type) and issubclass(part, gymnasium.Env)
    takes_any = any(one.kind is one.VAR_KEYWORD for one in signature.values())
    of_vectors = not single and ("num_envs" in signature or takes_any)
    return EnvironmentMaker(load_part(env_id), frozenset(signature), of_vectors, takes_any)


def with_option(env_id: str, name: str, value: object) -> str:
    """The id with an option that its environment takes; empty if it takes none of this name, or that is not known."""
    with suppress(Exception):  # of the environment's module
        if not _takes(env_id, name):
            return ""
        if isinstance(value, str):
            value = WORDS.get(value, value)
        bare, options = without_options(env_id), env_id.partition("(")[2].removesuffix(")")
        return f"{bare}({options + ', ' if options else ''}{name}={value!r})"
    return ""


def _takes(env_id: str, name: str) -> bool:
    """Whether the environment has a parameter of this name, which the run does not set."""
    import gymnasium

    if name in RESERVED:
        return False
    maker = maker_of(env_id)
    if maker is not None:
        return name in maker.parameters
    spec = gymnasium.spec(without_options(env_id))
    point: Any = spec.entry_point
    make = gymnasium.envs.registration.load_env_creator(point) if isinstance(point, str) else point
    return name in spec.kwargs or name in inspect.signature(make).parameters


def why_unknown(env_id: str) -> str:
    """Why an id is neither registered nor the name of a class or function, for the error that reports it."""
    reason = "the name is not registered"
    _, colon, name = without_options(env_id).partition(":")
    if not colon or not name.replace(".", "").isidentifier():
        return reason
    try:
        resolve(env_id)
    except PartError as error:
        return f"{reason}, and as a class or function it {error.reason}"
    return reason


def nearest_environments(env_id: str) -> tuple[str, ...]:
    """Registered ids similar to this one."""
    import gymnasium

    module, colon, name = without_options(env_id).rpartition(":")
    same_namespace = [known for known in gymnasium.registry if ("/" in known) == ("/" in name)]
    return tuple(module + colon + near for near in difflib.get_close_matches(name, same_namespace, n=3, cutoff=0.6))


def require_importable(ids: Iterable[str], runner: str) -> None:
    """Raise TypeError for names of what is defined in the program itself and missing in the processes of the runner.

    Processes of multiprocessing import the main script. Those of Ray, and of a program without a file, such as a
    notebook, do not.
    """
    own = next((one for one in ids if one.startswith(PROGRAM)), None)
    if own is None or runner == "local":
        return
    if runner == "process" and {"init_main_from_path", "init_main_from_name"} & spawn.get_preparation_data("").keys():
        return
    raise TypeError(
        f"{own.removeprefix(PROGRAM)} is defined in the program itself, which the processes of runner={runner!r} do not"
        " import: define it in a module of its own, or train with runner='local'"
    )
