"""`reverie train --log`: the logs of a run's scalars, chosen by flags, by the preset and by the run that continues."""

import importlib.util
import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("typer")


from reverie.agents import presets
from reverie.agents.dqn import agent as dqn
from reverie.agents.log_settings import LogSettings
from reverie.cli import log_choice
from reverie.cli.train_request import TrainRequest
from reverie.runners.reports import scalar_logs
from reverie.runners.reports.calls import BackgroundCalls
from reverie.runners.reports.sinks.sink import RunDescription, save_identity

TRAIN = ["train", "dqn", "--env", "CartPole-v1", "--out", "here"]
SHORT = ["--set", "max_env_steps=1100", "--set", "evaluate_every=500"]
SHORT += ["--set", "screening_episodes=2", "--set", "confirmation_episodes=3"]


@pytest.fixture
def all_installed(monkeypatch):
    monkeypatch.setattr(log_choice, "_installed", lambda name: True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--log", "wanbd"], "--log is 'wanbd': there is no log 'wanbd'; did you mean wandb?"),
        (["--log", "x"], "there is no log 'x'; known are tensorboard, wandb, mlflow"),
        (["--log", "mlflow,mlflow"], "name each once"),
        (["--log", ","], "--log is ',': name some of tensorboard, wandb, mlflow, or write --no-tensorboard"),
        (["--log", "tensorboard", "--no-tensorboard"], "--log is tensorboard, and --no-tensorboard excludes it"),
    ],
)
def test_logs_that_cannot_be_are_refused_before_the_run(reverie, tmp_path, options, words):
    result = reverie(*TRAIN, *options)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert words in line
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
@pytest.mark.parametrize("more", [[], ["--seeds", "0-1"]])
def test_a_log_that_is_not_installed_is_refused_with_its_extra(reverie, monkeypatch, name, more):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda one: None if one == name else find(one))
    result = reverie(*TRAIN, "--log", name, *more)
    assert result.exit_code == 2
    assert result.stderr == f'reverie: {name} is not installed: pip install "reverie[{name}]"\n'


def test_logs_come_from_flags_then_the_preset_then_the_run_that_continues(tmp_path, all_installed):
    request = TrainRequest(agent="dqn", env="CartPole-v1")
    plain = dqn.load_preset("CartPole-v1")
    path = tmp_path / "mine.toml"
    path.write_text(presets.dump(plain) + '\n[log]\nto = ["wandb"]\nproject = "ours"\ntags = ["a", "b"]\n')
    mine = dqn.load_preset("CartPole-v1", path)
    assert mine.log == LogSettings(("wandb",), "ours", ("a", "b"))
    path.write_text(presets.dump(mine))
    assert dqn.load_preset("CartPole-v1", path) == mine, "the run's preset.toml has them"

    def chosen(preset=plain, continued=None, **options):
        return log_choice.choose(TrainRequest(**{**vars(request), **options}), preset, continued)

    assert chosen().to == ("tensorboard",)
    assert chosen(tensorboard=False).to == ()
    assert chosen(mine) == mine.log
    assert chosen(mine, tensorboard=True).to == ("tensorboard", "wandb")
    assert chosen(mine, log=("mlflow",), project="theirs", tags=("c",)) == LogSettings(("mlflow",), "theirs", ("c",))
    save_identity(tmp_path, "mlflow", run_id="abc")
    assert chosen(continued=tmp_path).to == ("tensorboard", "mlflow")
    assert chosen(continued=tmp_path, log=("wandb",)).to == ("wandb",)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('to = ["wanbd"]', "there is no log 'wanbd'; did you mean wandb?"),
        ('to = "wandb"', "[log] to is 'wandb', and must be a list of words"),
        ("too = []", "[log] has an unknown setting 'too'; did you mean to?"),
    ],
)
def test_an_invalid_table_of_logs_in_a_preset_is_refused_by_name(tmp_path, table, words):
    path = tmp_path / "mine.toml"
    path.write_text(presets.dump(dqn.load_preset("CartPole-v1")) + f"\n[log]\n{table}\n")
    with pytest.raises(presets.PresetError) as error:
        dqn.load_preset("CartPole-v1", path)
    assert words in str(error.value)


class Broken:
    """A sink whose service is away."""

    where = ""

    def __getattr__(self, name):
        def call(*arguments):
            raise ConnectionError("no route to host")

        return call


@pytest.mark.long
def test_a_log_whose_service_is_away_warns_once_and_the_run_goes_on(reverie, tmp_path, monkeypatch, all_installed):
    def broken(folder, *, experiment, tags):
        assert (folder.name, experiment, tags) == ("here", "ours", ("paper",))
        return scalar_logs.ScalarLog(Broken(), "mlflow", BackgroundCalls())

    monkeypatch.setattr(scalar_logs, "MLflow", broken)
    result = reverie(*TRAIN, "--log", "mlflow", "--project", "ours", "--tag", "paper", *SHORT, "--json")
    assert result.exit_code == 1, result.stderr
    assert result.stderr.count("mlflow cannot be written: no route to host; the run does not depend on it") == 1
    assert '"confirmed": false' in result.stdout
    assert 'to = ["mlflow"]' in (tmp_path / "here/preset.toml").read_text()


@pytest.mark.long
def test_an_evaluation_is_logged_only_where_the_run_was(reverie):
    assert reverie(*TRAIN, *SHORT, "--no-tensorboard").exit_code == 1
    refused = reverie("eval", "here", "--log")
    assert refused.exit_code == 2
    assert refused.stderr.startswith("reverie: here has no log in wandb or mlflow: name the folder of a run")


def test_scalars_that_are_added_later_leave_the_outcome_of_a_run(tmp_path):
    class Sink(Broken):
        calls = ()

        def __getattr__(self, name):
            return lambda *arguments: setattr(self, "calls", (*self.calls, (name, *arguments)))

    film, run = tmp_path / "film.mp4", RunDescription("here", {}, 900)
    film.write_bytes(b"film")
    for ended, outcome in ((True, "finished"), (False, "stopped")):
        log = scalar_logs.ScalarLog(sink := Sink(), "mlflow", BackgroundCalls())
        log.add_later(run, {"return/evaluated": 7.0}, [film], ended=ended)
        assert sink.calls == (
            ("begin", run),
            ("add_scalars", 900, {"return/evaluated": 7.0}),
            ("add_file", 900, film),
            ("close", outcome),
        )


@pytest.mark.long
@pytest.mark.xdist_group("mlflow")
def test_a_run_and_its_continuation_are_one_run_of_mlflow_with_its_plot(reverie, tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="reverie[mlflow] is not installed")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    result = reverie(*TRAIN, "--log", "mlflow", "--project", "ours", "--tag", "paper", *SHORT)
    assert result.exit_code == 1, result.stderr
    assert f"mlflow: sqlite:///{tmp_path / 'mlflow.db'}, experiment ours, run " in result.stdout
    assert reverie(*TRAIN, "--resume", "--no-tensorboard", "--max-steps", 1600, "--json").exit_code == 1

    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name("ours").experiment_id])
    steps = [one.step for one in client.get_metric_history(run.info.run_id, "return/greedy")]
    assert [round(step, -2) for step in steps] == [500, 1000, 1100, 1500, 1600]
    assert run.data.tags["changed.max_env_steps"].startswith("1600 from step 11")
    assert {"curve.png", "preset.toml", "summary.json"} == {one.path for one in client.list_artifacts(run.info.run_id)}

    evaluated = reverie("eval", "here", "--episodes", 2, "--log", "--json")
    assert evaluated.exit_code == 0, evaluated.stderr
    (again,) = client.search_runs([run.info.experiment_id])
    assert again.data.metrics["return/evaluated"] == json.loads(evaluated.stdout)["mean_return"]
    assert again.info.status == "FINISHED"
    assert again.data.tags.keys() == run.data.tags.keys(), "nothing else changes"
