import dataclasses
import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from reverie import agents
from reverie.agents.core import RunSettings
from reverie.runners import Finished, Progress, Saved, Started, plan, train
from reverie.runners.reports import logs, scalar_logs
from reverie.runners.reports.event_files import EventFile
from reverie.runners.reports.sparse_events import SparseEvents

SHORT = RunSettings(
    target_return=475.0,
    max_env_steps=1_200,
    evaluate_every=500,
    checkpoint_every=600,
    screening_episodes=1,
    confirmation_episodes=1,
)


def run(place, **options):
    log = logs.JsonLines(place / logs.LOG)
    try:
        return train(agents.find("dqn"), "CartPole-v1", on_event=log, **{"run": SHORT, **options})
    finally:
        log.close()


def test_a_log_records_the_run_and_reads_back_as_its_curve(tmp_path):
    result = run(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / logs.LOG).read_text().splitlines()]
    assert [line["event"] for line in lines if line["event"] != "progress"] == [
        "started",
        "evaluated",
        "evaluated",
        "evaluated",
        "finished",
    ]
    assert lines[0]["config"]["learning_rate"] == result.topology.config.learning_rate
    progress = next(line for line in lines if line["event"] == "progress")
    before_the_end = lines[[line["event"] for line in lines].index("finished") - 1]
    assert before_the_end["event"] == "progress", "however short the run, its last figures are in the log"
    assert before_the_end["env_steps"] == lines[-1]["env_steps"]
    assert {"env_steps", "updates", "training_return", "samples_per_insert", "learner"} <= set(progress)
    read = logs.read(tmp_path)
    assert (read.agent, read.env_id, read.seed, read.target_return) == ("dqn", "CartPole-v1", 0, 475.0)
    assert read.env_steps == tuple(point.env_steps for point in result.curve)
    assert read.returns == tuple(point.mean_return for point in result.curve)
    assert read.finished["mean_return"] == result.evaluation.mean_return


@pytest.mark.long
def test_a_resumed_run_logs_each_point_once_even_after_points_beyond_its_checkpoint(tmp_path):
    folder = tmp_path / "checkpoints"
    run(tmp_path, folder=folder)
    first = logs.read(tmp_path)
    older = min((folder / "checkpoints").iterdir())
    result = run(tmp_path, resume=older, run=dataclasses.replace(SHORT, max_env_steps=1_600))
    again = logs.read(tmp_path)
    assert again.env_steps == tuple(point.env_steps for point in result.curve)
    assert again.returns == tuple(point.mean_return for point in result.curve)
    assert again.env_steps[0] == first.env_steps[0]
    assert (again.finished or {})["env_steps"] == result.env_steps


@pytest.mark.long
def test_a_new_run_overwrites_the_log(tmp_path):
    for _ in range(2):
        run(tmp_path)
    assert len(logs.read(tmp_path).returns) == 3


@pytest.mark.long
def test_a_line_torn_by_a_crash_is_left_out_and_a_damaged_one_is_named(tmp_path):
    run(tmp_path)
    whole = (tmp_path / logs.LOG).read_text()
    (tmp_path / logs.LOG).write_text(whole + '{"event": "evalu')
    assert len(logs.read(tmp_path).returns) == 3
    (tmp_path / logs.LOG).write_text("{]\n" + whole)
    with pytest.raises(logs.LogError, match=r"log\.jsonl is not JSON in line 1"):
        logs.read(tmp_path)
    (tmp_path / logs.LOG).write_text("[]\n")
    with pytest.raises(logs.LogError, match="has no JSON object in line 1"):
        logs.read(tmp_path)
    (tmp_path / logs.LOG).write_text("")
    with pytest.raises(logs.LogError, match="is not the log of a run: it has no line"):
        logs.read(tmp_path)


class Full:
    """A file on a disk that has room for so many bytes more."""

    def __init__(self, file, room):
        self._file, self.room = file, room

    def write(self, data):
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = self._file.write(data[: self.room])
        self.room -= taken
        return taken

    def __getattr__(self, name):
        return getattr(self._file, name)


def saved(env_steps):
    return Saved(env_steps, Path("somewhere"))


@pytest.mark.parametrize("room", [0, 17])
def test_a_full_disk_tears_no_line_and_the_next_line_counts_the_missing_ones(tmp_path, room):
    log = logs.JsonLines(tmp_path / logs.LOG)
    log(saved(1))
    log._file = full = Full(log._file, room)
    for step in (2, 3):
        log(saved(step))
        assert log.problem == "No space left on device"
        full.room = room
    full.room = 10_000
    log(saved(4))
    assert log.problem == ""
    log.close()
    lines = [json.loads(line) for line in (tmp_path / logs.LOG).read_text().splitlines()]
    assert [(line["event"], line["env_steps"]) for line in lines] == [("saved", 1), ("not written", 4), ("saved", 4)]
    assert lines[1]["lines"] == 2


@pytest.mark.long
def test_a_full_disk_at_a_resume_leaves_the_log_unchanged(tmp_path, monkeypatch):
    run(tmp_path)
    before = (tmp_path / logs.LOG).read_bytes()

    def full(path, data):
        path.open("wb").write(data[:5])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        run(tmp_path)
    assert (tmp_path / logs.LOG).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [logs.LOG]


@pytest.mark.long
def test_a_full_disk_does_not_end_training(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")

    def full(self, **fields):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(EventFile, "_add", full)
    board = scalar_logs.TensorBoard(tmp_path)
    result = train(agents.find("dqn"), "CartPole-v1", run=SHORT, on_event=board)
    board.close()
    assert result.env_steps >= SHORT.max_env_steps
    assert board.problem == "No space left on device"


@pytest.mark.parametrize("room", [0, 17])
def test_a_full_disk_tears_no_record_of_tensorboard_and_later_ones_are_read(tmp_path, room):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = scalar_logs.TensorBoard(tmp_path)
    board(Progress(1, 0, 0.0, None, {}, 1.0))
    board._sink.file._file = full = Full(board._sink.file._file, room)
    board(Progress(2, 0, 2.0, None, {}, 1.0))
    assert board.problem == "No space left on device"
    full.room = 10_000
    board(Progress(3, 0, 4.0, None, {}, 1.0))
    assert board.problem == ""
    board.close()
    accumulator = EventAccumulator(str(tmp_path))
    accumulator.Reload()
    assert [event.step for event in accumulator.Scalars("replay/samples_per_insert")] == [1, 3]


def test_a_resumed_run_purges_later_steps_of_its_older_files(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for after, steps in ((None, (1, 2, 3)), (2, (3, 4))):
        board = scalar_logs.TensorBoard(tmp_path, purge_after=after)
        for step in steps:
            board(Progress(step, 0, 2.0 * step, None, {}, float(after or 0)))
        board.close()
    accumulator = EventAccumulator(str(tmp_path))
    accumulator.Reload()
    assert [(event.step, event.value) for event in accumulator.Scalars("replay/samples_per_insert")] == [
        (1, 0.0), (2, 0.0), (3, 2.0), (4, 2.0),
    ]  # fmt: skip


@pytest.mark.long
def test_tensorflow_is_not_imported_where_it_is_installed(tmp_path):
    pytest.importorskip("tensorboard")
    package = tmp_path / "tensorflow"
    package.mkdir()
    (package / "__init__.py").write_text("import os\nos.abort()\n")  # as with LLVM's options, registered twice
    program = (
        "import pathlib\nfrom reverie.runners import Progress\nfrom reverie.runners.reports import scalar_logs\n"
        f"board = scalar_logs.TensorBoard(pathlib.Path({str(tmp_path / 'board')!r}))\n"
        "board(Progress(1, 0, 0.0, None, {}, 1.0))\nboard.close()\n"
    )
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    ended = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert list((tmp_path / "board").iterdir())


@pytest.mark.long
def test_tensorboard_gets_returns_and_the_learners_figures_by_environment_steps(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = scalar_logs.TensorBoard(tmp_path)
    result = train(agents.find("dqn"), "CartPole-v1", run=SHORT, on_event=board)
    board.close()
    accumulator = EventAccumulator(str(tmp_path))
    accumulator.Reload()
    greedy = [(event.step, event.value) for event in accumulator.Scalars("return/greedy")]
    assert greedy == [(p.env_steps, pytest.approx(p.mean_return)) for p in result.curve]
    assert accumulator.Scalars("learner/loss")[-1].step == result.env_steps
    assert accumulator.Scalars("replay/samples_per_insert")[-1].value > 0
    (final,) = accumulator.Scalars("return/final")
    assert (final.step, final.value) == (result.env_steps, pytest.approx(result.evaluation.mean_return))
    (settings,) = accumulator.Tensors("settings/text_summary")
    assert f"| learning_rate | {result.topology.config.learning_rate} |" in settings.tensor_proto.string_val[0].decode()


def test_tensorboard_gets_progress_once_a_second_and_rates_over_that_time(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = scalar_logs.TensorBoard(tmp_path / "board")
    assert not (tmp_path / "board").exists(), "a run that is refused leaves no files"
    topology = plan(agents.find("dqn"), "CartPole-v1")
    board(Started(topology))
    for tenth in range(31):
        board(Progress(100 * tenth, 10 * tenth, tenth / 10, None, {}, 1.0))
    board.close()
    accumulator = EventAccumulator(str(tmp_path / "board"))
    accumulator.Reload()
    assert [event.step for event in accumulator.Scalars("replay/samples_per_insert")] == [0, 1_000, 2_000, 3_000]
    for name, rate in (("env_steps", 1_000), ("trained_samples", 100 * topology.config.batch_size)):
        rates = accumulator.Scalars(f"speed/{name}_per_second")
        assert [event.value for event in rates] == [pytest.approx(rate)] * 3


def test_the_last_figures_are_written_before_the_end_once():
    sparse, early, late, last = SparseEvents(), *(Progress(step, 0, step / 2, None, {}, 1.0) for step in (0, 1, 2))
    end = Finished(None)
    assert [sparse(event) for event in (early, late, last, end)] == [[early], [], [last], [end]]
    sparse = SparseEvents()
    assert [sparse(event) for event in (early, late, end)] == [[early], [], [late, end]]


def test_without_tensorboard_its_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    with pytest.raises(ImportError, match=r'tensorboard is not installed: pip install "reverie\[tensorboard\]"'):
        scalar_logs.TensorBoard(tmp_path)
