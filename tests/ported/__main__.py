"""Code written for dm-reverb, unmodified, on Reverie: `make test-ported`.

Makes an environment with TensorFlow and DeepMind's Acme, and without dm-reverb, under .venvs; runs there the tests that
Acme publishes of its adders, and those of this folder. The exit code is pytest's.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
VENV = ROOT / ".venvs" / "acme"

REQUIREMENTS = (
    "absl-py", "dm-env==1.6", "dm-tree==0.1.10", "jax==0.4.13", "jaxlib==0.4.13", "numpy<2", "pillow", "pytest>=8.3",
    "tensorflow==2.15.1",
)  # fmt: skip
#: Without what it asks for: older versions of the above, and a launcher that the adders do not need.
ALONE = ("dm-acme==0.4.0",)


def python() -> Path:
    """The environment's interpreter; makes the environment where it is missing or was made otherwise."""
    stamp = VENV / ".requirements"
    wanted = hashlib.sha256("\n".join(REQUIREMENTS + ALONE).encode()).hexdigest()
    there = VENV / "bin" / "python"
    if stamp.exists() and stamp.read_text() == wanted:
        return there
    print(f"==> making the environment of ported code ({' '.join(REQUIREMENTS + ALONE)})", flush=True)
    uv = subprocess.run([ROOT / "tools" / "uv.sh"], check=True, capture_output=True, text=True).stdout.strip()
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", "3.11", VENV], check=True)
    install = [uv, "pip", "install", "--quiet", "--python", there]
    subprocess.run([*install, *REQUIREMENTS], check=True)
    subprocess.run([*install, "--no-deps", *ALONE], check=True)
    stamp.write_text(wanted)
    return there


def main() -> int:
    there = python()
    adders = next(VENV.glob("lib/python*/site-packages/acme/adders/reverb"))
    tests = sorted(str(file) for file in adders.glob("*_test.py"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [there, "-m", "pytest", "--import-mode=importlib", "-p", "ported_reverb", "-c", HERE / "pytest.ini", "-q"]
    environment["PYTHONPATH"] += os.pathsep + str(HERE)
    own = sorted(str(file) for file in HERE.glob("ported_*_test.py"))
    return subprocess.run([*command, *own, *tests, *sys.argv[1:]], env=environment, cwd=HERE, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
