"""The machine's limits for the same bytes: a gather within memory, a bare TCP or Unix socket."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from . import wire_payload as wire
from .serve import Loop, serve

ROOT = Path(__file__).resolve().parents[2]
GATHER_BYTES = 512 << 20


def gather(row: dict[str, Any]) -> Loop:
    """Random rows of 512 MB, copied one behind another into one warm array; the indices drawn beforehand."""
    width = row["payload"] // 4
    count = GATHER_BYTES // row["payload"]
    rows = np.random.default_rng(1).standard_normal((min(count, 4096), width), dtype=np.float32)
    rows = np.concatenate([rows] * -(-count // len(rows)))[:count]
    draws = np.random.default_rng(2).integers(0, count, (4_096, wire.BATCH))
    target = np.empty((wire.BATCH, width), dtype=np.float32)
    at = 0

    def loop(n: int) -> None:
        nonlocal at
        for _ in range(n):
            rows.take(draws[at], axis=0, out=target, mode="clip")
            at = (at + 1) & 4_095

    return loop


def memcpy(row: dict[str, Any]) -> Loop:
    """One copy of a batch's bytes, warm source to warm target."""
    source = np.random.default_rng(1).standard_normal(wire.BATCH * row["payload"] // 4, dtype=np.float32)
    target = np.zeros_like(source)

    def loop(n: int) -> None:
        for _ in range(n):
            np.copyto(target, source)

    return loop


def socket(kind: str) -> Any:
    """Batches of as many bytes over a bare socket between two processes, four asked for ahead."""

    def prepare(row: dict[str, Any]) -> Loop:
        process = subprocess.Popen(
            [socket_program(), kind, str(wire.BATCH * row["payload"]), str(wire.in_flight(row["payload"]))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def loop(n: int) -> None:
            asked.write(f"{n}\n")
            asked.flush()
            if not answers.readline():
                raise RuntimeError("the socket program ended")

        return loop

    return prepare


def socket_program() -> Path:
    """`benchmarks/bare_sockets`, built when first needed."""
    subprocess.run(
        ["cargo", "build", "--quiet", "--release", "--locked", "--package", "bare-sockets"], cwd=ROOT, check=True
    )
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "release" / "bare-sockets"


serve(["numpy"], {"gather": gather, "memcpy": memcpy, "tcp": socket("tcp"), "unix": socket("unix")})
