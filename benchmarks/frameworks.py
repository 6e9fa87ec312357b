"""The buffers for RLlib and tianshou next to these libraries' own: adds, draws, priorities, n steps, and memory.

`python -m benchmarks.frameworks rllib` (or `tianshou`) prints a row for each and writes JSON; `--rows add` chooses, and
`--smoke` is small and short and writes nothing. Both libraries pin what this project does not, so each has an
environment of its own, made by the first run (`peers.py`), in which this checkout's package is imported from its
folder. The rows are in `workers/rllib_buffers.py` and `workers/tianshou_buffers.py`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from .peers import ROOT, Peer, python_of

PEERS = {
    "rllib": Peer("rllib-buffers", "rllib_buffers", ("ray[rllib]==2.60.0",)),
    "tianshou": Peer("tianshou", "tianshou_buffers", ("tianshou==2.0.1", "torch==2.15.0")),
}


def main() -> int:
    """Returns the exit code of the run in the library's environment."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frameworks", description=__doc__)
    parser.add_argument("framework", choices=PEERS)
    given, rest = parser.parse_known_args()
    peer = PEERS[given.framework]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("VIRTUAL_ENV", "PYTHON"))}
    environment["PYTHONPATH"] = str(ROOT / "python")
    command = [python_of(peer), "-W", "ignore", "-m", f"benchmarks.workers.{peer.worker}", *rest]
    return subprocess.run(command, cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
