"""Rules of which module may name which, as far as import-linter and cargo cannot check them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "reverie"
CRATES = ROOT / "crates"

# module -> the folders or files of the package that may import it
ALLOWED = {
    "torch": ("adapters/torch.py", "agents", "integrations", "runners", "cli"),
    "jax": ("adapters/jax.py",),
    "tensordict": ("adapters/tensordict.py", "integrations/torchrl"),
    "torchrl": ("integrations/torchrl",),
    "tensorflow": ("_tensorflow.py",),
    "gymnasium": ("specs.py", "adapters", "agents", "integrations", "runners", "cli", "testing.py"),
    "ray": ("integrations/rllib", "parameters/ray.py", "runners/ray"),
    "safetensors": ("agents",),
    "onnx": ("agents",),
    "onnxruntime": ("agents",),
    "onnxscript": ("agents",),
    "stable_baselines3": ("integrations/stable_baselines3",),
    "pyarrow": ("integrations/datasets",),
    "minari": ("integrations/datasets/minari.py",),
    "av": ("integrations/datasets/videos.py",),
    "PIL": ("integrations/datasets",),
    "matplotlib": ("cli", "runners"),
    "typer": ("cli",),
    "rich": ("cli",),
    "pickle": (),
    "cloudpickle": (),
    "dill": (),
    "marshal": (),
    "shelve": (),
}


def imports_of(source: str) -> Iterator[str]:
    """The top-level names of all modules that a source imports, inside functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.split(".")[0]


def offences(path: str, source: str) -> list[str]:
    """The modules that this file of the package imports and may not."""
    return sorted(
        name
        for name in set(imports_of(source))
        if name in ALLOWED and not any(path == place or path.startswith(f"{place}/") for place in ALLOWED[name])
    )


def test_no_file_of_the_package_imports_what_belongs_elsewhere() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert files, "the package has no sources?"
    found = {str(file.relative_to(PACKAGE)): file.read_text() for file in files}
    assert {path: bad for path, source in found.items() if (bad := offences(path, source))} == {}


@pytest.mark.parametrize(
    ("path", "source", "bad"),
    [
        ("client.py", "import torch", ["torch"]),
        ("client.py", "def f():\n    from torch.utils import data", ["torch"]),
        ("runners/local.py", "import ray.util", ["ray"]),
        ("runners/ray/cluster.py", "import ray", []),
        ("runners/raylet.py", "import ray", ["ray"]),
        ("parameters/ray.py", "import ray", []),
        ("parameters/table.py", "import ray", ["ray"]),
        ("writers/transition.py", "import pickle, numpy", ["pickle"]),
        ("agents/apex_dqn/loss.py", "import torch.nn as nn", []),
        ("agents/core.py", "from . import torch", []),
    ],
)
def test_the_import_rule_catches_a_planted_offence(path: str, source: str, bad: list[str]) -> None:
    assert offences(path, source) == bad


def rust_sources(crate: str) -> dict[str, str]:
    folder = CRATES / crate / "src"
    return {str(file.relative_to(folder)): file.read_text() for file in sorted(folder.rglob("*.rs"))}


def without_comments(source: str) -> str:
    return re.sub(r"//[^\n]*", "", source)


def test_the_core_names_no_python_no_runtime_and_no_wire() -> None:
    sources = rust_sources("reverie-core")
    assert sources, "the core has no sources?"
    found = {
        path: words
        for path, source in sources.items()
        if (words := re.findall(r"\b(?:pyo3|tokio|tonic|prost)\b", without_comments(source)))
    }
    assert found == {}


def test_importing_the_package_loads_numpy_and_no_framework() -> None:
    code = (
        "import sys, reverie\n"
        "heavy = {'torch', 'jax', 'ray', 'gymnasium', 'tensorflow', 'matplotlib', 'typer', 'rich', 'ml_dtypes'}\n"
        "heavy |= {'safetensors', 'onnx', 'onnxruntime', 'stable_baselines3', 'pyarrow', 'minari', 'av', 'PIL'}\n"
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_the_package_loads_nothing_that_only_some_programs_need() -> None:
    code = (
        "import sys, numpy\n"
        "before = set(sys.modules)\n"
        "import reverie\n"
        "rare = {'importlib.metadata', 'email.message', 'csv', 'asyncio', 'http.client', 'logging', 'pathlib'}\n"
        "rare |= {'ipaddress', 'urllib.parse', 'reverie.info'}\n"
        "print(sorted(rare & {*sys.modules} - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=True)
    assert done.stdout.strip() == "[]"


def test_the_commands_are_known_before_any_framework_is_loaded() -> None:
    code = (
        "import sys, reverie.cli.app\n"
        "heavy = {'torch', 'jax', 'ray', 'gymnasium', 'matplotlib', 'optuna', 'mlflow', 'wandb', 'pyarrow', 'pandas'}\n"
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=True)
    assert done.stdout.strip() == "[]"


def test_the_package_tells_its_version_as_installed_and_names_what_it_lacks() -> None:
    import reverie

    assert reverie.__version__ == version("reverie")
    assert reverie.TableInfo is reverie.info.TableInfo
    with pytest.raises(AttributeError, match="module 'reverie' has no attribute 'nothing'"):
        _ = reverie.nothing  # type: ignore[attr-defined]
