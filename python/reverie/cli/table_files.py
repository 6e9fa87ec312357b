"""Tables from files: a Python file that makes them, or TOML and YAML that describe them."""

from __future__ import annotations

import difflib
import inspect
import re
import runpy
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import reverie
from reverie import extensions, rate_limiters, selectors

__all__ = ["load", "table_from"]

SELECTORS: dict[str, Callable[..., selectors.Selector]] = {
    re.sub("(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower(): kind for kind in selectors.SELECTORS
}
LIMITERS: dict[str, Callable[..., rate_limiters.RateLimiter]] = {
    "min_size": rate_limiters.MinSize,
    "sample_to_insert_ratio": rate_limiters.SampleToInsertRatio,
    "queue": rate_limiters.Queue,
    "stack": rate_limiters.Stack,
    "rationed": rate_limiters.Rationed,
    "rate_limiter": rate_limiters.RateLimiter,
}
EXTENSIONS: dict[str, Callable[..., Any]] = {"insert_on_sample": extensions.insert_on_sample}
PLAIN = ("name", "max_size", "max_times_sampled", "max_bytes", "compression")


def load(source: str) -> list[reverie.Table]:
    """The tables of a file: `tables.toml`, `tables.yaml`, or `setup.py[:NAME]` where NAME (by default `tables` or
    `make_tables`) is a list of tables or a function that returns one.

    Raises:
        ValueError: the file is invalid; the text has the place and the reason.
        OSError: the file cannot be read.
    """
    path, _, name = source.partition(":")
    suffix = Path(path).suffix.lower()
    if suffix == ".py":
        return _from_python(Path(path), name)
    if name:
        raise ValueError(f"{source!r}: only a Python file can have a name after a colon")
    described: Any
    if suffix == ".toml":
        try:
            described = tomllib.loads(Path(path).read_text())
        except ValueError as error:  # Invalid TOML or UTF-8.
            raise ValueError(f"{path}: {error}") from None
    elif suffix in (".yaml", ".yml"):
        described = _yaml(Path(path))
    else:
        raise ValueError(f"{source!r}: tables come from a .py, .toml, .yaml or .yml file")
    if not isinstance(described, Mapping):
        raise ValueError(f"{path}: must hold a list named 'tables', got {described!r}")
    _refuse_unknown(described, ["tables"], path)
    if not isinstance(described.get("tables"), list):
        raise ValueError(f"{path}: must hold a list named 'tables', and nothing else")
    return [table_from(table, f"{path}, table {index}") for index, table in enumerate(described["tables"])]


def _from_python(path: Path, name: str) -> list[reverie.Table]:
    path.stat()
    wanted = [name] if name else ["tables", "make_tables"]
    # Modules next to the file can be imported, as with `python FILE`.
    sys.path.insert(0, str(path.resolve().parent))
    try:
        names = runpy.run_path(str(path), run_name="__reverie_tables__")
        found = next((names[name] for name in wanted if name in names), None)
        tables = found() if callable(found) else found
    except Exception as error:
        what = error.msg if isinstance(error, SyntaxError) else error
        raise ValueError(f"{_place(error, path)}: {type(error).__name__}: {what}") from None
    if found is None:
        raise ValueError(f"{path} defines no {' and no '.join(map(repr, wanted))}")
    if not isinstance(tables, Sequence) or not all(isinstance(table, reverie.Table) for table in tables):
        raise ValueError(f"{path}: {wanted[0]!r} must be a list of reverie.Table, or return one; got {tables!r}")
    return list(tables)


def _place(error: Exception, path: Path) -> str:
    """The file, and its last line in the error's traceback."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines.append(error.lineno)
    return f"{path}, line {lines[-1]}" if lines else str(path)


def _yaml(path: Path) -> Any:
    try:
        import yaml
    except ImportError:
        raise ValueError(
            'PyYAML is not installed: pip install "reverie[cli]", or describe the tables in TOML'
        ) from None
    try:
        return yaml.safe_load(path.read_text())
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        raise ValueError(f"{path}{line}: {error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError also for invalid UTF-8.
        raise ValueError(f"{path}: {error}") from None


def table_from(described: Any, where: str) -> reverie.Table:
    """A table from a mapping; `where` leads every message."""
    if not isinstance(described, Mapping):
        raise ValueError(f"{where}: must be a mapping, got {described!r}")
    _refuse_unknown(described, [*PLAIN, "sampler", "remover", "rate_limiter", "signature", "extensions"], where)
    _refuse_missing(described, ["name", "max_size"], where)
    options = dict(described)
    arguments: dict[str, Any] = {key: options.pop(key) for key in PLAIN if key in options}
    for key, kinds, default in (
        ("sampler", SELECTORS, "uniform"),
        ("remover", SELECTORS, "fifo"),
        ("rate_limiter", LIMITERS, {"kind": "min_size", "min_size_to_sample": 1}),
    ):
        arguments[key] = _made(options.pop(key, default), kinds, f"{where}, {key}")
    if "signature" in options:
        arguments["signature"] = _signature(options.pop("signature"), f"{where}, signature")
    described = options.pop("extensions", [])
    if not isinstance(described, list):
        raise ValueError(f"{where}, extensions: must be a list, got {described!r}")
    arguments["extensions"] = [_made(each, EXTENSIONS, f"{where}, extensions") for each in described]
    try:
        return reverie.Table(**arguments)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None


def _made(described: Any, kinds: Mapping[str, Callable[..., Any]], where: str) -> Any:
    """`"kind"`, or a mapping of `kind` and its arguments."""
    if isinstance(described, str):
        described = {"kind": described}
    if not isinstance(described, Mapping) or "kind" not in described:
        raise ValueError(f"{where}: kind must be one of {', '.join(kinds)}, got {described!r}")
    kind, arguments = described["kind"], {key: value for key, value in described.items() if key != "kind"}
    if not isinstance(kind, str) or kind not in kinds:
        raise ValueError(f"{where}: unknown kind {kind!r}{_nearest(kind, kinds)}")
    takes = inspect.signature(kinds[kind]).parameters
    _refuse_unknown(arguments, takes, f"{where} {kind!r}")
    _refuse_missing(arguments, [name for name, one in takes.items() if one.default is one.empty], f"{where} {kind!r}")
    try:
        return kinds[kind](**arguments)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None


def _refuse_unknown(given: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    names = list(known)
    for name in given:
        if name not in names:
            raise ValueError(f"{where}: unknown {name!r}{_nearest(name, names)}")


def _refuse_missing(given: Mapping[str, Any], needed: Iterable[str], where: str) -> None:
    missing = [name for name in needed if name not in given]
    if missing:
        raise ValueError(f"{where}: missing {', '.join(missing)}")


def _nearest(name: Any, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(str(name), names, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(names) or 'none'}"


def _signature(described: Any, where: str) -> Any:
    """Mappings down to `{shape, dtype}`; -1 in a shape is any size."""
    if not isinstance(described, Mapping):
        raise ValueError(f"{where}: must be a mapping, got {described!r}")
    if set(described) == {"shape", "dtype"}:
        shape = described["shape"]
        if not isinstance(shape, list) or not all(isinstance(size, int) for size in shape):
            raise ValueError(f"{where}: shape must be a list of integers (-1 is any size), got {shape!r}")
        try:
            return reverie.TensorSpec([None if size == -1 else size for size in shape], described["dtype"])
        except (TypeError, ValueError) as error:
            raise ValueError(f"{where}: {error}") from None
    return {key: _signature(child, f"{where}/{key}") for key, child in described.items()}
