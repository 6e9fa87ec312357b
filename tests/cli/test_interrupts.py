"""`reverie train` that is interrupted: signals, a closed terminal, a closed output."""

import json
import os
import pty
import signal
import subprocess

import pytest

pytest.importorskip("torch")
pytest.importorskip("typer")

from reverie.cli import exits
from reverie.runners import checkpoints
from reverie.runners.reports import logs

pytestmark = pytest.mark.long


def twice(number):
    """Sends a signal twice, as to a process and to its group."""

    def send_signal(process):
        os.kill(process.pid, number)
        for line in process.stderr:
            if line.startswith("reverie: saving a checkpoint and ending"):  # or the two would be taken for one
                os.kill(process.pid, number)
                return

    return send_signal


@pytest.mark.parametrize(
    "send_signal",
    [lambda process: os.kill(process.pid, signal.SIGINT), twice(signal.SIGTERM)],
    ids=["Ctrl-C", "SIGTERM"],
)
def test_ctrl_c_and_sigterm_save_end_with_130_and_the_run_can_be_resumed(start, tmp_path, send_signal):
    """The run has its own process, and is interrupted as soon as its log shows that it trains."""
    folder = tmp_path / "runs" / "dqn-CartPole-v1-seed-0"
    options = ["--no-tensorboard", "--set", "evaluate_every=200", "--set", "target_return=10000", "--json"]
    options += ["--set", "max_env_steps=1000000000"]
    process = start("train", "dqn", "--env", "CartPole-v1", *options, stderr=subprocess.PIPE)
    for line in process.stderr:
        if "greedy return" in line:
            send_signal(process)
            break
    rest = process.stderr.read()
    assert process.wait(timeout=200) == 130
    assert "the same command with --resume continues from there" in rest
    assert "Traceback" not in rest
    saved = checkpoints.load(checkpoints.find(folder))
    assert saved["env_steps"] >= 200


def test_a_second_ctrl_c_ends_a_run_without_a_checkpoint_and_a_second_sigterm_does_not(capsys):
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        with exits.stop_on_signals() as is_asked:
            assert not is_asked()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGTERM):
                signal.raise_signal(number)
                assert is_asked()
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert capsys.readouterr().err.count("Ctrl-C now ends without it") == 1


def test_a_run_saves_when_its_terminal_closes_and_continues_after_nohup(start, tmp_path):
    folder = tmp_path / "runs" / "dqn-CartPole-v1-seed-0"
    command = ["train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--until-max-steps"]
    command += ["--set", "evaluate_every=1000000000", "--set", "max_env_steps=1000000000"]
    terminal, end = pty.openpty()
    process = start(*command, terminal=end, session=True)
    os.close(end)
    while not (folder / logs.LOG).exists() or b'"progress"' not in (folder / logs.LOG).read_bytes():
        os.read(terminal, 2**16)
    os.close(terminal)
    assert process.wait(timeout=200) == 130
    assert checkpoints.load(checkpoints.find(folder))["env_steps"] > 0
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert exits.stop_signals() == (signal.SIGINT, signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("errors", [subprocess.DEVNULL, subprocess.STDOUT], ids=["2> file", "2>&1"])
def test_a_run_whose_output_is_closed_saves_and_ends(start, tmp_path, errors):
    command = ["train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--until-max-steps"]
    command += ["--set", "evaluate_every=200", "--set", "max_env_steps=1000000000"]
    process = start(*command, stdout=subprocess.PIPE, stderr=errors)
    assert "dqn on CartPole-v1" in process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=200) == 130
    assert checkpoints.load(checkpoints.find(tmp_path / "runs" / "dqn-CartPole-v1-seed-0"))["env_steps"] >= 200


@pytest.mark.xdist_group("processes")  # with the other tests of roles: one fork server is enough for all of them
def test_the_same_command_runs_its_roles_in_processes_and_ctrl_c_saves_and_ends_all_of_them(start, reverie, tmp_path):
    command = ["train", "dqn", "--env", "CartPole-v1", "--runner", "process", "--num-actors", "2", "--no-tensorboard"]
    command += ["--json"]
    options = ["--set", "evaluate_every=200", "--set", "target_return=10000", "--set", "screening_episodes=1"]
    options += ["--set", "learning_starts=150"]
    endless = ["--set", "max_env_steps=1000000000"]
    process = start(*command, *options, *endless, stderr=subprocess.PIPE, session=True)
    for line in process.stderr:
        if "greedy return" in line:
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does: all processes of the group get it
            break
    rest = process.stderr.read()  # ends when the last process that has it open has ended
    assert process.wait(timeout=200) == 130
    assert "the same command with --resume continues from there" in rest
    assert "Traceback" not in rest
    folder = tmp_path / "runs" / "dqn-CartPole-v1-seed-0"
    first = checkpoints.load(checkpoints.find(folder))
    assert first["env_steps"] >= 200
    assert len(first["actors"]) == 2
    limit = first["env_steps"] + 300
    done = reverie(*command, *options, "--resume", "--set", f"max_env_steps={limit}")
    assert done.exit_code == 1, done.stderr
    assert json.loads(done.stdout)["env_steps"] >= limit
    lines = [json.loads(line) for line in (folder / logs.LOG).read_text().splitlines()]
    assert {"started", "progress", "evaluated", "saved", "finished"} <= {line["event"] for line in lines}
    assert any(line.get("policy_lag") is not None for line in lines)
