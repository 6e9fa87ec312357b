"""Bytes sent and stored for overlapping sequences, against dm-reverb: `python -m benchmarks.overlap`."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from benchmarks.peers import NETWORK_PEERS, ROOT, python_of


def measured(which: str) -> dict[str, dict[str, Any]]:
    """The cases of one package, by name."""
    script = ROOT / "benchmarks" / "workers" / "overlap.py"
    peer = NETWORK_PEERS["reverie" if which == "ours" else "dm-reverb"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run(
        [python_of(peer), "-W", "ignore", script, which],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment, timeout=600,
    )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["case"]: line for line in lines}


def main() -> None:
    ours, theirs = measured("ours"), measured("theirs")
    print("| bytes, of every step's own | dm-reverb sent | ours sent | dm-reverb stored | ours stored |")
    print("|---|---:|---:|---:|---:|")
    for case, mine in ours.items():
        other = theirs[case]
        assert (mine["raw"], mine["items"]) == (other["raw"], other["items"])
        shares = (100 * side[what] / mine["raw"] for what in ("sent", "stored") for side in (other, mine))
        print(f"| {case} | " + " | ".join(f"{share:.1f} %" for share in shares) + " |")


if __name__ == "__main__":
    main()
