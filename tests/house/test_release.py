"""The files of a release: what `make wheels` pins fits what pyproject.toml asks for, and the sdist is whole."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from reverie.testing import PATHS

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WHEELS = ROOT / "tools" / "wheels"
PINS = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (WHEELS / "requirements.txt").read_text(), flags=re.MULTILINE))


def test_each_tool_of_a_release_is_pinned_by_a_hash() -> None:
    assert set((WHEELS / "requirements.in").read_text().split()) <= set(PINS)
    pinned = re.split(r"^(?=[a-z0-9-]+==)", (WHEELS / "requirements.txt").read_text(), flags=re.MULTILINE)[1:]
    assert len(pinned) == len(PINS)
    assert all("--hash=sha256:" in one for one in pinned)


def test_the_pinned_maturin_is_one_that_the_sdist_asks_for() -> None:
    (asked,) = map(Requirement, PROJECT["build-system"]["requires"])
    assert asked.name == "maturin"
    assert asked.specifier.contains(PINS["maturin"])


def test_the_extra_of_rllib_has_what_ray_asks_for_but_its_gymnasium() -> None:
    try:
        asked = [Requirement(one) for one in importlib.metadata.requires("ray") or ()]
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("reverie[ray] is not installed")
    rllib = {"extra": "rllib", "python_version": "3.13", "sys_platform": "linux"}
    plain = {canonicalize_name(one.name) for one in asked if not one.marker}
    needed = {canonicalize_name(one.name) for one in asked if one.marker and one.marker.evaluate(rllib)}
    extras = PROJECT["project"]["optional-dependencies"]
    named = {canonicalize_name(Requirement(one).name) for one in extras["rllib"]} - {"reverie"}
    assert named == needed - plain - {"gymnasium"}
    assert any(one.startswith("gymnasium>=") for one in extras["agents"]), "which `reverie[ray]` has"


def test_wheels_are_tried_on_the_pythons_that_the_metadata_names() -> None:
    script = (ROOT / "tools" / "wheels.sh").read_text()
    found = re.search(r"for minor in (.*); do", script)
    assert found
    tried = found[1].split()
    accepted = SpecifierSet(PROJECT["project"]["requires-python"])
    assert all(minor in accepted for minor in tried)
    named = [one.rpartition(" ")[2] for one in PROJECT["project"]["classifiers"] if " :: 3." in one]
    assert named
    assert set(named) <= set(tried)
    # The oldest one is the name of the stable ABI in the wheel's file.
    abi = re.search(r"abi3-py3(\d+)", (ROOT / "crates" / "reverie-py" / "Cargo.toml").read_text())
    assert abi
    assert tried[0] == f"3.{abi[1]}"
    assert f"cp3{abi[1]}-abi3" in script


def test_the_tests_under_emulation_are_some_of_each_word_over_each_path() -> None:
    script = (ROOT / "tools" / "wheels.sh").read_text()
    default = re.search(r"\$\{ARGS:-(.*)\}", script)
    assert default
    words = ("append", "chunk", "item", "table", "sample", "batch")
    collect = [sys.executable, "-m", "pytest", "-q", "-n0", "--collect-only", "-p", "no:cacheprovider"]
    found = subprocess.run([*collect, *default[1].split()], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tests = re.findall(r"^tests/flow/(\w+)/\w+\.py::\w+\[(.+)\]$", found, flags=re.MULTILINE)
    tried = {(word, path) for word, case in tests for path in PATHS if path in case}
    assert {(word, path) for word in words for path in PATHS} - tried == set()


@pytest.mark.long
@pytest.mark.parametrize("folder", ["proto", "crates", "python"])
def test_the_sdist_has_what_the_build_reads(folder: str, sdist: set[str]) -> None:
    suffixes = {".proto", ".rs", ".toml", ".py", ".pyi", ".typed"}
    files = {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*") if path.suffix in suffixes}
    assert files
    assert files - sdist == set()


def test_the_sdist_has_the_lock_the_licence_and_no_tests_of_python(sdist: set[str]) -> None:
    assert {"Cargo.lock", "LICENSE", "README.md", "PKG-INFO", "pyproject.toml"} <= sdist
    assert not [name for name in sdist if name.startswith(("tests/", "benchmarks/", ".")) or name.endswith(".so")]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in the sdist, without the folder that they share."""
    folder = tmp_path_factory.mktemp("sdist")
    path = subprocess.run([ROOT / "tools" / "rust_env.sh", "path"], capture_output=True, text=True, check=True).stdout
    environment = {**os.environ, "PATH": path.strip(), "CARGO_NET_OFFLINE": "true"}
    command = [ROOT / ".venv" / "bin" / "maturin", "sdist", "--out", folder]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    (file,) = folder.glob("*.tar.gz")
    with tarfile.open(file) as opened:
        return {name.partition("/")[2] for name in opened.getnames()}
