"""The scripts behind `make`: they meet machines that ours is not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def rustup_home(home: Path, path: Path, **extra: str) -> str:
    environment = {"HOME": str(home), "PATH": f"{path}:/usr/bin:/bin", **extra}
    command = [ROOT / "tools" / "rust_env.sh", "rustup-home"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A home under which somebody installed Rust."""
    home = tmp_path / "owner"
    executable(home / ".cargo" / "bin" / "cargo")
    (home / ".rustup" / "toolchains" / "stable").mkdir(parents=True)
    return home


def test_an_empty_home_gets_the_toolchain_that_lies_beside_cargo(installed: Path, tmp_path: Path) -> None:
    assert rustup_home(tmp_path, installed / ".cargo" / "bin") == str(installed / ".rustup")


def test_settings_without_a_toolchain_do_not_count_as_an_installation(installed: Path, tmp_path: Path) -> None:
    (tmp_path / ".rustup").mkdir()
    (tmp_path / ".rustup" / "settings.toml").touch()
    assert rustup_home(tmp_path, installed / ".cargo" / "bin") == str(installed / ".rustup")


def test_the_home_where_rust_was_installed_needs_no_help(installed: Path) -> None:
    assert rustup_home(installed, installed / ".cargo" / "bin") == ""


def test_a_rustup_home_that_the_user_set_is_left_alone(installed: Path, tmp_path: Path) -> None:
    assert rustup_home(tmp_path, installed / ".cargo" / "bin", RUSTUP_HOME="/elsewhere") == ""


def test_a_working_uv_is_used_and_not_installed_again(tmp_path: Path) -> None:
    uv = executable(tmp_path / "bin" / "uv")
    environment = {**os.environ, "PATH": f"{uv.parent}:/usr/bin:/bin"}
    done = subprocess.run([ROOT / "tools" / "uv.sh"], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(uv)
