"""The Rust of the proto is checked in, so that no build compiles what reads protos: it has to fit its sources."""

import hashlib
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
GENERATED = ROOT / "crates/reverie-net/generated"


def test_the_generated_code_was_made_from_the_proto_that_is_there():
    lines = (GENERATED / "SHA256SUMS").read_text().splitlines()
    named = dict(reversed(line.split("  ")) for line in lines)
    assert {pathlib.Path(name).name for name in named} == {
        "replay.proto", "main.rs", "Cargo.lock", "reverie.v1.rs", "descriptors.bin",
    }  # fmt: skip
    changed = [name for name, sum_ in named.items() if hashlib.sha256((ROOT / name).read_bytes()).hexdigest() != sum_]
    assert not changed, "run `make proto`"


@pytest.mark.slow
def test_the_generator_writes_what_is_checked_in(tmp_path):
    if shutil.which("cargo") is None:
        pytest.skip("needs cargo")
    manifest, target = ROOT / "tools/proto/Cargo.toml", ROOT / "target/proto"
    command = [
        "cargo",
        "run",
        "--locked",
        "--quiet",
        "--manifest-path",
        manifest,
        "--target-dir",
        target,
        "--",
        tmp_path,
    ]
    subprocess.run(command, check=True, env=os.environ | {"CARGO_INCREMENTAL": "0"})
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_bytes() for path in GENERATED.iterdir() if path.name != "SHA256SUMS"}
