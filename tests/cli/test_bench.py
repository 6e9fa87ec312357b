import json
import subprocess
import sys

import pytest

pytest.importorskip("typer")

COMMAND = [sys.executable, "-c", "import reverie.cli; reverie.cli.main()", "bench"]


def run(*arguments):
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.long
def test_every_call_is_measured_over_every_transport():
    done = run("--seconds", "0.02", "--capacity", "500", "--batch-size", "32", "--obs-shape", "3x2", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    # Two observations of six float32, an int64 and two float32.
    assert (document["batch_size"], document["capacity"], document["transition_bytes"]) == (32, 500, 64)
    assert set(document["seconds_per_call"]) == {"in-process", "shared-memory", "grpc"}
    for rows in document["seconds_per_call"].values():
        assert len(rows) == 5
        assert all(0 < seconds < 60 for seconds in rows.values())


@pytest.mark.long
def test_the_text_output_is_a_table_of_the_requested_transports():
    done = run("--seconds", "0.02", "--capacity", "64", "--batch-size", "8", "--transport", "in-process")
    assert done.returncode == 0, done.stderr
    assert "64 transitions of 48 B; batches of 8, 384 B" in done.stdout
    assert "sample_batch" in done.stdout
    assert "grpc" not in done.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["--transport", "pigeon"], "unknown transport 'pigeon': known are in-process, shared-memory, grpc"),
        (["--obs-shape", "4x"], "--obs-shape '4x'"),
        (["--obs-dtype", "object"], "--obs-dtype 'object'"),
        (["--obs-shape", "100000x100000x100000"], "lower --capacity"),
        (["--batch-size", "30000"], "raise --capacity"),
    ],
)
def test_invalid_measurements_are_refused(arguments, reported):
    done = run(*arguments)
    assert done.returncode == 2
    assert reported in done.stderr, done.stderr
