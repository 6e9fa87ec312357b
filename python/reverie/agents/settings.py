"""`Settings`: the base class of settings, whose values have the types that their annotations name."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import types
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

import numpy as np

WORDS: dict[Any, str] = {
    int: "an int",
    float: "a float",
    bool: "a bool",
    str: "a str",
    tuple[int, ...]: "a list of integers such as [128, 128]",
    tuple[float, ...]: "a list of numbers such as [0.5, 1.0]",
    tuple[str, ...]: 'a list of words such as ["one", "two"]',
}
"""Types of settings, as error messages call them."""
PAIRS = {"dataset_rename": '["observations=obs", "done=terminated"]'}
"""Settings of words `old=new`, each with an example. A dict is converted to such words."""
LONGEST = 500
"""The most characters of a value in an error message."""


class Settings:
    """Base class of dataclasses of settings. A value is converted to the type of its setting, or refused.

    NumPy's scalars and arrays become Python's numbers and tuples, lists become tuples, an int becomes a float and a
    whole float (1e6) an int where the setting is one. Any other type raises TypeError, which names the setting. A
    subclass that has a `__post_init__` calls that of its base class first. One that declares settings is a dataclass
    itself: otherwise its objects raise TypeError when they are made.
    """

    def __new__(cls, *values: Any, **named: Any) -> Self:
        """A new object. Raises TypeError for a class that declares settings and is no dataclass."""
        _require_dataclass(cls)  # type: ignore[arg-type]  # a class is hashable
        return super().__new__(cls)

    def __post_init__(self) -> None:
        hints = _hints(type(self))  # type: ignore[arg-type]  # a class is hashable
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            object.__setattr__(self, field.name, converted(field.name, hints[field.name], value))

    def without_effect(self) -> dict[str, str]:
        """The settings that have no effect as the others are set: a reason for each name, such as "her is empty".

        A subclass adds those of its own. The plan of a run notes the ones that were changed.
        """
        return {}

    def without_effect_in(self, spec: Any) -> dict[str, str]:
        """The settings of `without_effect`, and those without effect in an environment with this `EnvSpec`."""
        return self.without_effect()

    def of_initial_weights(self, *, all_networks: bool) -> tuple[str, ...]:
        """The settings that only choose initial weights: a run that begins with trained weights has theirs.

        Those of all networks of the learner, or of the ones that act. A subclass adds those of its own.
        """
        return ()

    def require_files(self, spec: Any, *, elsewhere: bool) -> None:
        """Raise ValueError or OSError if a file that a setting names is missing, or does not fit an `EnvSpec`.

        The plan of a run calls it. With `elsewhere` the run's roles may be on other machines, and a file that is not
        on this one may be there. A subclass checks the files of its own.
        """
        return None

    def scheduled(self, env_steps: int, updates: int) -> dict[str, float]:
        """Numbers that change with the counts of a run, such as epsilon, after `env_steps` and `updates`.

        A subclass adds those of its own. Learning rates are among the learner's metrics. Logs have them all.
        """
        return {}


def schedules_of(config: Any, env_steps: int, updates: int) -> dict[str, float]:
    """The numbers of `Settings.scheduled`, as floats; none of settings of another class.

    Raises TypeError for a value that is not a number: logs could not have it.
    """
    found = config.scheduled(env_steps, updates) if isinstance(config, Settings) else {}
    for name, value in found.items():
        if not hasattr(value, "__float__"):
            raise TypeError(f"{type(config).__name__}.scheduled has {value!r} for {name!r}, and must have numbers")
    return {name: float(value) for name, value in found.items()}


def converted(name: str, hint: Any, value: Any) -> Any:
    """The value of the setting `name`, whose type is `hint`. Raises TypeError, which names it, for another type."""
    words = words_of(hint)
    if name in PAIRS:
        value, words = _pairs_of(value), f"a list of words such as {PAIRS[name]}, or a dict"
    found = _of_type(hint, python_value(value))
    if found is _INVALID and callable(value) and not isinstance(value, type):
        kind = "function" if inspect.isroutine(value) else f"callable {type(value).__name__}"
        raise TypeError(f"{name} is a {kind}, and must be {words}: settings are saved in files{_instead(name)}")
    if found is _INVALID:
        instead = "; arrays become a data set as a Parquet file (the guide 'Data sets')" if name == "dataset" else ""
        raise TypeError(f"{name} is {_shown(value)}, and must be {words}{instead}")
    return found


def _pairs_of(value: Any) -> Any:
    """The words `old=new` of a dict of words; another value as it is."""
    if isinstance(value, dict) and value and all(isinstance(word, str) for pair in value.items() for word in pair):
        return [f"{old}={new}" for old, new in value.items()]
    return value


def _shown(value: Any) -> str:
    """A value for an error message: its `repr`, or its type alone where that is long, as of a dict of arrays."""
    text = repr(value)
    return text if len(text) <= LONGEST and "\n" not in text else f"a {type(value).__name__}"


def _instead(name: str) -> str:
    """The end of an error about a function: the settings that change this one during a run, if any do."""
    if name.endswith("learning_rate"):
        return "; a learning rate falls with anneal_updates, anneal_to and anneal_shape, and rises with warmup_updates"
    return "; it falls with the learning rate if anneal_clip is true" if name == "clip" else ""


def python_value(value: Any) -> Any:
    """The value without scalars and arrays of NumPy, also in lists and tuples."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if type(value) in (list, tuple):
        return type(value)(map(python_value, value))
    return value


def is_optional(hint: Any) -> bool:
    """Whether a setting of this type may be None."""
    return type(None) in _choices(hint)


def words_of(hint: Any) -> str:
    """A type of settings in words."""
    choices = [one for one in _choices(hint) if one is not type(None)]
    if len(choices) > 1:
        return " or ".join(map(words_of, choices))
    (only,) = choices
    if get_origin(only) is Literal:
        return " or ".join(map(repr, get_args(only)))
    return WORDS.get(only, str(only))


_INVALID: Any = object()


@functools.cache
def _require_dataclass(settings: type[Any]) -> None:
    """Raise TypeError for a class without the decorator that declares settings: they would be ignored."""
    for one in settings.__mro__:
        if not issubclass(one, Settings) or one is Settings or "__dataclass_fields__" in vars(one):
            continue
        hints = _hints(one)  # type: ignore[arg-type]  # a class is hashable
        names = [name for name in inspect.get_annotations(one) if get_origin(hints[name]) is not ClassVar]
        if names:
            raise TypeError(
                f"{one.__name__} declares {', '.join(names)}, and is no dataclass: write @dataclass(frozen=True,"
                " kw_only=True) above the class"
            )


@functools.cache
def _hints(settings: type[Any]) -> dict[str, Any]:
    return get_type_hints(settings)


def _choices(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _of_type(hint: Any, value: Any) -> Any:
    """The value in this type, or `_INVALID`."""
    choices = _choices(hint)
    if len(choices) > 1:
        exact = [one for one in choices if type(value) is one]
        converted = (_of_type(one, value) for one in (exact or choices))
        return next((one for one in converted if one is not _INVALID), _INVALID)
    if get_origin(hint) is Literal:
        return value if value in get_args(hint) else _INVALID
    if get_origin(hint) is tuple:
        return _tuple_of(get_args(hint), value)
    if hint is float and type(value) is int:
        return _float(value)
    if hint is int and type(value) is float and value.is_integer():  # 1e6
        return int(value)
    if hint is str and isinstance(value, os.PathLike):
        return os.fspath(value)
    if hint in (int, float, str, bool, type(None)):
        return value if type(value) is hint else _INVALID
    return value


def _float(value: int) -> Any:
    try:
        return float(value)
    except OverflowError:
        return _INVALID


def _tuple_of(items: tuple[Any, ...], value: Any) -> Any:
    if not isinstance(value, tuple | list):
        return _INVALID
    if items[-1:] == (...,):
        items = (items[0],) * len(value)
    if len(items) != len(value):
        return _INVALID
    found = tuple(map(_of_type, items, value))
    return _INVALID if any(one is _INVALID for one in found) else found
