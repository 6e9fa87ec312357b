"""The space of `reverie search`: settings of a preset, each with a range or a list of choices."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reverie._picklable import Picklable
from reverie.agents import presets
from reverie.agents.named_parts import PartError, resolve

if TYPE_CHECKING:
    from reverie.agents.core import Preset

FORM = "write NAME=log:LOW:HIGH, NAME=float:LOW:HIGH, NAME=int:LOW:HIGH or NAME=choice:ONE,TWO"
KINDS = ("log", "float", "int", "logint")


class SpaceError(Picklable, ValueError):
    """A part of a space is invalid. `.name` is the setting, as the user named it."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        super().__init__(f"search space: {name} {reason}")


@dataclass(frozen=True)
class Range:
    """Numbers of a setting, both ends included. `step` is their distance; `log` draws the logarithm evenly."""

    low: float
    high: float
    integer: bool = False
    log: bool = False
    step: float | None = None

    def distribution(self) -> Any:
        """Optuna's distribution."""
        from optuna import distributions

        size = self.size()
        high = self.high if size is None else self.value(size - 1)  # Optuna warns of one that no step reaches
        if self.integer:
            return distributions.IntDistribution(int(self.low), int(high), log=self.log, step=int(self.step or 1))
        return distributions.FloatDistribution(self.low, high, log=self.log, step=self.step)

    def size(self) -> int | None:
        """The number of values; None for a continuous range."""
        if (step := self._distance()) is None:
            return None
        return int((Decimal(repr(self.high)) - Decimal(repr(self.low))) / step) + 1

    def value(self, index: int) -> float:
        """The value of a place, counted from `low`. Only for a range with a size."""
        step = self._distance()
        assert step is not None
        value = Decimal(repr(self.low)) + index * step
        return int(value) if self.integer else float(value)

    def place(self, value: float) -> float:
        """The place of a value, which rounding errors do not change; the value itself in a continuous range."""
        step = self._distance()
        return value if step is None else round((value - self.low) / float(step))

    def _distance(self) -> Decimal | None:
        step = self.step or (1 if self.integer else None)
        return None if step is None else Decimal(repr(step))

    def ends(self) -> tuple[str, ...]:
        """The values to try the setting with before a search."""
        return self.text(self.low), self.text(self.high)

    def text(self, value: float) -> str:
        """A value as `--set` takes it."""
        return repr(int(value) if self.integer else float(value))


@dataclass(frozen=True)
class Choices:
    """Values of a setting without an order, each as `--set` takes it."""

    texts: tuple[str, ...]

    def distribution(self) -> Any:
        """Optuna's distribution."""
        from optuna import distributions

        return distributions.CategoricalDistribution(self.texts)

    def size(self) -> int:
        """The number of values."""
        return len(self.texts)

    def value(self, index: int) -> str:
        """The value of a place."""
        return self.texts[index]

    def place(self, value: str) -> int:
        """The place of a value."""
        return self.texts.index(value)

    def ends(self) -> tuple[str, ...]:
        """The values to try the setting with before a search."""
        return self.texts

    def text(self, value: str) -> str:
        """A value as `--set` takes it."""
        return value


Space = Mapping[str, Range | Choices]


def size(space: Space) -> int | None:
    """The number of combinations of values; None where a range is continuous."""
    number = 1
    for part in space.values():
        if (values := part.size()) is None:
            return None
        number *= values
    return number


def combination(space: Space, index: int) -> dict[str, Any]:
    """A combination of a finite space, as parameters of a trial."""
    params = {}
    for name, part in reversed(list(space.items())):
        values = part.size()
        assert values is not None
        index, place = divmod(index, values)
        params[name] = part.value(place)
    return {name: params[name] for name in space}


def key(space: Space, params: Mapping[str, Any]) -> tuple[float, ...]:
    """The combination of a trial's parameters; equal for equal settings."""
    return tuple(part.place(params[name]) for name, part in space.items())


def read(file: Path | None, flags: Sequence[str], preset: Preset, *, grid: bool = False) -> Space:
    """The space of a file and of `--search` flags, which win, by the names of settings of the preset.

    Raises `SpaceError` for an empty space and an invalid part, or with `grid` a range without steps;
    `presets.PresetError` for a setting that the agent does not have (with the nearest name), or whose values it refuses
    or cannot import, OSError for a file that cannot be read.
    """
    parts: dict[str, Any] = {} if file is None else _load(file)
    for flag in flags:
        name, equals, text = flag.partition("=")
        if not equals:
            raise SpaceError(repr(flag), f"is not a range of a setting: {FORM}")
        parts[name.strip()] = text.strip()
    space: dict[str, Range | Choices] = {}
    for given, part in parts.items():
        name = presets.setting_named(given, preset)
        if name in space:
            raise SpaceError(given, f"is another name of {name}, which has a range already: leave one of them out")
        space[name] = found = _from_text(given, part) if isinstance(part, str) else _from_table(given, part)
        if isinstance(found, Range) and not found.integer and presets.takes_integers(name, preset):
            form = f"write {given}=int:LOW:HIGH, or logint for a logarithmic range"
            raise SpaceError(given, f"takes integers: {form}")
        if grid and isinstance(found, Range) and (found.log or found.size() is None):
            form = f"write {given}=choice:ONE,TWO, or {given}={'int' if found.integer else 'float'}:LOW:HIGH:STEP"
            raise SpaceError(given, f"has no steps, and --sampler grid tries each value: {form}")
        for text in space[name].ends():
            _require_parts(presets.override(preset, [f"{name}={text}"]), name, text)
    if not space:
        raise ValueError(f"search space: it is empty: {FORM} after --search, or name a file with --space")
    return space


def _require_parts(tried: Preset, name: str, text: str) -> None:
    """Raise `presets.PresetError` if a network or wrapper of a preset with a value cannot be imported."""
    if name not in ("network", "wrappers"):
        return
    try:
        for reference in tried.environment.named_parts():
            if reference != tried.environment.evaluation_env:  # an id, mostly; looked up when the run is planned
                resolve(reference)
    except PartError as error:
        raise presets.PresetError(tried.path, f"with {name}={text}: {error}") from error


def _load(file: Path) -> dict[str, Any]:
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".toml":
        try:
            found: Any = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"search space {file} is not TOML: {error}") from error
    elif file.suffix in (".yaml", ".yml"):
        import yaml

        try:
            found = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(f"search space {file} is not YAML: {' '.join(str(error).split())}") from error
    else:
        raise ValueError(f"search space {file} must be a .toml or a .yaml")
    if not isinstance(found, dict):
        raise ValueError(f"search space {file} has no names of settings at its top")
    return found


def _from_text(name: str, text: str) -> Range | Choices:
    """A part such as `log:1e-4:1e-2`, `int:1:5` or `choice:32,64`."""
    kind, _, rest = text.partition(":")
    if kind == "choice":
        return _choices(name, _split(rest))
    numbers = rest.split(":")
    if kind not in KINDS or not 2 <= len(numbers) <= 3:
        raise SpaceError(name, f"is {text!r}: {FORM}")
    return _range(name, kind, *numbers)


def _split(text: str) -> list[Any]:
    """Values separated by commas: TOML's, such as lists, or words."""
    try:
        return list(tomllib.loads(f"values = [{text}]")["values"])
    except tomllib.TOMLDecodeError:
        return [part.strip() for part in text.split(",") if part.strip()]


def _from_table(name: str, table: Any) -> Range | Choices:
    """A part such as `{type = "log", low = 1e-4, high = 1e-2}` or `{choices = [32, 64]}`, or a list of choices."""
    if isinstance(table, list):
        return _choices(name, table)
    if not isinstance(table, dict):
        raise SpaceError(name, f"is {table!r}: {FORM}, or a list of choices")
    rest = dict(table)
    if "choices" in rest:
        values = rest.pop("choices")
        if rest or not isinstance(values, list):
            raise SpaceError(name, f"is {table!r}: choices are a list, and take nothing else")
        return _choices(name, values)
    unknown = sorted(set(rest) - {"type", "low", "high", "step"})
    missing = sorted({"type", "low", "high"} - set(rest))
    if unknown or missing:
        what = f"has no {' and no '.join(missing)}" if missing else f"has an unknown {', '.join(unknown)}"
        raise SpaceError(name, f"{what}: a range has type, low and high, and may have step")
    if rest["type"] not in KINDS:
        raise SpaceError(name, f"has the type {rest['type']!r}, and must have one of {', '.join(KINDS)}")
    ends = [rest["low"], rest["high"], *([rest["step"]] if "step" in rest else [])]
    return _range(name, rest["type"], *ends)


def _choices(name: str, values: list[Any]) -> Choices:
    texts = tuple(value if isinstance(value, str) else presets.toml(value) for value in values)
    if len(set(texts)) < max(2, len(texts)):
        raise SpaceError(name, f"has the choices {values!r}: give two or more, each once")
    return Choices(texts)


def _range(name: str, kind: str, low: Any, high: Any, step: Any = None) -> Range:
    integer, log = kind in ("int", "logint"), kind in ("log", "logint")
    first, last = _number(name, low, integer), _number(name, high, integer)
    every = None if step is None else _number(name, step, integer)
    if first >= last:
        raise SpaceError(name, f"goes from {low} to {high}: the first must be below the second")
    if log and first <= 0:
        raise SpaceError(name, f"goes from {low} on: a logarithmic range begins above 0")
    if every is not None and (log or every <= 0):
        raise SpaceError(name, f"has the step {step}: it must be above 0, and a logarithmic range has none")
    return Range(first, last, integer, log, every)


def _number(name: str, value: Any, integer: bool) -> float:
    try:
        number = float(value)  # YAML reads 1e-4 as text
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        raise SpaceError(name, f"has {value!r}, and must have numbers")
    if integer and not number.is_integer():
        raise SpaceError(name, f"has {value}, and is a range of integers")
    return number
