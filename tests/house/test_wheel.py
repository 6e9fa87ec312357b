"""The wheel as a stranger meets it: an empty environment, no Rust, NumPy only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROBE = ROOT / "tools" / "wheels" / "probe.py"


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_environment_without_rust(tmp_path: Path) -> None:
    wheels = sorted((ROOT / "dist").glob("reverie-*-abi3-*.whl"), key=lambda path: path.stat().st_mtime)
    assert wheels, "no abi3 wheel under dist/: run `make wheel` first"
    uv = subprocess.run([ROOT / "tools" / "uv.sh"], capture_output=True, text=True, check=True).stdout.strip()
    venv = tmp_path / "venv"
    env = {key: value for key, value in os.environ.items() if not key.startswith(("VIRTUAL_ENV", "PYTHON"))}

    def run(*command: str | Path, **changes: str) -> str:
        environment = {**env, **changes}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=600)
        assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    run(uv, "venv", "--python", sys.executable, venv)
    # Nothing may be built here, whatever could be; uv itself may be a script that needs the usual PATH.
    run(uv, "pip", "install", "--no-build", "--python", venv / "bin" / "python", wheels[-1])
    # Nothing on the PATH: neither cargo nor a compiler can be found.
    where = run(venv / "bin" / "python", "-P", PROBE, PATH=str(tmp_path)).split()[-1]
    assert where.startswith(str(venv)), where
