"""Signals to a run on a real Ray: one that the run has started, or the program before."""

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
from reverie.runners.checkpoints.earlier_runs import LOCK

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


PROGRAM = """
import json, signal, sys
import ray
import reverie

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts programs in the background without it
    ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=100 * 2**20)
    try:
        reverie.train("apex-dqn", "CartPole-v1", runner="ray", folder=sys.argv[1], **json.loads(sys.argv[2]))
    except KeyboardInterrupt as interrupt:
        print(*interrupt.__notes__, file=sys.stderr)
        raise SystemExit(7)
    finally:
        print("connected" if ray.is_initialized() else "closed")
"""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, 7)], ids=["SIGTERM", "SIGINT"]
)
def test_a_program_that_has_called_ray_init_saves_at_a_signal_and_can_close_what_is_its_own(
    tmp_path, until, number, code
):
    """`ray.init` sets a handler of SIGTERM, which would end the program at once: it ends it once the run has saved."""
    folder, script = tmp_path / "run", tmp_path / "program.py"
    script.write_text(PROGRAM)
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with subprocess.Popen(
        [sys.executable, str(script), str(folder), json.dumps(SHORT)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as program:
        try:
            until(lambda: program.poll() is not None or any(folder.glob("checkpoints/0*")))
            program.send_signal(number)
            stdout, stderr = program.communicate(timeout=100)
        finally:
            program.kill()
    assert program.returncode == code, stderr
    newest = checkpoints.find(folder)
    assert f"saved as {newest}; train(resume=True) with this folder continues" in stderr
    assert stdout.splitlines()[-1] == "connected", "the Ray of the program is its own"
    assert not (folder / LOCK).exists(), "the run was closed"
