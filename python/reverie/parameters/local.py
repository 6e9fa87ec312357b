"""Parameters between threads of one process."""

from __future__ import annotations

import os
import threading
from typing import Any, final

import numpy as np

from reverie.errors import ForkedError
from reverie.parameters.ends import Channel, ParameterCarrier
from reverie.parameters.record import Arrays, Parameters, Version, require_newer


@final
class LocalChannel(Channel):
    """Parameters between threads of this process. The ends are made in it; no call blocks but `get`."""

    def __init__(self) -> None:
        self._carrier = _LocalCarrier()

    def carrier(self) -> _LocalCarrier:
        """The one carrier of all ends."""
        return self._carrier

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a LocalChannel is for the threads of one process and cannot be pickled; "
            "between processes use a FileChannel, a TableChannel or a RayChannel"
        )


class _LocalCarrier(ParameterCarrier):
    where = "this channel"

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._newest: Parameters | None = None
        self._pid = os.getpid()

    def put(self, version: Version, arrays: Arrays, timeout: float | None) -> None:
        copied = _copied(arrays)
        with self._here():
            require_newer(version, None if self._newest is None else self._newest.version, self.where)
            self._newest = Parameters(version, copied)
            self._changed.notify_all()

    def fetch(self, above: Version | None, timeout: float | None) -> Parameters | Version | None:
        with self._here():
            newest = self._newest
        if newest is None or (above is not None and newest.version <= above):
            return None if newest is None else newest.version
        return Parameters(newest.version, _copied(newest.arrays))

    def wait(self, above: Version | None, seconds: float) -> None:
        with self._here():
            self._changed.wait_for(
                lambda: self._newest is not None and (above or (-1, 0)) < self._newest.version, seconds
            )

    def _here(self) -> threading.Condition:
        if os.getpid() != self._pid:
            raise ForkedError(
                "a LocalChannel does not reach a forked child process; use a FileChannel, or a TableChannel of a server"
            )
        return self._changed


def _copied(arrays: Arrays) -> Arrays:
    return {name: np.array(array, order="C") for name, array in arrays.items()}
