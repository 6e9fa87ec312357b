"""`reverie search`: trials of settings, each an ordinary run, in a study that can be resumed."""

import json
import threading
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("typer")
pytest.importorskip("optuna", reason="reverie[search] is not installed")
import optuna

from reverie.cli import search_report, search_trials
from reverie.cli.run_processes import RunProcesses
from reverie.cli.search_objective import SearchObjective, whole_curve
from reverie.runners.reports.logs import RunLog

SEARCH = ["search", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--no-check-memory"]
SPACE = ["--search", "n_step=int:1:5", "--search", "lr=log:1e-4:1e-2"]
STEPS = ["--max-steps", "900", "--set", "evaluate_every=300"]
STEPS += ["--set", "screening_episodes=2", "--set", "confirmation_episodes=3"]


def settings(request):
    return dict(one.split("=", 1) for one in request.settings)


def write_log(request, returns, *, finished=True, confirmed=False):
    """The log of a run whose greedy returns are these."""
    started = {"event": "started", "env_steps": 0, "agent": "dqn", "env_id": "CartPole-v1", "target_return": 475.0}
    lines = [{**started, "seed": request.seed, "config": {}}]
    for count, value in enumerate(returns, 1):
        lines.append({"event": "evaluated", "env_steps": 300 * count, "seconds": 1.0, "mean_return": value})
    if finished:
        end = {"env_steps": 900, "confirmed": confirmed, "mean_return": returns[-1], "seconds": 1.0, "num_episodes": 20}
        lines.append({"event": "finished", **end})
    request.out.mkdir(parents=True, exist_ok=True)
    (request.out / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def score_of(settings):
    return 10.0 * int(settings["n_step"]) + float(settings["learning_rate"])


class Runs:
    """Runs that take no time: their return is high for a high n_step, and higher for each seed."""

    def __init__(self, monkeypatch):
        self.asked = []
        monkeypatch.setattr(RunProcesses, "train", lambda processes, request: self.train(request))

    def train(self, request):
        self.asked.append(request)
        score = score_of(settings(request)) + request.seed
        write_log(request, [1.0, score + 5, score])
        return 1, {"confirmed": False}


@pytest.fixture
def runs(monkeypatch):
    return Runs(monkeypatch)


def test_objectives_are_of_the_curve_and_a_confirmed_run_keeps_its_return():
    assert [one.of([1.0, 9.0, 5.0]) for one in (SearchObjective.last, SearchObjective.best, SearchObjective.mean)] == [
        5.0,
        9.0,
        5.0,
    ]
    with pytest.raises(ValueError, match="without evaluations"):
        SearchObjective.last.of([])
    end = {"confirmed": True, "mean_return": 480.0}
    log = RunLog(Path(), "dqn", "CartPole-v1", 0, 475.0, (300, 600), (10.0, 490.0), end)
    assert whole_curve(log, 4) == [10.0, 490.0, 480.0, 480.0]
    assert whole_curve(RunLog(Path(), "dqn", "CartPole-v1", 0, 475.0, (300,), (10.0,), None), 4) == [10.0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "search space: it is empty"),
        (["--search", "n_stp=int:1:5"], "reverie: dqn has no setting 'n_stp'; did you mean n_step?"),
        (["--search", "n_step=int:0:5"], "settings of dqn: with n_step=0: n_step is 0, and must be at least 1"),
        ([*SPACE, "--set", "n_step=3"], "n_step has a value by --set and a range in the search space"),
        (["--search", "max_env_steps=int:1:5", "--max-steps", "900000"], "max_env_steps has a value by --max-steps"),
        (["--search", "evaluate_every=int:1:5"], "evaluate_every sets when runs are evaluated"),
        (["--search", "time_limit=int:1:5"], "time_limit sets what evaluations play, and is the same for all trials"),
        (["--search", "evaluation_env=choice:A-v0,B-v0"], "evaluation_env sets what evaluations play, and is the same"),
        (["--search", "frame_stack=int:2:4", "--set", "frame_stack=3"], "frame_stack has a value by --set and a range"),
        ([*SPACE, "--space", "nowhere.toml"], "nowhere.toml: no such file or directory"),
        ([*SPACE, "--seeds", "2-1"], "seeds are '2-1'"),
        ([*SPACE, "--set", "n_stp=3"], "did you mean n_step?"),
        ([*SPACE, "--address", "auto"], "--address is for a Ray cluster, and --runner is local"),
    ],
)
def test_an_invalid_search_is_refused_before_any_run(reverie, runs, tmp_path, options, words):
    result = reverie(*SEARCH, *options)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert words in line
    assert runs.asked == []
    assert list(tmp_path.iterdir()) == []


def test_a_search_has_settings_of_the_environment_and_prints_a_command_for_a_shell(reverie, runs, tmp_path):
    env_id = "CartPole-v1(sutton_barto_reward=False)"
    fixed = ("--set", "normalise_rewards=true", *STEPS, "--trials", 1)
    result = reverie("search", "dqn", "--env", env_id, *fixed, *SPACE, "--search", "frame_stack=int:2:3", "--out", "s")
    assert result.exit_code == 0, result.stderr
    (asked,) = runs.asked
    assert "normalise_rewards=true" in asked.settings
    best = tomllib.loads((tmp_path / "s" / "best.toml").read_text())
    assert best["environment"]["normalise_rewards"] is True
    assert f"frame_stack={best['environment']['frame_stack']}" in asked.settings
    assert f"  reverie train dqn --env '{env_id}' --config s/best.toml --seeds 1-5" in result.stdout


def test_a_trial_without_a_result_has_a_line_of_its_own():
    row = {"trial": 3, "value": None, "state": "no result", "env_steps": None, "settings": {"n_step": "2"}}
    assert search_report.line(row) == "trial 3: no result; n_step 2"
    assert (
        search_report.line({**row, "state": "pruned", "value": 1.0, "env_steps": 400})
        == "trial 3: 1.0, pruned after 400 steps; n_step 2"
    )
    assert search_report.line({**row, "state": "pruned"}) == "trial 3: pruned after 0 steps; n_step 2"


@pytest.mark.long
def test_a_search_finds_the_best_settings_and_writes_them_as_a_preset(reverie, runs, tmp_path):
    result = reverie(*SEARCH, *SPACE, *STEPS, "--trials", 6, "--seeds", "0-1", "--jobs", 2, "--out", "s", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    assert len(found["trials"]) == 6
    values = [trial["value"] for trial in found["trials"] if trial["state"] == "complete"]
    assert values == sorted(values, reverse=True)
    best = found["best"]
    assert best == found["trials"][0]
    assert best["value"] == pytest.approx(score_of(best["settings"]) + 0.5), "the mean over both seeds"
    preset = tomllib.loads((tmp_path / found["preset"]).read_text())
    assert preset["agent"]["n_step"] == int(best["settings"]["n_step"])
    assert preset["agent"]["learning_rate"] == float(best["settings"]["learning_rate"])
    assert preset["run"]["max_env_steps"] == 900
    assert set(found["importances"]) == {"n_step", "learning_rate"}
    assert sum(found["importances"].values()) == pytest.approx(1.0, abs=1e-3)
    assert {one.out.parent.name for one in runs.asked} == {f"trial-{number}" for number in range(6)}
    assert "reverie train dqn --env CartPole-v1 --config s/best.toml --seeds 2-6" in result.stderr, "other seeds"
    plan = reverie("train", "dqn", "--env", "CartPole-v1", "--config", "s/best.toml", "--dry-run")
    assert plan.exit_code == 0, plan.stderr


@pytest.mark.long
def test_the_same_search_draws_the_same_trials_and_random_ones_differ_from_tpe(reverie, runs):
    drawn = []
    for number, options in enumerate([[], [], ["--sampler-seed", 1], ["--sampler", "random"]]):
        assert reverie(*SEARCH, *SPACE, *STEPS, "--trials", 11, "--out", f"s{number}", *options).exit_code == 0
        drawn.append([settings(one) for one in runs.asked])
        runs.asked.clear()
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]
    assert drawn[0] != drawn[3]


@pytest.mark.long
def test_a_resumed_search_continues_and_another_one_in_its_folder_is_refused(reverie, runs):
    command = [*SEARCH, *SPACE, *STEPS, "--out", "s", "--sampler", "random"]
    assert reverie(*command, "--trials", 3).exit_code == 0
    assert "s holds a search: continue it with --resume" in reverie(*command, "--trials", 3).stderr
    first = [settings(one) for one in runs.asked]
    runs.asked.clear()
    assert reverie(*command, "--trials", 3, "--resume").exit_code == 0
    assert runs.asked == []
    result = reverie(*command, "--trials", 5, "--resume", "--json")
    assert len(json.loads(result.stdout.splitlines()[-1])["trials"]) == 5
    assert [one.out.name for one in runs.asked] == ["trial-3", "trial-4"]
    assert not any(settings(one) in first for one in runs.asked), "the sampler does not begin from its seed again"
    for options, words in (
        (["--objective", "best"], "with --objective last, and this one has best"),
        (["--seeds", "0-1"], "with --seeds [0], and this one has [0, 1]"),
        (["--search", "n_step=int:1:9"], "with another space"),
        (["--set", "discount=0.5"], "with other settings of the preset"),
    ):
        refused = reverie(*command, "--trials", 6, "--resume", *options)
        assert refused.exit_code == 2
        assert f"s holds a search {words}" in refused.stderr


TWO_BY_TWO = ["--search", "n_step=choice:1,3", "--search", "lr=choice:0.001,0.01"]


def drawn(runs):
    return [(settings(one)["n_step"], settings(one)["learning_rate"]) for one in runs.asked]


def test_a_grid_tries_each_combination_once_and_ends(reverie, runs):
    grid = [*SEARCH, *STEPS, "--sampler", "grid", "--search", "n_step=int:1:5:2", "--search", "lr=float:0.1:0.3:0.1"]
    result = reverie(*grid, "--trials", 20, "--jobs", 2, "--pruner", "hyperband", "--out", "s")
    assert result.exit_code == 0, result.stderr
    every = {(n_step, lr) for n_step in ("1", "3", "5") for lr in ("0.1", "0.2", "0.3")}
    assert len(runs.asked) == 9
    assert set(drawn(runs)) == every
    assert "reverie: all 9 combinations of the search space were tried: the search ends after 9 of 20" in result.stderr


@pytest.mark.long
def test_a_resumed_grid_continues_where_it_ended_and_its_order_is_that_of_its_seed(reverie, monkeypatch, runs):
    grid = [*SEARCH, *STEPS, "--sampler", "grid", "--search", "n_step=int:1:3", "--search", "lr=choice:0.001,0.01"]
    assert reverie(*grid, "--trials", 6, "--out", "whole").exit_code == 0
    whole = drawn(runs)
    runs.asked.clear()
    work = runs.train

    def interrupt(request):
        write_log(request, [1.0], finished=False)
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "train", lambda request: work(request) if request.trial < 2 else interrupt(request))
    assert reverie(*grid, "--trials", 4, "--out", "s").exit_code == 130
    monkeypatch.setattr(runs, "train", work)
    result = reverie(*grid, "--trials", 4, "--out", "s", "--resume")
    assert result.exit_code == 0, result.stderr
    assert "4 of 6 combinations of the search space were tried; --resume with more --trials continues" in result.stderr
    result = reverie(*grid, "--trials", 9, "--out", "s", "--resume")
    assert drawn(runs) == whole
    assert "all 6 combinations of the search space were tried: the search ends after 6 of 9 trials" in result.stderr
    result = reverie(*grid, "--trials", 9, "--out", "s", "--resume", "--sampler-seed", 5)
    assert (result.exit_code, len(runs.asked)) == (0, 6)
    runs.asked.clear()
    assert reverie(*grid, "--trials", 6, "--out", "other", "--sampler-seed", 5).exit_code == 0
    assert sorted(drawn(runs)) == sorted(whole)
    assert drawn(runs) != whole


def test_a_grid_over_a_range_without_steps_is_refused_by_its_name(reverie, runs, tmp_path):
    result = reverie(*SEARCH, "--sampler", "grid", *SPACE)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "search space: lr has no steps, and --sampler grid tries each value: write lr=choice:ONE,TWO" in line
    assert runs.asked == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_no_sampler_trains_the_same_settings_twice_and_a_small_space_ends_the_search(reverie, runs, sampler):
    command = [*SEARCH, *STEPS, *TWO_BY_TWO, "--sampler", sampler, "--out", "s"]
    assert reverie(*command, "--trials", 3, "--jobs", 2).exit_code == 0
    result = reverie(*command, "--trials", 30, "--resume", "--json")
    assert result.exit_code == 0, result.stderr
    assert sorted(drawn(runs)) == [("1", "0.001"), ("1", "0.01"), ("3", "0.001"), ("3", "0.01")]
    trials = json.loads(result.stdout.splitlines()[-1])["trials"]
    assert sorted(one["trial"] for one in trials) == [0, 1, 2, 3], "a repeat takes no number"
    assert "reverie: all 4 combinations of the search space were tried: the search ends after 4 of 30" in result.stderr


def test_a_sampler_that_keeps_to_its_best_settings_goes_on_with_untried_ones(reverie, monkeypatch, runs):
    monkeypatch.setattr(
        optuna.samplers.TPESampler,
        "sample_independent",
        lambda self, study, trial, name, distribution: distribution.choices[0],
    )
    result = reverie(*SEARCH, *STEPS, *TWO_BY_TWO, "--trials", 3, "--out", "s")
    assert result.exit_code == 0, result.stderr
    assert len(set(drawn(runs))) == len(runs.asked) == 3
    assert drawn(runs)[0] == ("1", "0.001")
    line = "reverie: tpe drew the settings of trial 0 again, which are not trained twice: trial 1 has others"
    assert line in result.stderr.splitlines()


@pytest.mark.long
def test_a_trial_without_a_result_is_not_tried_again_in_the_same_search(reverie, monkeypatch, runs):
    work = runs.train
    monkeypatch.setattr(runs, "train", lambda request: (2, None) if request.trial == 1 else work(request))
    result = reverie(*SEARCH, *STEPS, *TWO_BY_TWO, "--trials", 9, "--sampler", "random", "--out", "s")
    assert result.exit_code == 0, result.stderr
    assert len(runs.asked) == 3
    assert "all 4 combinations of the search space were tried" in result.stderr


@pytest.mark.long
def test_trials_that_give_no_result_are_left_out_and_too_many_in_a_row_end_the_search(reverie, monkeypatch, runs):
    work = runs.train
    monkeypatch.setattr(runs, "train", lambda request: (2, None) if request.trial in (0, 2) else work(request))
    result = reverie(*SEARCH, *SPACE, *STEPS, "--trials", 4, "--out", "s", "--json")
    assert result.exit_code == 0, result.stderr
    trials = json.loads(result.stdout.splitlines()[-1])["trials"]
    assert [one["state"] for one in trials] == ["complete", "complete", "no result", "no result"]
    monkeypatch.setattr(runs, "train", lambda request: (2, None))
    result = reverie(*SEARCH, *SPACE, *STEPS, "--trials", 40, "--out", "other")
    assert result.exit_code == 1
    assert "none of 5 trials was completed" in result.stderr
    assert "5 trials in a row gave no result" in result.stderr


@pytest.mark.long
def test_a_pruner_ends_a_trial_by_its_evaluations_and_its_run_is_asked_to_save(reverie, monkeypatch, runs):
    asked, interrupted, asked_to_end = [], [], threading.Event()

    def train(request):
        asked.append(request)
        if request.trial < 5:  # the median pruner waits for five trials
            write_log(request, [100.0, 100.0, 100.0])
            return 1, {"confirmed": False}
        write_log(request, [1.0], finished=False)
        return (130, None) if asked_to_end.wait(200) else (1, None)

    monkeypatch.setattr(runs, "train", train)
    monkeypatch.setattr(search_trials, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(
        RunProcesses, "interrupt", lambda processes, name: (interrupted.append(name), asked_to_end.set())
    )
    result = reverie(*SEARCH, *SPACE, *STEPS, "--trials", 6, "--seeds", "0-1", "--out", "s", "--json")
    assert result.exit_code == 0, result.stderr
    last = json.loads(result.stdout.splitlines()[-1])["trials"][-1]
    assert (last["trial"], last["state"], last["env_steps"]) == (5, "pruned", 300)
    assert interrupted == ["trial 5, seed 0"]
    assert [one.seed for one in asked if one.trial == 5] == [0], "the second seed does not begin"
    study = optuna.load_study(study_name="search", storage="sqlite:///s/study.db")
    steps = [300, 600, 900, 1200, 1500, 1800]
    assert list(study.trials[0].intermediate_values) == steps, "the second seed counts from the steps of the first"


@pytest.mark.long
def test_an_interrupted_trial_is_tried_again_in_its_folder(reverie, monkeypatch, runs, tmp_path):
    work = runs.train

    def interrupt(request):
        write_log(request, [1.0], finished=False)
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "train", lambda request: work(request) if request.trial < 2 else interrupt(request))
    command = [*SEARCH, *SPACE, *STEPS, "--trials", 4, "--out", "s"]
    result = reverie(*command)
    assert result.exit_code == 130
    assert "interrupted after 2 of 4 trials; the same command with --resume continues" in result.stderr
    monkeypatch.setattr(runs, "train", work)
    runs.asked.clear()
    result = reverie(*command, "--resume", "--json")
    assert result.exit_code == 0, result.stderr
    assert [(one.out.name, bool(one.resume)) for one in runs.asked] == [("trial-2", True), ("trial-4", False)]
    assert len(json.loads(result.stdout.splitlines()[-1])["trials"]) == 4
    study = optuna.load_study(study_name="search", storage="sqlite:///s/study.db")
    assert study.trials[3].params == study.trials[2].params


def test_a_storage_that_cannot_be_opened_is_refused_by_its_path(reverie, runs, tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s/study.db").write_text("no database" * 1_000)
    result = reverie(*SEARCH, *SPACE, *STEPS, "--out", "s", "--resume")
    assert result.exit_code == 2
    assert "reverie: the search's storage s/study.db cannot be opened: " in result.stderr
    assert runs.asked == []


def test_without_optuna_its_extra_is_named(reverie, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    result = reverie(*SEARCH, *SPACE)
    assert result.exit_code == 2
    assert result.stderr == 'reverie: optuna is not installed: pip install "reverie[search]"\n'


@pytest.mark.long
def test_a_search_trains_and_its_best_preset_trains_again(reverie, tmp_path):
    result = reverie(*SEARCH, *SPACE, *STEPS, "--trials", 2, "--jobs", 2, "--out", "s", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    for trial in found["trials"]:
        folder = tmp_path / trial["folder"]
        assert f"n_step = {trial['settings']['n_step']}" in (folder / "preset.toml").read_text()
        assert (folder / "curve.png").is_file()
    again = reverie("train", "dqn", "--env", "CartPole-v1", "--config", found["preset"], "--no-tensorboard", "--json")
    assert again.exit_code == 1, again.stderr
    assert json.loads(again.stdout.splitlines()[-1])["env_steps"] >= 900
