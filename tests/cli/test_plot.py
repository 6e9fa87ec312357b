"""`reverie plot`: curves of runs from their logs."""

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("typer")
pytest.importorskip("matplotlib")

from reverie.cli.plot import XAxis, _panel, band, summary, variants
from reverie.runners.reports import logs


def log_of(folder, returns, seed=0, **config):
    started = {"event": "started", "env_steps": 0, "agent": "dqn", "env_id": "E-v0", "seed": seed, "config": config}
    lines = [{**started, "target_return": 5.0}]
    lines += [
        {"event": "evaluated", "env_steps": 10 * i, "seconds": float(i), "mean_return": value}
        for i, value in enumerate(returns, start=1)
    ]
    folder.mkdir(parents=True)
    (folder / logs.LOG).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.mark.long
def test_everything_in_the_folder_of_runs_can_be_plotted_again_and_again(reverie, tmp_path):
    log_of(tmp_path / "runs/one", [1.0, 2.0])
    log_of(tmp_path / "runs/sweep/seed-1", [3.0], seed=1)
    log_of(tmp_path / "runs/sweep/seed-2", [4.0], seed=2)
    log_of(tmp_path / "runs/begun", [], seed=3)
    for _ in range(2):  # the second time the first picture is among them
        result = reverie("plot", *sorted((tmp_path / "runs").iterdir()), tmp_path / "runs/one/log.jsonl")
        assert result.exit_code == 0, result.stderr
        assert [line.partition(":")[0] for line in result.stdout.splitlines()] == [
            "dqn on E-v0, seed 0",
            "dqn on E-v0, seed 1",
            "dqn on E-v0, seed 2",
            "learning curves",
        ]
        assert "begun/log.jsonl has no greedy evaluation yet, and is left out" in result.stderr
    assert "nothing to draw" in reverie("plot", "runs/begun").stderr


@pytest.mark.long
def test_folders_without_a_readable_log_are_left_out_of_a_plot_and_named(reverie, tmp_path):
    log_of(tmp_path / "runs/good", [1.0, 2.0])
    (tmp_path / "runs/empty").mkdir()
    for name, text in (
        ("broken", b"{]\n"),
        ("other", b"\xff\xfe\n"),
        ("null", (log_of(tmp_path / "null", [1.0]) / logs.LOG).read_bytes().replace(b"1.0", b"null")),
    ):
        (tmp_path / "runs" / name).mkdir()
        (tmp_path / "runs" / name / logs.LOG).write_bytes(text)
    (tmp_path / "runs/notes.txt").write_text("try a lower rate\n")
    result = reverie("plot", *sorted((tmp_path / "runs").iterdir()))
    assert result.exit_code == 0, result.stderr
    assert len(result.stdout.splitlines()) == 2
    lines = sorted(result.stderr.splitlines())
    assert len(lines) == 5
    for line, name in zip(lines, ("broken", "empty", "notes.txt", "null", "other"), strict=True):
        assert f"runs/{name}" in line
        assert line.endswith("; it is left out")
    for folder in ("empty", "broken"):
        alone = reverie("plot", f"runs/{folder}")
        assert alone.exit_code == 2
        assert f"log runs/{folder}/log.jsonl " in alone.stderr
    assert reverie("plot", "runs/empty", "runs/broken").exit_code == 2
    missing = reverie("plot", "runs/good", "runs/godo")
    assert missing.exit_code == 2
    assert "runs/godo does not exist" in missing.stderr


def test_a_curve_of_one_evaluation_is_drawn_as_a_dot():
    from matplotlib.figure import Figure

    def markers(*runs):
        axes = Figure().subplots()
        _panel(axes, "E-v0", runs, XAxis.steps)
        return [line.get_marker() for line in axes.lines if len(line.get_xdata()) and line.get_linestyle() == "-"]

    assert markers(curve_of([10], [1])) == ["o"]
    assert markers(curve_of([10, 20], [1, 2])) == ["None"]
    assert "o" in markers(curve_of([10], [1]), curve_of([10], [3], seed=1))[2:]


@pytest.mark.long
def test_a_seed_counts_once_by_the_run_with_the_most_steps(reverie, tmp_path):
    log_of(tmp_path / "runs/short", [1.0], seed=1)
    log_of(tmp_path / "runs/long", [1.0, 2.0], seed=1)
    log_of(tmp_path / "runs/other", [1.0], seed=2)
    log_of(tmp_path / "runs/settings", [1.0], seed=1, n_step=3)
    for names in (("short", "long", "other", "settings"), ("settings", "other", "long", "short")):
        result = reverie("plot", *(f"runs/{name}" for name in names))
        assert result.exit_code == 0, result.stderr
        (line,) = result.stderr.splitlines()
        assert "log runs/short/log.jsonl has the agent, settings and seed 1 of runs/long/log.jsonl" in line
        assert len(result.stdout.splitlines()) == 4


def test_runs_of_one_agent_with_other_settings_are_curves_of_their_own_named_by_what_differs(tmp_path):
    read = [
        logs.read(log_of(tmp_path / str(i), [1.0], seed=i % 2, discount=0.9, learning_rate=rate))
        for i, rate in enumerate([0.1, 0.1, 0.2])
    ]
    assert [(name, [run.seed for run in own]) for name, own in variants(read)] == [
        ("dqn, learning_rate 0.1", [0, 1]),
        ("dqn, learning_rate 0.2", [0]),
    ]
    assert [name for name, _ in variants(read[:2])] == ["dqn"]
    many = [curve_of([1], [1], config=dict.fromkeys("abcde", value)) for value in (1, 2)]
    assert variants(many)[1][0] == "dqn, a 2, b 2, c 2, and 2 more"


def test_the_lines_of_runs_with_other_settings_have_what_differs(reverie, tmp_path):
    for folder, seed, rate in (("a", 0, 0.1), ("b", 1, 0.1), ("c", 0, 0.2)):
        log_of(tmp_path / folder, [1.0], seed=seed, learning_rate=rate)
    result = reverie("plot", *(tmp_path / one for one in "abc"), "--out", tmp_path / "curves.png")
    assert [line.partition(":")[0] for line in result.stdout.splitlines()[:3]] == [
        "dqn on E-v0, learning_rate 0.1, seed 0",
        "dqn on E-v0, learning_rate 0.1, seed 1",
        "dqn on E-v0, learning_rate 0.2, seed 0",
    ]


@pytest.mark.long
def test_curves_are_drawn_over_seconds_on_request(reverie, tmp_path):
    runs = [curve_of([10, 20], [0, 1], seconds=(1.0, 3.0)), curve_of([10, 20], [0, 1], seconds=(2.0, 3.0))]
    assert band(runs, XAxis.seconds)[0].tolist() == [2, 3]
    log_of(tmp_path / "run", [1.0, 2.0])
    drawn = {over: reverie("plot", "run", "--over", over, "--out", f"{over}.png") for over in ("steps", "seconds")}
    assert [one.exit_code for one in drawn.values()] == [0, 0]
    assert (tmp_path / "steps.png").read_bytes() != (tmp_path / "seconds.png").read_bytes()


@pytest.mark.parametrize("text", [b'{"event": "started", "env_steps": 0}\n', b"\xff\xfe\n"])
def test_a_log_of_something_else_is_named(reverie, tmp_path, text):
    (tmp_path / "log.jsonl").write_bytes(text)
    result = reverie("plot", "log.jsonl")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("reverie: log log.jsonl is ")


@pytest.mark.long
def test_plot_draws_several_runs_and_prints_how_each_ended(reverie, tmp_path, small):
    for seed in range(2):
        command = ["train", "dqn", "--env", "CartPole-v1", "--no-tensorboard", "--seed", seed, *small]
        reverie(*command, "--set", "max_env_steps=200")
    result = reverie("plot", *sorted((tmp_path / "runs").iterdir()), "--out", "pictures/both.png")
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "pictures/both.png").read_bytes().startswith(b"\x89PNG")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("dqn on CartPole-v1, seed 0: never reached 475; not reached: ")
    assert lines[1].startswith("dqn on CartPole-v1, seed 1: ")
    assert lines[2] == "learning curves: pictures/both.png"
    assert "does not exist: name a run's folder" in reverie("plot", "nowhere").stderr


def curve_of(steps, returns, **options):
    fields = {"path": None, "agent": "dqn", "env_id": "E-v0", "seed": 0, "target_return": 5.0, "finished": None}
    return logs.RunLog(**{**fields, **options}, env_steps=tuple(steps), returns=tuple(returns))


def test_the_band_covers_the_steps_that_every_run_reached():
    steps, quartiles = band([curve_of([0, 10, 20], [0, 10, 20]), curve_of([5, 15], [1, 1]), curve_of([0, 20], [8, 8])])
    assert steps.tolist() == [5, 10, 15]
    assert quartiles[1].tolist() == [5, 8, 8]
    assert quartiles[0].tolist() == [3, 4.5, 4.5]


def test_a_confirmed_run_counts_on_in_the_band_and_any_other_end_ends_it():
    ended = {"confirmed": True, "mean_return": 7.0, "env_steps": 10}
    short = curve_of([0, 10], [0, 5], finished=ended)
    steps, quartiles = band([short, curve_of([0, 10, 20, 30], [0, 1, 3, 9], finished=ended)])
    assert steps.tolist() == [0, 10, 20, 30]
    assert quartiles[1].tolist() == [0, 3, 5, 8]  # 5 and 1, 7 and 3, 7 and 9
    for finished in (None, {**ended, "confirmed": False}):
        stopped = curve_of([0, 20], [0, 1], finished=finished)
        assert band([short, stopped, curve_of([0, 30], [0, 1], finished=ended)])[0].tolist() == [0, 10, 20]


def test_a_summary_has_the_first_step_at_the_target_and_the_end():
    assert summary(curve_of([10, 20], [1, 6])) == (
        "dqn on E-v0, seed 0: reached 5 after 20 steps; not finished; last greedy return 6.0 after 20 steps"
    )
    ended = {"confirmed": True, "mean_return": 5.5, "env_steps": 20}
    assert summary(curve_of([10], [1], finished=ended)).endswith("never reached 5; confirmed: 5.5 after 20 steps")
