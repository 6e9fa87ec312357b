"""The scripts behind `make`: they meet machines that ours is not."""

from __future__ import annotations

import os
import subprocess
import tomllib
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
    """A home under which Rust is installed."""
    home = tmp_path / "owner"
    executable(home / ".cargo" / "bin" / "cargo")
    (home / ".rustup" / "toolchains" / "stable").mkdir(parents=True)
    return home


def test_an_empty_home_gets_the_toolchain_next_to_cargo(installed: Path, tmp_path: Path) -> None:
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


def pressure(file: Path, percent: int) -> Path:
    draft = file.with_suffix(".draft")
    draft.write_text(f"some avg10={percent}.25 avg60=99.00 avg300=99.00 total=1\nfull avg10=0.00 total=0\n")
    return draft.replace(file)


def test_a_command_reports_that_it_waits_for_a_quiet_machine_and_then_runs(tmp_path: Path) -> None:
    quiet = ROOT / "tools" / "quiet.sh"
    file = pressure(tmp_path / "cpu", 80)
    waiting = subprocess.Popen([quiet, "1000", file], stderr=subprocess.PIPE, text=True)
    assert waiting.stderr is not None
    assert "for 80 % of the last seconds a task waited for a CPU" in waiting.stderr.readline()
    assert waiting.poll() is None
    pressure(file, 3)
    assert waiting.wait(timeout=200) == 0
    assert waiting.stderr.read() == ""
    # And not for ever, on a machine that is never quiet.
    assert subprocess.run([quiet, "0", pressure(file, 99)], check=True, timeout=200).returncode == 0


@pytest.mark.xdist_group("one test")
def test_workers_take_tests_by_their_groups(request: pytest.FixtureRequest) -> None:
    """pytest-xdist writes the group into a test's id. If it cannot, each worker starts its own cluster."""
    grouped = request.config.getoption("loadgroup", default=False)
    assert request.node.nodeid.endswith("@one test") == grouped


def programs(path: Path, *names: str) -> str:
    """The output of the script on a machine whose commands are those of `path`, and bash's own tools."""
    environment = {"PATH": f"{path}:/usr/bin:/bin", "POLICY_RC_D": str(path / "policy-rc.d")}
    command = ["bash", ROOT / "tools" / "debian_programs.sh", *names]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def debian(tmp_path: Path) -> Path:
    """The commands of a machine where this is root, and apt-get does what it can and notes what it was asked."""
    path = tmp_path / "bin"
    executable(path / "id").write_text("#!/bin/sh\necho 0\n")
    script = f"""#!/bin/sh
echo "$*; the guard is $(cat {path}/policy-rc.d | tail -1)" >>{tmp_path}/asked
case "$*" in *update*) echo no network; exit 100;; *not-there*) echo no such package; exit 100;; esac
"""
    executable(path / "apt-get").write_text(script)
    return path


def test_programs_that_are_missing_are_installed_without_their_services(debian: Path, tmp_path: Path) -> None:
    executable(debian / "one")
    assert "update failed; going on" in programs(debian, "one", "a-program")
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [line for line in asked if "a-program" in line and line.endswith("the guard is exit 101")]
    assert not [line for line in asked if " one" in line]
    assert not (debian / "policy-rc.d").exists()


def test_a_program_that_cannot_be_installed_is_named_and_is_no_failure(debian: Path, tmp_path: Path) -> None:
    assert "tests that need not-there are skipped" in programs(debian, "not-there", "a-program")
    assert "a-program" in (tmp_path / "asked").read_text()
    executable(debian / "id").write_text("#!/bin/sh\necho 1000\n")
    assert "tests that need a-program are skipped: this is not root" in programs(debian, "a-program")


def test_a_guard_that_is_there_already_stays(debian: Path) -> None:
    executable(debian / "policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
    programs(debian, "a-program")
    assert (debian / "policy-rc.d").exists()


def test_a_kept_port_is_given_once_and_is_outside_the_range_of_the_system(new_port):
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = [new_port() for _ in range(20)]
    assert len(set(ports)) == 20
    if first > 20_000 or last < 65_535:
        assert not [port for port in ports if first <= port <= last]


@pytest.mark.parametrize("crate", ["reverie-core", "reverie-net"])
def test_the_lock_file_of_the_fuzzers_has_the_packages_that_a_crate_names(crate):
    manifest = tomllib.loads((ROOT / "crates" / crate / "Cargo.toml").read_text())
    wanted = manifest["dependencies"] | manifest.get("build-dependencies", {})
    for target in manifest.get("target", {}).values():
        wanted |= target.get("dependencies", {})
    named = {name for name, how in wanted.items() if isinstance(how, str) or not how.get("optional")}
    packages = tomllib.loads((ROOT / "fuzz" / "Cargo.lock").read_text())["package"]
    (locked,) = [package["dependencies"] for package in packages if package["name"] == crate]
    assert {name.split()[0] for name in locked} == named, "run `cargo metadata` in fuzz/"
