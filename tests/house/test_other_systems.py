"""The package where Python lacks what Linux has: its modules are imported, and parts that need Linux raise an error."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

# Names that the package uses and that Python lacks there.
MISSING = {
    "darwin": ("os.pidfd_open", "signal.pidfd_send_signal"),
    "win32": (
        *("os.fork", "os.getuid", "os.killpg", "os.nice", "os.pidfd_open", "os.register_at_fork", "os.sysconf"),
        *("os.uname", "os.WIFSTOPPED", "os.WUNTRACED", "multiprocessing.context.ForkServerProcess", "select.poll"),
        *("signal.pidfd_send_signal", "signal.SIGCONT", "signal.SIGHUP", "signal.SIGKILL", "signal.SIGSTOP"),
        "socket.AF_UNIX",
    ),
}
# Folders of modules that need no other frameworks than PyTorch.
FOLDERS = ("agents", "cli", "client", "parameters", "runners", "structured", "writers")
# Other packages are imported before the system changes its name: they may have files of their own for each.
IMPORTS = """
import importlib, json, pkgutil, sys
import reverie
folders = [f"reverie.{name}" for name in json.loads(sys.argv[3])]
names = [module.name for module in pkgutil.iter_modules(reverie.__path__, "reverie.")]
for folder in folders:
    names += [module.name for module in pkgutil.walk_packages(importlib.import_module(folder).__path__, folder + ".")]
names = [name for name in names if not name.endswith(("__main__", "_native", "_tensorflow")) and ".ray" not in name]
for name in names:
    importlib.import_module(name)
for name in [name for name in sys.modules if name.split(".")[0] == "reverie" and name != "reverie._native"]:
    del sys.modules[name]
sys.platform = sys.argv[1]
for path in json.loads(sys.argv[2]):
    module, _, name = path.rpartition(".")
    delattr(sys.modules[module], name)
if sys.platform == "win32":
    sys.modules["fcntl"] = None

def attempt(call):
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

refused = {name: reason for name in names if isinstance(reason := attempt(lambda: importlib.import_module(name)), str)}
"""
CALLS = """
from reverie import _memory, testing
from reverie.agents.compiling import missing_compiler
from reverie.cli.exits import stop_signals
from reverie.runners.launch import _runner
print(json.dumps({
    "imported": len(names) - len(refused),
    "refused": refused,
    "process": attempt(lambda: _runner("process", None)),
    "local": callable(attempt(lambda: _runner("local", None))[1]),
    "compiler": missing_compiler(),
    "signals": [number.name for number in stop_signals()],
    "memory": attempt(_memory.physical_memory) if sys.platform == "darwin" else None,
    "host": attempt(testing.ServerProcess) if sys.platform == "win32" else None,
}))
"""


def found_on(system: str) -> dict[str, Any]:
    command = [sys.executable, "-c", IMPORTS + CALLS, system, json.dumps(MISSING[system]), json.dumps(FOLDERS)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.long
@pytest.mark.parametrize(
    ("system", "signals"),
    [("darwin", {"SIGINT", "SIGTERM", "SIGHUP"}), ("win32", {"SIGINT", "SIGTERM"})],
)
def test_every_module_is_imported_and_parts_that_need_linux_raise_errors(system: str, signals: set[str]) -> None:
    found = found_on(system)
    assert found["imported"] > 200
    assert set(found["refused"]) == {"reverie.runners.process"}
    assert found["process"].startswith("ImportError: the runner 'process' needs Linux")
    assert f"this is {system}: use runner='local' or 'ray'" in found["process"]
    assert found["local"]
    assert found["compiler"] == "updates are compiled on Linux alone"
    assert signals - {"SIGHUP"} <= set(found["signals"]) <= signals
    if system == "darwin":
        physical, free = found["memory"]
        assert physical == free > 2**20
    else:
        assert found["host"].startswith("NotImplementedError: Windows gives a new process no socket of its parent")
