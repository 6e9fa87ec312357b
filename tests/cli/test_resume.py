"""`reverie train --resume` and `--overwrite`: a run continues, begins again, or is refused."""

import errno
import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")
typer = pytest.importorskip("typer")

from reverie import runners  # noqa: E402
from reverie.cli import exits  # noqa: E402
from reverie.runners import checkpoints  # noqa: E402
from reverie.runners.checkpoints import locked  # noqa: E402
from reverie.runners.reports import logs  # noqa: E402

pytestmark = pytest.mark.long


def test_the_same_command_with_resume_continues_and_without_it_is_refused(reverie, here, short):
    command = ["train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--out", "here", *short]
    again = reverie(*command)
    assert again.exit_code == 2
    ways = "continue it with --resume, replace it with --overwrite, or name another folder with --out"
    assert f"here holds a run: {ways}" in again.stderr
    longer = reverie(*command[:-6], "--resume", "--set", "max_env_steps=1800")
    assert longer.exit_code == 1, longer.stderr
    assert "resuming after 1,30" in longer.stdout
    read = logs.read(Path("here"))
    assert [round(step, -2) for step in read.env_steps] == [500, 1_000, 1_300, 1_500, 1_800]
    assert "max_env_steps = 1800" in Path("here/preset.toml").read_text()


def test_settings_of_the_first_run_hold_for_the_resumed_one_and_others_are_refused(reverie, short):
    command = ["train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", *short]
    assert reverie(*command, "--set", "learning_rate=0.5").exit_code == 1
    resumed = reverie(
        "train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--resume", "--set", "max_env_steps=1500"
    )
    assert resumed.exit_code == 1, resumed.stderr
    changed = ["--set", "n_step=2", "--num-actors", 2, "--learning-rate", 0.1]
    other = reverie(*command, "--resume", "--set", "max_env_steps=1900", *changed)
    assert other.exit_code == 2
    (line,) = other.stderr.splitlines()
    assert "--set n_step is 2, and was 1, which cannot change: the items in its table are" in line
    assert "--num-actors is 2, and was 1, which cannot change: each actor continues with its own" in line
    assert "learning_rate" not in line, "which may change"
    settings = Path("runs/dqn-CartPole-v1-seed-0/preset.toml").read_text()
    assert "learning_rate = 0.5" in settings, "what was refused leaves the run's settings as they were"
    assert "max_env_steps = 1500" in settings


def test_a_changed_learning_rate_is_reported_and_becomes_that_of_the_run(reverie, here, short):
    command = ["train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--out", "here", *short]
    resumed = reverie(*command, "--resume", "--max-steps", 1500, "--learning-rate", "1e-5", "--set", "capacity=1200")
    assert resumed.exit_code == 1, resumed.stderr
    words = "reverie: the run continues with learning_rate 1e-05 (before: 0.002), capacity 1200 (before: 50000)"
    assert words in resumed.stderr
    settings = Path("here/preset.toml").read_text()
    assert "learning_rate = 1e-05" in settings
    again = reverie(*command, "--resume", "--max-steps", 1600)
    assert "the run continues with" not in again.stderr, "it holds from then on"


def test_a_job_that_is_queued_again_begins_its_run_and_then_continues_it(reverie, short):
    command = ["train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--out", "here", *short, "--resume"]
    first = reverie(*command)
    assert first.exit_code == 1, first.stderr
    assert "reverie: here has no run yet: a new one begins" in first.stderr
    assert "resuming" not in first.stdout
    for again, steps in (("--resume", 1500), ("--resume=must", 1700)):
        second = reverie(*command[:-1], again, "--max-steps", steps)
        assert second.exit_code == 1, second.stderr
        assert "resuming after" in second.stdout
        assert "a new one begins" not in second.stderr


@pytest.mark.parametrize("target", [5, 400])
def test_a_job_that_is_queued_again_after_its_end_reports_its_result_again(reverie, tmp_path, short, target):
    command = ["train", "dqn", "--env", "CartPole-v1", "--tensorboard", "--out", "here", *short]
    command += ["--target-return", target, "--json"]
    first = reverie(*command, "--resume")
    assert first.exit_code == (0 if target == 5 else 1), first.stderr
    folder = tmp_path / "here"
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".png"}
    more = "--until-max-steps or a higher --target-return" if target == 5 else "a higher --max-steps"
    for option in ("--resume", "--resume=must"):
        again = reverie(*command, option)
        assert again.exit_code == first.exit_code, again.stderr
        assert f"this run has finished, and nothing is left to train; {more} continues it" in again.stderr
        ends = [json.loads(one.stdout.splitlines()[-1]) for one in (first, again)]
        assert [one.pop("seconds") > 0 for one in ends] == [True, True]
        assert ends[0] == ends[1]
        after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".png"}
        assert before == after, "no event was written, and no checkpoint"
    # As a kill between the last checkpoint and the last line leaves it, or after further steps without a checkpoint.
    log = folder / "log.jsonl"
    *lines, end = log.read_text().splitlines(keepends=True)
    beyond = json.dumps({**json.loads(lines[-1]), "env_steps": 9_999}) + "\n"
    for cut in ("".join(lines), "".join([*lines, beyond])):
        log.write_text(cut)
        assert reverie(*command, "--resume").exit_code == first.exit_code
        finished = logs.read(folder).finished
        assert finished is not None
        same = json.loads(end).keys() - {"seconds", "activities"}  # the last checkpoint took time, too
        assert {key: finished[key] for key in same} == {key: json.loads(end)[key] for key in same}


def test_a_confirmed_run_continues_where_it_is_to_do_more(reverie, short):
    command = ["train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--out", "here", *short]
    assert reverie(*command, "--target-return", 5).exit_code == 0
    assert logs.read(Path("here")).env_steps[-1] < 600
    further = reverie(*command, "--target-return", 5, "--resume", "--until-max-steps")
    assert "resuming after 5" in further.stdout
    assert logs.read(Path("here")).env_steps[-1] >= 1_300
    met = reverie(*command, "--target-return", 0, "--resume")
    assert met.exit_code == 0
    assert "confirmed: " in met.stdout
    missed = reverie(*command, "--target-return", 500, "--resume")
    assert missed.exit_code == 1, "the target is another one now, and all steps are done"


@pytest.mark.parametrize("target", [5, 400])
def test_a_run_that_has_finished_is_not_reported_as_one_with_other_settings(reverie, short, target):
    command = ["train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--out", "here", *short]
    command += ["--target-return", target]
    reverie(*command)
    again = reverie(*command, "--resume", "--learning-rate", 0.5)
    assert again.exit_code == 2
    assert "not trained with these settings: --learning-rate is 0.5, and was " in again.stderr
    more = "--until-max-steps or a higher --target-return" if target == 5 else "a higher --max-steps"
    assert f"give {more} to train on with them" in again.stderr


@pytest.mark.parametrize("option", ["--resume", "--overwrite"])
def test_a_run_in_a_folder_where_another_one_trains_is_refused_in_a_line(reverie, short, option):
    command = ["train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--out", "here", *short]
    with locked(Path("here")):
        result = reverie(*command, option)
    assert result.exit_code == 2
    assert "reverie: folder here has a run that still trains (process " in result.stderr
    assert not Path("here").exists()


def test_resume_takes_no_argument_of_the_command_as_its_value(reverie):
    result = reverie("train", "--resume", "dqn", "--env", "CartPole-v1", "--dry-run")
    assert result.exit_code == 0, result.stderr
    assert "dqn on CartPole-v1" in result.stdout


def test_overwrite_replaces_the_files_of_a_run_and_leaves_others(reverie, tmp_path, small):
    command = ["train", "dqn", "--env", "CartPole-v1", "--tensorboard", "--out", "here", "--set", "evaluate_every=500"]
    command += small
    assert reverie(*command, "--max-steps", 900).exit_code == 1
    folder = tmp_path / "here"
    (folder / "notes.txt").write_text("mine")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert reverie(*command, "--max-steps", 600, "--overwrite", "--dry-run").exit_code == 0
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    result = reverie(*command, "--max-steps", 600, "--overwrite", "--seed", 5)
    assert result.exit_code == 1, result.stderr
    read = logs.read(folder)
    assert (read.seed, [round(step, -2) for step in read.env_steps]) == (5, [500, 600])
    assert [one["env_steps"] // 100 for one in map(checkpoints.load, (folder / "checkpoints").glob("0*"))] == [6]
    assert "max_env_steps = 600" in (folder / "preset.toml").read_text()
    assert (folder / "notes.txt").read_text() == "mine"
    assert len(list((folder / "tensorboard").iterdir())) == 1
    assert (folder / "curve.png").read_bytes() != before[folder / "curve.png"]
    assert reverie(*command, "--max-steps", 700, "--seed", 5, "--resume").exit_code == 1


@pytest.mark.parametrize("files", [["thesis.tex"], ["log.jsonl"], ["checkpoints/000000000007/photo"]])
def test_overwrite_never_touches_a_folder_that_is_not_a_runs(reverie, tmp_path, files, short):
    for name in files:
        (tmp_path / "here" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "here" / name).write_text("mine")
    result = reverie("train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--out", "here", "--overwrite", *short)
    assert result.exit_code == 2
    assert "is not the folder of a run" in result.stderr or "is not a checkpoint of a run" in result.stderr
    assert [path.read_text() for path in (tmp_path / "here").rglob("*") if path.is_file()] == ["mine"] * len(files)


def test_a_file_in_the_place_of_the_folder_is_refused(reverie, tmp_path, short):
    (tmp_path / "here").write_text("mine")
    result = reverie("train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--out", "here", "--overwrite", *short)
    assert result.exit_code == 2
    assert "here is not the folder of a run" in result.stderr


def test_a_checkpoint_that_does_not_fit_a_learner_in_a_process_is_refused_in_one_line(capsys, tmp_path):
    with pytest.raises(typer.Exit) as ended, exits.run_errors_reported(tmp_path):
        raise runners.RoleError("learner", "ParameterError", "network critic lacks the weight head.bias", "Traceback")
    assert ended.value.exit_code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "network critic lacks the weight head.bias" in line


@pytest.mark.parametrize(("kind", "lines"), [("OSError", 1), ("ValueError", 3)])
def test_a_role_that_a_full_disk_ends_is_reported_without_its_traceback(capsys, tmp_path, kind, lines):
    text = f"[Errno {errno.ENOSPC}] No space left on device: '/dev/shm/reverie/weights.0'"
    with pytest.raises(typer.Exit) as ended, exits.run_errors_reported(tmp_path):
        raise runners.RoleError("learner", kind, text, "Traceback\n  in put\n")
    assert ended.value.exit_code == 3
    printed = capsys.readouterr().err.splitlines()
    assert len(printed) == lines
    assert printed[-1] == f"reverie: learner: {kind}: {text}"


def test_a_folder_with_another_run_is_named_with_what_it_holds(reverie, here):
    for other in (["ppo", "--env", "CartPole-v1"], ["dqn", "--env", "CartPole-v1", "--seed", 1]):
        refused = reverie("train", *other, "--no-tensorboard", "--out", "here", "--resume")
        assert refused.exit_code == 2
        assert "here holds a run of dqn on CartPole-v1 with seed 0, and this one is of " in refused.stderr


def test_a_run_killed_before_its_first_checkpoint_starts_again_and_reports_it(reverie, tmp_path, short):
    command = ["train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--out", "here", *short]
    assert reverie(*command, "--set", "n_step=2").exit_code == 1
    shutil.rmtree(tmp_path / "here/checkpoints")
    assert "here holds a run" in reverie(*command).stderr
    again = reverie(*command, "--resume")
    assert again.exit_code == 1, again.stderr
    assert "here has no checkpoint yet: the run starts from the beginning" in again.stderr
    assert "resuming" not in again.stdout
    read = logs.read(Path("here"))
    assert [round(step, -2) for step in read.env_steps] == [500, 1_000, 1_300]
    assert "n_step = 2" in Path("here/preset.toml").read_text(), "the settings are still those of the run"
    assert reverie(*command, "--resume", "--max-steps", 1500).exit_code == 1, "and now there is a checkpoint"
