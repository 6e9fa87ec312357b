"""Checkpoints of a run: learner, counters, curve, random states and tables, written atomically.

A checkpoint is a folder, named by the environment steps, with three files: `preset.toml` (the settings, in the form of
a preset), `arrays.npz` (every array and tensor, named by its place in the state, such as
`weights/parameters/0.layers.0.weight`) and `state.json` (two lines: checksums of everything else, and the state, in
which arrays are referred to by these names). Nothing is pickled. The folder is written under another name, flushed to
the disk, and renamed last. One that it replaces is renamed before, and is found under that name until then.

The tables are next to it in `replay-N/` (with one folder per shard if there are several), written by the replay's own
checkpointer: chunks that several checkpoints share are stored once. N counts the times that the run was started or
resumed. A checkpoint names the tables that belong to it.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reverie import _native
from reverie._picklable import Picklable
from reverie.errors import ReplayError
from reverie.runners.reports.logs import LOG

Arrays = dict[str, np.ndarray[Any, Any]]

FORMAT = 4
KEPT = 2
"""Checkpoints of a run that are kept; older ones are removed once a newer one is complete."""

DIGITS = 12
"""A checkpoint's folder is named by its environment steps, with at least this many digits."""
DRAFT, ASIDE, REMOVED = ".draft-", ".aside-", ".removed-"
"""The beginnings of the names of other folders: a checkpoint that is being written, one that is being replaced by
another one of the same step, and one that is being removed. One set aside counts as long as there is no other of its
step."""
CHECKPOINTS = "checkpoints"
"""The folder of the checkpoints in the folder of a run."""
BEST = "best.safetensors"
"""The policy of the best evaluation, in the folder of a run."""
STATE, ARRAYS, PRESET = "state.json", "arrays.npz", "preset.toml"
RESERVED = ("", "file", "allow_pickle")
"""Names that `np.savez` takes for its own arguments."""
REPLAY = "replay"
"""The key of a state for the paths of its tables, one per shard, relative to the folder of the checkpoints."""


class CheckpointError(Picklable, ValueError):
    """The checkpoint is missing, damaged, or of another run. `.path` (the file or folder), `.reason`"""

    def __init__(self, path: Path, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"checkpoint {path} {reason}")


def save(folder: Path, env_steps: int, state: dict[str, Any], preset: str) -> Path:
    """Write a checkpoint into `folder`. On an OSError those that it had are unchanged."""
    final = folder / f"{env_steps:0{DIGITS}d}"
    draft, aside = folder / f"{DRAFT}{final.name}", folder / f"{ASIDE}{final.name}"
    arrays: Arrays = {}
    text = json.dumps(encode(state, arrays)).encode()
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **arrays)
    files = {ARRAYS: packed.getvalue(), PRESET: preset.encode()}
    header = {"format": FORMAT, STATE: _sum(text), **{name: _sum(data) for name, data in files.items()}}
    files[STATE] = json.dumps(header).encode() + b"\n" + text + b"\n"
    try:
        missing = [one for one in (folder, *folder.parents) if not one.exists()]
        draft.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            _write(draft / name, data)
        for one in (draft, *(made.parent for made in missing)):  # a folder on the disk may lack names of its own
            _flush_folder(one)
        _restore(folder)
        if final.exists():  # the same step of the same run, from before a resume
            shutil.rmtree(aside, ignore_errors=True)
            final.rename(aside)
        draft.rename(final)
        try:
            _flush_folder(folder)
        except OSError:
            final.rename(draft)
            raise
    except OSError:
        with suppress(OSError):  # else it is found under its other name
            _restore(folder)
        raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return final


def _restore(folder: Path) -> None:
    """Give a checkpoint its name again that was set aside for another one, which was not written."""
    for aside in _set_aside(folder):
        aside.rename(folder / name_of(aside))


def remove_outdated(folder: Path, abandoned: Sequence[Path] = ()) -> None:
    """Remove all checkpoints but the newest `KEPT`, the `abandoned` ones, and what crashes left. Raises OSError."""
    found = all_in(folder)
    left_by_crashes = [one for word in (DRAFT, ASIDE, REMOVED) for one in folder.glob(f"{word}*") if one not in found]
    current = [one for one in found if one not in abandoned]
    remove([*left_by_crashes, *abandoned, *current[:-KEPT]])


def remove(folders: Sequence[Path]) -> None:
    """Remove folders. All are renamed first, on the disk, too: no run continues one that a crash or a loss of power has
    left, and none is half removed.

    Raises the first OSError, after all have been tried; `remove_outdated` tries again.
    """
    renamed: dict[Path, None] = {}
    errors = []
    for one in folders:
        removed = one.with_name(f"{REMOVED}{name_of(one)}")
        try:
            if one != removed:
                _delete(removed)
                one.rename(removed)
            renamed[removed] = None
        except OSError as error:
            errors.append(error)
    for folder in dict.fromkeys(one.parent for one in renamed):
        try:
            _flush_folder(folder)
        except OSError as error:
            errors.append(error)
    for one in renamed:
        try:
            _delete(one)
        except OSError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _delete(folder: Path) -> None:
    """Delete a folder, if there is one. If it is a link to a folder elsewhere, only the link is deleted."""
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)


def load(path: Path) -> dict[str, Any]:
    """The state of a checkpoint. Raises `CheckpointError`, which names the file and an older checkpoint to use."""
    text = check(path)
    with np.load(io.BytesIO(_read(path / ARRAYS)), allow_pickle=False) as packed:
        arrays = {name: packed[name] for name in packed.files}
    state: dict[str, Any] = decode(json.loads(text), arrays)
    return state


def check(path: Path) -> bytes:
    """Verify the checksums of a checkpoint's files, except its tables; returns the text of its state.

    Raises as `load` does.
    """
    try:
        return _checked(path)
    except CheckpointError as error:
        raise CheckpointError(error.path, f"{error.reason}; {fallback_hint(path)}") from error


def _checked(path: Path) -> bytes:
    header, text = _state_file(path / STATE)
    for name in (ARRAYS, PRESET):
        if _sum(_read(path / name)) != header.get(name):
            raise CheckpointError(path / name, "is damaged: its checksum does not match")
    return text


def fallback_hint(path: Path) -> str:
    """A hint for the user on how to continue when the checkpoint at `path`, or its tables, are damaged.

    Reads the older checkpoints with all their tables, newest first, until one is complete.
    """
    for older in reversed([one for one in all_in(path.parent) if name_of(one) < name_of(path)]):
        if _is_intact(older):
            return f"the earlier checkpoint {older.name} is intact: remove {path} to continue from it"
    return "no earlier checkpoint is intact: start again in another folder"


def _is_intact(path: Path) -> bool:
    try:
        for tables in _tables_in(_checked(path)):
            _native.verify_checkpoint(str(path.parent / tables))
    except (CheckpointError, ReplayError):
        return False
    return True


def tables_of(path: Path) -> list[str]:
    """The paths of the tables of the checkpoint at `path`. Raises `CheckpointError`."""
    return _tables_in(_state_file(path / STATE)[1])


def _tables_in(text: bytes) -> list[str]:
    paths: list[str] = _entry(text, REPLAY)
    return paths


def agent_of(path: Path) -> str:
    """The name of the agent of the checkpoint at `path`. Raises `CheckpointError`."""
    name: str = _entry(_state_file(path / STATE)[1], "identity")["agent"]
    return name


def _entry(text: bytes, name: str) -> Any:
    """One entry of a state, which has no arrays."""
    return next(decode(value, {}) for key, value in json.loads(text)["dict"] if key == name)


def find(path: Path, *, for_policy: bool = False) -> Path:
    """The checkpoint at `path`, or the newest one if `path` is a run's folder.

    Raises `CheckpointError`. With `for_policy` its text names the policy's file in the folder of a run without a
    checkpoint.
    """
    if (path / STATE).is_file() or (_is_name(path.name) and path.is_dir()):
        return path
    found = all_in(path / CHECKPOINTS)
    if found:
        return found[-1]
    hint = "name a run's folder, or one of the folders in its checkpoints/"
    if for_policy and (path / BEST).is_file():
        hint = f"the policy of its best evaluation is {path / BEST}: name that file"
    raise CheckpointError(path, f"is missing: {_why_none(path)}{hint}")


def _why_none(path: Path) -> str:
    """Why there is no checkpoint at a path, up to the next half of the sentence."""
    if not path.exists():
        return "there is no such folder; "
    if all_in(path):
        return f"this folder has checkpoints, and is in that of their run, {path.parent}; "
    if (path / LOG).is_file() or (path / CHECKPOINTS).is_dir():
        return "the run in this folder has not written one yet; "
    runs = sorted(one.name for one in path.iterdir() if any_in(one)) if path.is_dir() else []
    if runs:
        return f"this folder is not a run, and has those of {', '.join(runs[:3])}{' ...' if len(runs) > 3 else ''}; "
    return "this folder is not a run: it has neither log.jsonl nor checkpoints/; "


def any_in(folder: Path) -> bool:
    """Whether the run in this folder has a checkpoint."""
    return bool(all_in(folder / CHECKPOINTS))


def all_in(folder: Path) -> list[Path]:
    """All checkpoints, oldest first. One that lacks a file is included: it was complete when it was named."""
    named = [one for one in folder.glob("[0-9]*") if _is_name(one.name) and one.is_dir()]
    return sorted([*named, *_set_aside(folder)], key=env_steps_of)


def _set_aside(folder: Path) -> list[Path]:
    """The checkpoints that were set aside for others of the same step, which were not written."""
    aside = [one for one in folder.glob(f"{ASIDE}[0-9]*") if _is_name(name_of(one))]
    return [one for one in aside if not (folder / name_of(one)).exists() and one.is_dir()]


def later_than(path: Path, folder: Path) -> list[Path]:
    """The checkpoints in `folder` with more steps than the one at `path`; none if that one is not in this folder."""
    if path.resolve().parent != folder.resolve():
        return []
    return [one for one in all_in(folder) if env_steps_of(one) > env_steps_of(path)]


def env_steps_of(path: Path) -> int:
    """The environment steps by which a checkpoint is named."""
    return int(name_of(path))


def name_of(path: Path) -> str:
    """The name that a checkpoint has, or had before it was renamed."""
    return path.name.removeprefix(DRAFT).removeprefix(ASIDE).removeprefix(REMOVED)


def replays_in(folder: Path) -> list[Path]:
    """The folders of tables next to the checkpoints in `folder`."""
    return [one for one in folder.glob("replay-*") if one.name.removeprefix("replay-").isdigit()]


def _is_name(name: str) -> bool:
    return len(name) >= DIGITS and name.isdecimal()


def _state_file(path: Path) -> tuple[dict[str, Any], bytes]:
    first, _, rest = _read(path).partition(b"\n")
    try:
        header = json.loads(first)
    except ValueError:
        header = None
    if not isinstance(header, dict):
        raise CheckpointError(path, "is damaged: its first line is not a JSON object")
    if header.get("format") != FORMAT:
        raise CheckpointError(
            path,
            f"has format {header.get('format')!r}, and this version of Reverie reads {FORMAT}: use the version that"
            " wrote it",
        )
    text = rest.removesuffix(b"\n")
    if _sum(text) != header.get(STATE):
        raise CheckpointError(path, "is damaged: its checksum does not match")
    return header, text


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(path, f"cannot be read: {error.strerror}") from error


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    """Sync the names in a folder. File systems that sync no folder, such as some over a network, refuse the call."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def encode(value: Any, arrays: Arrays, *place: object) -> Any:
    """The value as JSON; its arrays are added to `arrays` under their place, the keys and indices that lead there."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case np.generic():
            return value.item()
        case np.ndarray() | torch.Tensor():
            name = "/".join(map(str, place))
            while name in arrays or name in RESERVED:
                name += "_"
            arrays[name] = value if isinstance(value, np.ndarray) else value.detach().cpu().numpy()
            return {"array" if isinstance(value, np.ndarray) else "tensor": name}
        case list() | tuple():
            kind = "list" if isinstance(value, list) else "tuple"
            return {kind: [encode(one, arrays, *place, i) for i, one in enumerate(value)]}
        case dict():
            return {"dict": [[encode(key, arrays), encode(one, arrays, *place, key)] for key, one in value.items()]}
    raise TypeError(f"a checkpoint cannot hold a {type(value).__name__}")


def decode(value: Any, arrays: Arrays) -> Any:
    """The value that `encode` made JSON of."""
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    builders: dict[str, Callable[[], Any]] = {
        "array": lambda: arrays[inner],
        "tensor": lambda: torch.from_numpy(arrays[inner].copy()),
        "list": lambda: [decode(one, arrays) for one in inner],
        "tuple": lambda: tuple(decode(one, arrays) for one in inner),
        "dict": lambda: {decode(key, arrays): decode(one, arrays) for key, one in inner},
    }
    return builders[kind]()
