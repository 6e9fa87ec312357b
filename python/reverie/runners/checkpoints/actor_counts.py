"""The states of a run's actors, written about once a second next to the run's journal.

A run that was killed continues with the steps that are in its journal, which are more than those of its newest
checkpoint. Its actors continue with the counts of this file, so that these steps count for `max_env_steps` and for
exploration.
"""

from __future__ import annotations

import io
import json
import logging
import time
import zipfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from reverie.runners.checkpoints.checkpoint_files import Arrays, decode, encode

SECONDS = 1.0
FILE = "actors.npz"
_LOG = logging.getLogger("reverie")


class ActorCounts:
    """Writes the states of a run's actors into a folder, at most every `SECONDS`."""

    def __init__(self, folder: Path | None) -> None:
        """If `folder` is None, nothing is written."""
        self._folder, self._next = folder, 0.0

    def write_if_due(self, states: Callable[[], Sequence[dict[str, Any]]]) -> None:
        """Write the states if it is time. A file that cannot be written is left out: the next one may be."""
        if self._folder is not None and time.monotonic() >= self._next:
            self._next = time.monotonic() + SECONDS
            with suppress(OSError):
                save(self._folder, states())


def save(folder: Path, states: Sequence[dict[str, Any]]) -> None:
    """Replace the file by these states. It survives the end of this process, and is not waited for on the disk."""
    arrays: Arrays = {}
    text = json.dumps(encode(list(states), arrays, "actors")).encode()
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, text=np.frombuffer(text, np.uint8), **arrays)
    draft = folder / f".{FILE}"
    draft.write_bytes(packed.getvalue())
    draft.rename(folder / FILE)


def load(folder: Path) -> list[dict[str, Any]] | None:
    """The states in the file; None without one, and, with a warning, if a loss of power left only a part of it."""
    try:
        with np.load(io.BytesIO((folder / FILE).read_bytes()), allow_pickle=False) as packed:
            arrays = {name: packed[name] for name in packed.files}
        states: list[dict[str, Any]] = decode(json.loads(arrays.pop("text").tobytes()), arrays)
    except FileNotFoundError:
        return None
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        _LOG.warning("%s: %s; actors continue with the counts of the checkpoint", folder / FILE, error)
        return None
    return states


def with_newer_counts(state: dict[str, Any], folder: Path, max_env_steps: int) -> dict[str, Any]:
    """The state of a run whose journal is in `folder`, with the newer counts of its actors, if there are any.

    It has at least one step left: the learner that was killed may have made updates that its replacement makes again.
    """
    states = load(folder)
    if states is None or len(states) != len(state["actors"]):
        return state
    steps = sum(one["env_steps"] for one in states)
    if steps <= state["env_steps"]:
        return state
    for one in states:
        taken_back = min(one["env_steps"], max(0, steps - (max_env_steps - 1)))
        one["env_steps"] -= taken_back
        steps -= taken_back
    return {**state, "actors": states, "env_steps": steps}
