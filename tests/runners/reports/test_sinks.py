"""Logs of scalars: the same events in TensorBoard's files, Weights & Biases (offline) and MLflow (SQLite)."""

import dataclasses
import json
import struct
import sys

import pytest

pytest.importorskip("torch")

from reverie import agents
from reverie.agents.core import RunSettings
from reverie.runners import CurvePoint, Evaluated, Evaluation, Finished, Progress, Result, Started, plan
from reverie.runners.reports import scalar_logs
from reverie.runners.reports.calls import BackgroundCalls
from reverie.runners.reports.sinks.sink import read_identity, save_identity, tracked_in

SHORT = RunSettings(target_return=475.0, max_env_steps=1_200, evaluate_every=500)


def course(*, learning_rate=1e-3, resumed=0, until=1_200):
    """The events of a run, as a runner emits them, without training."""
    preset = agents.find("dqn").load_preset("CartPole-v1")
    config = dataclasses.replace(preset.config, learning_rate=learning_rate)
    topology = plan(agents.find("dqn"), "CartPole-v1", seed=3, config=config, run=SHORT)
    curve = []
    yield Started(topology, resumed)
    for step in range(resumed + 100, until + 1, 100):
        yield Progress(step, step // 2, step / 50, step / 10, {"loss": 1 / step}, 8.0)
        if step % 500 == 0:
            curve.append(CurvePoint(step - 50, step / 50, step / 20))
            yield Evaluated(curve[-1], None)
    evaluation = Evaluation((1, 2), (30.0, 40.0))
    counts = {"inserts": 1.0, "samples": 8.0}
    yield Finished(
        Result(topology, until, until / 50, False, evaluation, tuple(curve), counts, {"updates": 600}, {}, None, None)
    )


def write(log, events, files=()):
    for event in events:
        log(event)
    log.add_files(files)
    log.close()
    assert log.problem == ""


class Recorder:
    """A sink that keeps what it gets, and fails where it is asked to."""

    where = ""

    def __init__(self, failing=()):
        self.got, self.failing = [], failing

    def __getattr__(self, name):
        def record(*arguments):
            self.got.append((name, *arguments))
            if name in self.failing:
                raise RuntimeError(f"{name} failed")

        return record


def test_a_sink_gets_the_run_its_scalars_its_result_and_its_files_and_is_closed_once(tmp_path):
    (tmp_path / "curve.png").write_bytes(b"picture")
    sink = Recorder()
    log = scalar_logs.ScalarLog(sink, "recorder", BackgroundCalls())
    write(log, course(), [tmp_path / "curve.png", tmp_path / "missing.mp4"])
    log.close()
    assert [name for name, *_ in sink.got if name != "add_scalars"] == ["begin", "add_summary", "add_file", "close"]
    run = sink.got[0][1]
    assert (run.name, run.env_steps) == ("dqn-CartPole-v1-seed-3", 0)
    assert (run.settings["agent"], run.settings["learning_rate"], run.settings["seed"]) == ("dqn", 1e-3, 3)
    scalars = [(step, values) for name, step, *values in sink.got if name == "add_scalars"]
    assert (450, [{"return/greedy": 25.0}]) in scalars
    assert scalars[-1] == (1_200, [{"return/final": 35.0}])
    assert ("add_file", 1_200, tmp_path / "curve.png") in sink.got
    assert sink.got[-1] == ("close", "finished")
    assert next(summary for name, _, summary in sink.got[-3:-2])["mean_return"] == 35.0


def test_a_run_that_ended_early_is_closed_as_stopped_or_as_failed():
    for failed, outcome in ((False, "stopped"), (True, "failed")):
        sink = Recorder()
        log = scalar_logs.ScalarLog(sink, "recorder", BackgroundCalls())
        log(next(course()))
        log.close(failed=failed)
        assert sink.got[-1] == ("close", outcome)


def test_a_sink_that_fails_does_not_end_the_run_and_one_that_could_not_begin_gets_nothing_else():
    for failing, names in (("begin", []), ("add_scalars", ["add_scalars"] * 2)):
        sink = Recorder([failing])
        log = scalar_logs.ScalarLog(sink, "recorder", BackgroundCalls())
        started, first, *_, last = (event for event in course() if not isinstance(event, Finished | Evaluated))
        for event in (started, first, last):
            log(event)
        log.close()
        assert log.problem == f"{failing} failed"
        assert [name for name, *_ in sink.got] == ["begin", *names, "close"]


def test_an_identity_that_cannot_be_read_is_none(tmp_path):
    assert read_identity(tmp_path, "wandb") == {}
    save_identity(tmp_path, "wandb", id="abc")
    assert read_identity(tmp_path, "wandb") == {"id": "abc"}
    assert tracked_in(tmp_path, ("tensorboard", "wandb", "mlflow")) == ("wandb",)
    (tmp_path / "tracking/wandb.json").write_text("{")
    assert read_identity(tmp_path, "wandb") == {}


def test_tensorboard_gets_the_result_and_the_plot(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    header = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + (640).to_bytes(4, "big") + (480).to_bytes(4, "big")
    for name, data in (("curve.png", header), ("preset.toml", b"x = 1")):
        (tmp_path / name).write_bytes(data)
    log = scalar_logs.TensorBoard(tmp_path / "board")
    write(log, course(), [tmp_path / "curve.png", tmp_path / "preset.toml"])
    accumulator = EventAccumulator(str(tmp_path / "board"))
    accumulator.Reload()
    (picture,) = accumulator.Images("curve")
    assert (picture.width, picture.height, picture.encoded_image_string) == (640, 480, header)
    (result,) = accumulator.Tensors("result/text_summary")
    assert "| mean_return | 35.0 |" in result.tensor_proto.string_val[0].decode()
    log = scalar_logs.TensorBoard(tmp_path / "board")
    (tmp_path / "curve.png").write_bytes(b"no picture")
    log.add_files([tmp_path / "curve.png"])
    assert log.problem == "picture curve is not a PNG"


@pytest.fixture
def mlflow_store(tmp_path, monkeypatch):
    """An empty store of MLflow; its client."""
    pytest.importorskip("mlflow", reason="reverie[mlflow] is not installed")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'store.db'}")
    monkeypatch.chdir(tmp_path)
    from mlflow.tracking import MlflowClient

    return MlflowClient


def only_run(client, experiment):
    (run,) = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    return run


@pytest.mark.long
@pytest.mark.xdist_group("mlflow")
def test_mlflow_gets_settings_scalars_result_and_files(mlflow_store, tmp_path):
    for name in ("curve.png", "preset.toml"):
        (tmp_path / name).write_bytes(b"contents")
    log = scalar_logs.MLflow(tmp_path, experiment="cartpole", tags=["paper"])
    write(log, course(), [tmp_path / "curve.png", tmp_path / "preset.toml"])
    client = mlflow_store()
    run = only_run(client, "cartpole")
    assert (run.info.run_name, run.info.status) == ("dqn-CartPole-v1-seed-3", "FINISHED")
    assert (run.data.params["learning_rate"], run.data.params["agent"]) == ("0.001", "dqn")
    assert (run.data.tags["folder"], run.data.tags["paper"]) == (str(tmp_path), "true")
    assert (run.data.tags["summary.confirmed"], run.data.metrics["return/final"]) == ("False", 35.0)
    greedy = client.get_metric_history(run.info.run_id, "return/greedy")
    assert [(one.step, one.value) for one in greedy] == [(450, 25.0), (950, 50.0)]
    assert {one.path for one in client.list_artifacts(run.info.run_id)} == {"curve.png", "preset.toml", "summary.json"}
    assert run.info.run_id in log.where


@pytest.mark.long
@pytest.mark.xdist_group("mlflow")
def test_a_resumed_run_continues_the_run_of_mlflow_and_a_new_run_begins_another(mlflow_store, tmp_path):
    stopped = scalar_logs.MLflow(tmp_path, experiment="cartpole")
    for event in list(course())[:8]:
        stopped(event)
    stopped.close()
    client = mlflow_store()
    before = only_run(client, "cartpole")
    assert before.info.status == "KILLED"
    write(scalar_logs.MLflow(tmp_path, experiment="another"), course(learning_rate=1e-4, resumed=600))
    run = only_run(client, "cartpole")
    assert (run.info.run_id, run.info.status) == (before.info.run_id, "FINISHED")
    assert client.get_experiment_by_name("another") is None
    assert (run.data.params["learning_rate"], run.data.tags["changed.learning_rate"]) == (
        "0.001",
        "0.0001 from step 600",
    )
    assert [one.step for one in client.get_metric_history(run.info.run_id, "return/greedy")] == [450, 950]
    write(scalar_logs.MLflow(tmp_path, experiment="another"), course())
    assert only_run(client, "another").info.run_id != run.info.run_id


@pytest.mark.long
@pytest.mark.xdist_group("mlflow")
def test_a_store_that_mlflow_refuses_is_a_problem_and_not_an_error(mlflow_store, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nowhere://a/b")
    log = scalar_logs.MLflow(tmp_path)
    for event in course():
        log(event)
    log.close()
    assert "nowhere" in log.problem


@pytest.fixture
def wandb_offline(monkeypatch):
    """Weights & Biases without a network; reads the records of the runs in a folder that it has not read before."""
    wandb = pytest.importorskip("wandb", reason="reverie[wandb] is not installed: 66 MB, and a process of its own")
    for name, value in {
        "MODE": "offline",
        "ERROR_REPORTING": "false",
        "PROJECT": "ours",
        "DISABLE_STATS": "true",
    }.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    from wandb.proto import wandb_internal_pb2

    def records(file):
        for data in parts(file.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            yield record

    read = set()

    def new_runs(folder):
        wandb.teardown()  # `Run.finish` does not wait for the end of the file: W&B's process writes it before it ends
        files = sorted(set(folder.glob("wandb/offline-run-*/run-*.wandb")) - read)
        read.update(files)
        return [list(records(file)) for file in files]

    yield new_runs
    wandb.teardown()


def parts(log):
    """The records of a log in LevelDB's format: blocks of 32 KiB, each part with checksum, length and type."""
    whole, at = b"", 7
    while at + 7 <= len(log):
        left = 2**15 - at % 2**15
        if left < 7:
            at += left
            continue
        size, kind = struct.unpack("<HB", log[at + 4 : at + 7])
        whole += log[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # full, or the last part
            yield whole
            whole = b""


def rows(records):
    """The history of a run: a dict for each row."""
    return [
        {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.HasField("history")
    ]


@pytest.mark.long
@pytest.mark.xdist_group("wandb")
def test_wandb_gets_settings_scalars_result_and_files_and_a_resumed_run_continues_it(wandb_offline, tmp_path):
    for name in ("preset.toml", "film.mp4"):
        (tmp_path / name).write_bytes(b"contents")
    log = scalar_logs.WeightsAndBiases(tmp_path, tags=["paper"])
    write(log, course(until=600), [tmp_path / "preset.toml", tmp_path / "film.mp4"])
    (first,) = wandb_offline(tmp_path)
    started = next(record.run for record in first if record.HasField("run"))
    assert (started.project, started.display_name) == ("ours", "dqn-CartPole-v1-seed-3")
    assert list(started.tags) == ["dqn", "CartPole-v1", "paper"]
    config = {item.key: json.loads(item.value_json) for item in started.config.update}
    assert (config["learning_rate"], config["seed"], config["folder"]) == (1e-3, 3, str(tmp_path))
    greedy = [(row["env_steps"], row["return/greedy"]) for row in rows(first) if "return/greedy" in row]
    assert greedy == [(450, 25.0)]
    assert any("film" in row for row in rows(first))
    assert list(tmp_path.glob("wandb/offline-run-*/files/preset.toml"))
    summary = {item.key: item.value_json for record in first for item in record.summary.update}
    assert summary["mean_return"] == "35.0"
    assert next(record.exit.exit_code for record in first if record.HasField("exit")) == 0

    identity = read_identity(tmp_path, "wandb")
    write(scalar_logs.WeightsAndBiases(tmp_path), course(resumed=600, learning_rate=1e-4))
    (again,) = wandb_offline(tmp_path)
    continued = next(record.run for record in again if record.HasField("run"))
    assert (continued.run_id, continued.project) == (identity["id"], "ours")
    assert min(row["_step"] for row in rows(again)) > max(row["_step"] for row in rows(first))
    write(scalar_logs.WeightsAndBiases(tmp_path), course(until=100))
    (new,) = wandb_offline(tmp_path)
    begun = next(record.run for record in new if record.HasField("run"))
    assert begun.run_id == read_identity(tmp_path, "wandb")["id"] != identity["id"], "a run that begins is a new one"


@pytest.mark.long
@pytest.mark.xdist_group("wandb")
def test_wandb_online_without_a_key_is_refused_before_the_run(wandb_offline, tmp_path, monkeypatch):
    monkeypatch.setattr("wandb.login", lambda **options: False)
    monkeypatch.setattr("wandb.setup", lambda: type("Setup", (), {"settings": type("S", (), {"mode": "online"})}))
    with pytest.raises(ValueError, match=r"wandb has no API key: run `wandb login`, or set WANDB_MODE=offline"):
        scalar_logs.WeightsAndBiases(tmp_path)


def test_without_a_package_its_extra_is_named(tmp_path, monkeypatch):
    for name, log in (("wandb", scalar_logs.WeightsAndBiases), ("mlflow", scalar_logs.MLflow)):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ImportError, match=rf'{name} is not installed: pip install "reverie\[{name}\]"'):
            log(tmp_path)
