"""Signals to the process group of a run that has started Ray by itself."""

import json
import os
import signal
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("ray")
pytest.importorskip("cryptography")

if sys.platform != "linux":
    pytest.skip("elsewhere Ray's processes stay in the run's process group", allow_module_level=True)

from reverie.runners import checkpoints

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("ray")]

SHORT = {
    "num_actors": 1,
    "hidden": [8],
    "batch_size": 8,
    "learning_starts": 50,
    "target_return": 10_000.0,
    "max_env_steps": 10**9,
    "evaluate_every": 10**9,
    "checkpoint_every": 100,
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_to_the_process_group_of_a_run_on_ray_saves(tmp_path, until, number):
    """Ray's own processes would end by it, and a run without Ray cannot save."""
    folder = tmp_path / "run"
    settings = [word for name, value in SHORT.items() for word in ("--set", f"{name}={json.dumps(value)}")]
    command = [sys.executable, "-m", "reverie", "train", "apex-dqn", "--env", "CartPole-v1", "--runner", "ray"]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with subprocess.Popen(
        [*command, "--out", str(folder), *settings],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as run:
        try:
            until(lambda: run.poll() is not None or any(folder.glob("checkpoints/0*")))
            os.killpg(run.pid, number)
            stderr = run.communicate(timeout=50)[1]
        finally:
            run.kill()
    assert run.returncode == 130, stderr
    assert f"saved as {checkpoints.find(folder)}" in stderr
