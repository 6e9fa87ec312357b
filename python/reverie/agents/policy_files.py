"""A trained policy as one `.safetensors` file: named weights, and a JSON text that describes everything else.

The text is the file's metadata `reverie.policy`, an object of these fields: `format` (a number), `agent` (its name),
`reference` (how it is found), `settings` (the agent's), `environment` (an `EnvSpec`), `run` (a `TrainingRun`). Nothing
is pickled, and a file imports no module that its reader does not name.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np
import safetensors
import torch
from safetensors.numpy import save

from reverie import agents
from reverie.agents import named_parameters, presets
from reverie.agents.agent import Agent
from reverie.agents.environments import EnvSpec
from reverie.agents.observations import row_form
from reverie.agents.policy_records import PolicyError, PolicyRecord, TrainingRun
from reverie.agents.settings import converted, words_of

SUFFIX = ".safetensors"
FORMAT = 2
KEY = "reverie.policy"
FIELDS = ("format", "agent", "reference", "settings", "environment", "run")

Data = TypeVar("Data")


def write(
    record: PolicyRecord, module: torch.nn.Module, path: Path, metadata: Mapping[str, str] = MappingProxyType({})
) -> Path:
    """Write the file of a policy and its network, with further metadata. See `TrainedPolicy.save`.

    Raises `PolicyError` for a path without the suffix of such files.
    """
    if path.suffix != SUFFIX:
        raise PolicyError(path, f"cannot be written: its name must end in {SUFFIX}")
    with replacing(path) as draft:
        # Copies: parameters share one vector, and some are not in row-major order.
        draft.write_bytes(save(named_parameters.copied(module), {**metadata, KEY: describe(record)}))
    return path


def metadata(path: Path) -> dict[str, str]:
    """The metadata of a file. Raises `PolicyError` for one that is damaged or no policy's."""
    with _opened(path) as file:
        return _metadata(path, file)


def agent_of(path: Path) -> str:
    """The name of the agent in a policy's file. Raises `PolicyError` as `read` does."""
    return str(_fields(path, metadata(path)[KEY])["agent"])


def read(path: Path, agent: Agent | str | None) -> tuple[PolicyRecord, dict[str, np.ndarray[Any, Any]]]:
    """The record of a file's policy, and its weights by name. `agent` is by default the one that the file names.

    Raises `PolicyError`, which names the field, the setting or the weight that is missing or wrong.
    """
    text, tensors = _contents(path)
    fields = _fields(path, text)
    found, reference = _agent(path, fields, agent)
    # Files of earlier versions have no dtype of actions: those that agents compute.
    environment = {"action_dtype": "", "note": "", **_object(path, "environment", fields["environment"])}
    spec = _record(path, "environment", EnvSpec, environment)
    run = _record(path, "run", TrainingRun, fields["run"])
    _check_spec(path, spec)
    module = spec.settings.network.partition(":")[0]
    if module and module not in sys.modules:
        raise PolicyError(
            path, f"has layers made by {spec.settings.network}, and a file imports no module by itself: import {module}"
        )
    try:
        config = presets.build(path, "settings", found.config, _object(path, "settings", fields["settings"]))
        found.check(spec)
    except presets.PresetError as error:
        raise PolicyError(path, error.reason) from error
    except ValueError as error:
        raise PolicyError(path, f"does not fit its agent: {error}") from error
    return PolicyRecord(found, reference, spec, config, run), tensors


def describe(record: PolicyRecord) -> str:
    """The JSON text of a policy: all but its weights."""
    settings = {name: value for name, value in vars(record.config).items() if value is not None}
    fields = {
        "format": FORMAT,
        "agent": record.agent.name,
        "reference": record.reference,
        "settings": settings,
        "environment": {name: value for name, value in dataclasses.asdict(record.spec).items() if name != "note"},
        "run": vars(record.run),
    }
    return json.dumps(fields)


def load_named(
    path: Path, module: torch.nn.Module, tensors: Mapping[str, np.ndarray[Any, Any]], whose: str = "its architecture"
) -> None:
    """Copy weights into a policy's network by name. Raises `PolicyError` for a name, shape or dtype that differs."""
    try:
        named_parameters.load(module, tensors, whose)
    except named_parameters.ParameterError as error:
        raise PolicyError(path, str(error)) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields the path of a draft, which replaces `path` if the block ends without an error, else is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".draft-{os.getpid()}-{path.name}")
    try:
        yield draft
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()


def _contents(path: Path) -> tuple[str, dict[str, np.ndarray[Any, Any]]]:
    with _opened(path) as file:
        return _metadata(path, file)[KEY], {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            yield file
    except OSError as error:
        raise PolicyError(path, f"cannot be read: {error.strerror or error}") from error
    except (safetensors.SafetensorError, TypeError) as error:  # a TypeError for a dtype that NumPy has not
        raise PolicyError(path, f"is damaged, or is not a safetensors file: {error}") from error


def _metadata(path: Path, file: Any) -> dict[str, str]:
    found: dict[str, str] = file.metadata() or {}
    if KEY not in found:
        raise PolicyError(path, f"is a safetensors file without the metadata {KEY}, and so no policy of Reverie")
    return found


def _fields(path: Path, text: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise PolicyError(path, f"has metadata {KEY} that are not JSON: {error}") from error
    found = _object(path, KEY, fields)
    if found.get("format") != FORMAT or isinstance(found["format"], bool):
        raise PolicyError(path, f"has format {found.get('format')!r}, and this version reads {FORMAT}")
    _check_names(path, KEY, found, FIELDS)
    return found


def _agent(path: Path, fields: dict[str, Any], given: Agent | str | None) -> tuple[Agent, str]:
    """The agent, and its reference. A file's `module:agent` is imported only if the caller names it."""
    name, reference = fields["agent"], fields["reference"]
    for field, value in (("agent", name), ("reference", reference)):
        if not isinstance(value, str):
            raise _wrong(path, KEY, field, value, "a text")
    if given is None and ":" in reference:
        raise PolicyError(
            path, f"is of the agent {reference}, and a file imports no module by itself: {how_to_name(reference)}"
        )
    try:
        found, how = find_agent(reference if given is None else given)
    except agents.UnknownAgentError as error:
        if given is not None:
            raise
        raise PolicyError(path, f"has the agent {reference!r}: {error}") from error
    if found.name != name:
        raise PolicyError(path, f"is of the agent {name}, and {found.name} was named: name the agent of the policy")
    return found, how


def how_to_name(reference: str = "module:agent") -> str:
    """The advice to the reader of a policy of another package's agent."""
    return f"name it, as agent={reference!r} or --agent {reference}"


def find_agent(agent: Agent | str) -> tuple[Agent, str]:
    """The agent and its reference, from either. Raises what `reverie.agents.find` raises, and TypeError."""
    if isinstance(agent, Agent):
        return agent, agent.name
    if not isinstance(agent, str):
        raise TypeError(f"agent must be an agent or its name, got {agent!r}")
    return agents.find(agent), agent


def _record(path: Path, section: str, record: type[Data], values: Any) -> Data:
    """A dataclass from a JSON object with exactly its fields, each of the field's type."""
    found, hints = _object(path, section, values), get_type_hints(record)
    _check_names(path, section, found, hints)
    values = {name: _value(path, section, name, hint, found[name]) for name, hint in hints.items()}
    try:
        return record(**values)
    except (ValueError, TypeError) as error:
        raise PolicyError(path, f"has an invalid {section}: {error}") from error


def _value(path: Path, section: str, name: str, hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        return _record(path, f"{section}.{name}", hint, value)  # type: ignore[arg-type]
    (items, *_), is_list = get_args(hint) or (None,), isinstance(value, list)
    if dataclasses.is_dataclass(items) and is_list:
        return tuple(_record(path, f"{section}.{name}", items, one) for one in value)  # type: ignore[arg-type]
    try:
        return converted(name, hint, value)
    except TypeError as error:
        raise _wrong(path, section, name, value, words_of(hint)) from error


def _check_spec(path: Path, spec: EnvSpec) -> None:
    """Raise `PolicyError` for values of the right type with which no environment can be described."""
    dtypes = [np.dtype(kind).name for kind in (*np.typecodes["AllInteger"], *np.typecodes["Float"], "?")]
    wanted = {
        "leaves": (not spec.leaves or _row(spec) == (spec.obs_shape, spec.obs_dtype), "those of obs_shape"),
        "action_sizes": (
            not spec.action_sizes or (min(spec.action_sizes) > 0 and math.prod(spec.action_sizes) == spec.num_actions),
            "sizes whose product is num_actions",
        ),
        "obs_shape": (bool(spec.obs_shape) and min(spec.obs_shape) > 0, "one or more sizes above 0"),
        "obs_dtype": (spec.obs_dtype in dtypes, "a dtype of numbers"),
        "action_dtype": (spec.action_dtype in ("", *dtypes), "a dtype of numbers, or empty"),
        "num_actions": (spec.num_actions is None or spec.num_actions > 0, "above 0, or null"),
        "action_low": (all(map(math.isfinite, spec.action_low)), "finite"),
        "action_high": (
            len(spec.action_low) == len(spec.action_high)
            and all(a <= b < math.inf for a, b in zip(spec.action_low, spec.action_high, strict=True)),
            "finite, and not below action_low",
        ),
        "frame_stack": (spec.frame_stack is None or spec.frame_stack == spec.obs_shape[0], "the first of obs_shape"),
    }
    for name, (fits, what) in wanted.items():
        if not fits:
            raise _wrong(path, "environment", name, getattr(spec, name), what)


def _row(spec: EnvSpec) -> tuple[tuple[int, ...], str]:
    shape, dtype = row_form(spec.leaves)
    return shape if spec.frame_stack is None else (spec.frame_stack, *shape), dtype


def _object(path: Path, section: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise PolicyError(path, f"has {section} that is no JSON object")
    return value


def _check_names(path: Path, section: str, found: Mapping[str, Any], names: Any) -> None:
    missing, unknown = [name for name in names if name not in found], [name for name in found if name not in names]
    if missing:
        raise PolicyError(path, f"lacks the field {missing[0]} of {section}")
    if unknown:
        raise PolicyError(path, f"has an unknown field {unknown[0]} of {section}")


def _wrong(path: Path, section: str, name: str, value: Any, wanted: Any) -> PolicyError:
    return PolicyError(path, f"has the field {name} of {section} as {value!r}, and it must be {wanted}")
