"""Each peer in a virtual environment of its own, made when first needed, and a worker process inside it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
VENVS = ROOT / ".venvs"
#: The peer that is another version of this project.
BEFORE = "before"


class WorkerError(RuntimeError):
    """A worker ended before it answered; its own traceback is on stderr."""


@dataclass(frozen=True)
class Peer:
    """Somebody's replay: the module under `workers/` that drives it and what its environment needs."""

    name: str
    worker: str
    requirements: tuple[str, ...] = ()  # none: runs in this project's own environment
    python: str = f"{sys.version_info.major}.{sys.version_info.minor}"
    root: Path = ROOT  # the project's folder that the worker belongs to

    def earlier(self, root: Path) -> Peer:
        """The same work by another version of this project; its extension is built in `root`."""
        return replace(self, name=BEFORE, root=root.resolve())


PEERS = {
    peer.name: peer
    for peer in (
        Peer("reverie", "ours"),
        Peer("numpy", "plain_numpy"),
        Peer("limits", "limits"),
        Peer("cpprb", "cpprb", ("cpprb==11.0.0",)),
        Peer("sb3", "sb3", ("stable-baselines3==2.9.2",)),
        Peer("torchrl", "torchrl", ("torchrl==0.14.1", "torch==2.15.0")),
    )
}
NETWORK_PEERS = {
    peer.name: peer
    for peer in (
        Peer("reverie", "ours_network"),
        Peer("limits", "limits_network"),
        Peer("dm-reverb", "dm_reverb", ("dm-reverb[tensorflow]==0.14.0", "numpy<2"), python="3.11"),
    )
}
FRAMES = Peer("frames", "pong", ("ale-py==0.12.1", "gymnasium==1.4.0"))


def python_of(peer: Peer) -> Path:
    """The interpreter of a peer's environment; makes the environment where it is missing or was made otherwise."""
    if not peer.requirements:
        return Path(sys.executable)
    venv = VENVS / peer.name
    stamp = venv / ".requirements"
    wanted = hashlib.sha256("\n".join(peer.requirements).encode()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"==> {peer.name}: making its environment ({' '.join(peer.requirements)})", file=sys.stderr, flush=True)
        uv = subprocess.run([ROOT / "tools" / "uv.sh"], check=True, capture_output=True, text=True).stdout.strip()
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", peer.python, venv], check=True)
        subprocess.run(
            [uv, "pip", "install", "--quiet", "--python", venv / "bin" / "python", *peer.requirements], check=True
        )
        stamp.write_text(wanted)
    return venv / "bin" / "python"


class Worker:
    """A peer's process. Every call blocks until the worker answers."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("VIRTUAL_ENV", "PYTHON"))}
        environment["RL_LOGGING_LEVEL"] = "WARNING"  # TorchRL announces every storage otherwise
        if peer.root != ROOT:
            environment["PYTHONPATH"] = str(peer.root / "python")
        self._process = subprocess.Popen(
            [python_of(peer), "-W", "ignore", "-m", f"workers.{peer.worker}"],
            cwd=peer.root / "benchmarks",
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        hello = self.ask("hello")
        self.kinds: list[str] = hello["kinds"]
        self.versions: dict[str, str] = hello["versions"]

    def ask(self, operation: str, **arguments: Any) -> Any:
        """Sends one request and waits for its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"op": operation, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise WorkerError(f"the worker of {self.peer.name} ended during {operation!r} (rc {self._process.wait()})")
        return json.loads(line)

    def is_alive(self) -> bool:
        """False once the process has ended."""
        return self._process.poll() is None

    def close(self) -> None:
        """Lets the worker end by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)


def pong_frames(count: int) -> Path:
    """A file with `count` real Pong frames, rendered once and kept next to the environments."""
    path = VENVS / f"pong-{count}.npy"
    if not path.exists():
        print(f"==> rendering {count} Pong frames", file=sys.stderr, flush=True)
        subprocess.run([python_of(FRAMES), ROOT / "benchmarks" / "workers" / "pong.py", path, str(count)], check=True)
    return path
