"""Both packages as worker processes, and what differs between them on one program."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

#: Seconds that one operation, or the start of a worker, may take. Operations that would wait for a limiter are skipped.
PATIENCE = 120.0

Outcome = dict[str, Any]


class Worker:
    """One package in a process of its own."""

    def __init__(self, which: str, python: str | Path = sys.executable, transport: str | None = None) -> None:
        self.which, self._python, self._transport = which, str(python), transport
        self._start()

    def _start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), str(HERE)])}
        command = [self._python, "-W", "ignore", str(HERE / "worker.py"), self.which]
        self._process = subprocess.Popen(
            [*command, self._transport] if self._transport else command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._ready = selectors.DefaultSelector()
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._ready.register(self._process.stdout, selectors.EVENT_READ)
        self._pending = b""

    def run(self, program: dict[str, Any]) -> list[Outcome]:
        """The outcomes of the program, its start first. One that hangs is the last, and the process is restarted."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(program).encode() + b"\n")
        self._process.stdin.flush()
        outcomes: list[Outcome] = []
        while len(outcomes) <= len(program["operations"]):
            line = self._line()
            if line is None:
                outcomes.append({"error": "hangs" if self._process.poll() is None else "died"})
                self._process.kill()
                self._process.wait()
                self._start()
                return outcomes
            outcomes.append(json.loads(line))
            if len(outcomes) == 1 and "error" in outcomes[0]:
                return outcomes
        return outcomes

    def _line(self) -> bytes | None:
        assert self._process.stdout is not None
        while b"\n" not in self._pending:
            if not self._ready.select(PATIENCE):
                return None
            read = self._process.stdout.read()
            if not read:
                self._process.wait()
                return None
            self._pending += read
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()


#: Errors of another kind on purpose: ours, theirs, a part of their text, and why.
ACCEPTED = [
    ("ValueError", "TypeError", "'NoneType' object is not iterable", "their slice of expired cells fails by accident"),
    ("ValueError", "TypeError", "len() of unsized object", "their split of a column without a time axis"),
    ("ValueError", "RuntimeError", "expired WeakCellRef", "a cell has expired for both, only its column keeps fewer"),
    ("IndexError", "ValueError", "cannot contain any None data references", "a step that never was is no expired one"),
]


def alike(mine: Outcome, other: Outcome) -> bool:
    """Whether two outcomes are the same, or differ on purpose."""
    if bare(mine) == bare(other):
        # If both hang, the request is impossible and shows nothing.
        return mine.get("error") not in ("hangs", "died")
    kinds, text = (mine.get("error"), other.get("error")), other.get("text", "")
    return any(kinds == (ours, theirs) and part in text for ours, theirs, part, _ in ACCEPTED)


def bare(outcome: Outcome) -> Outcome:
    """An outcome without the text of its error, which is each package's own."""
    return {key: value for key, value in outcome.items() if key != "text"}


def differences(program: dict[str, Any], ours: list[Outcome], theirs: list[Outcome]) -> list[str]:
    """The operations whose outcomes differ; later differences are mostly effects of the first."""
    operations = ["(start)", *program["operations"]]
    return [
        f"operation {at}, {json.dumps(operations[at])}:\n    ours   {json.dumps(mine)}\n    theirs {json.dumps(other)}"
        for at, (mine, other) in enumerate(zip(ours, theirs, strict=False))
        if not alike(mine, other)
    ]
