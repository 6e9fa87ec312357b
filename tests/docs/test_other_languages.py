"""The client in another language runs against a real server, where that language is installed."""

import shutil
import subprocess
from pathlib import Path

import pytest

import reverie

ROOT = Path(__file__).resolve().parents[2]


def test_the_ruby_client_describes_inserts_and_samples(tmp_path):
    compiler = shutil.which("grpc_tools_ruby_protoc")
    if compiler is None or subprocess.run(["ruby", "-e", 'require "grpc"'], check=False).returncode != 0:
        pytest.skip("needs Debian's ruby-grpc and ruby-grpc-tools")
    subprocess.run(
        [compiler, "-I", ROOT / "proto", f"--ruby_out={tmp_path}", f"--grpc_out={tmp_path}", "reverie/v1/replay.proto"],
        check=True,
    )
    with reverie.Server([reverie.Table.queue("other", 3), table()]) as server:
        client = ROOT / "examples" / "other_languages" / "client.rb"
        done = subprocess.run(
            ["ruby", client, server.address, tmp_path, "replay"],
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "inserted 4 items" in done.stdout
        assert "sampled x [2, 3]" in done.stdout
        batch = server.client().sample_batch("replay", 8)
        assert batch.data["x"].shape == (8, 3)


def table():
    return reverie.Table(
        "replay",
        sampler=reverie.selectors.Uniform(),
        remover=reverie.selectors.Fifo(),
        max_size=100,
        rate_limiter=reverie.rate_limiters.MinSize(1),
    )
