"""The page of a sweep: the runs of several seeds, by their logs."""

import json
import urllib.error
import urllib.request

import pytest

pytest.importorskip("torch")
testing = pytest.importorskip("typer.testing")

from reverie.cli.app import app  # noqa: E402
from reverie.cli.run_processes import RunProcesses  # noqa: E402
from reverie.cli.sweep_page import RunTail, SweepPage  # noqa: E402
from reverie.pages import Page  # noqa: E402

STARTED = {"event": "started", "env_steps": 0, "target_return": 475.0}
PROGRESS = {"event": "progress", "env_steps": 700, "updates": 90}
FINISHED = {"event": "finished", "env_steps": 900, "confirmed": True}


def evaluated(step, mean_return):
    return {"event": "evaluated", "env_steps": step, "seconds": step / 100, "mean_return": mean_return}


def write(folder, *lines, end="\n"):
    folder.mkdir(exist_ok=True)
    with (folder / "log.jsonl").open("a") as file:
        file.write("\n".join(map(json.dumps, lines)) + end)


def test_a_tail_reads_only_what_was_written_since_and_leaves_a_torn_line(tmp_path):
    tail = RunTail(tmp_path)
    assert tail.figures(3, 9) == {
        "seed": 3, "state": "has not begun", "env_steps": 0, "updates": 0, "confirmed": False, "curve": [],
    }  # fmt: skip
    write(tmp_path, STARTED, evaluated(500, 20.5), PROGRESS, evaluated(600, float("nan")))
    found = tail.figures(3, 9)
    assert (found["state"], found["env_steps"], found["updates"]) == ("trains", 700, 90)
    assert found["curve"] == [[500, 5.0, 20.5]]
    write(tmp_path, evaluated(800, 480.0), FINISHED, end="")
    assert tail.figures(3, 9)["confirmed"] is False
    write(tmp_path)
    found = tail.figures(3, 9)
    assert (found["state"], found["confirmed"], found["env_steps"]) == ("confirmed", True, 900)
    assert found["curve"] == [[500, 5.0, 20.5], [800, 8.0, 480.0]]


def test_a_log_that_was_replaced_is_read_again_from_its_start(tmp_path):
    tail = RunTail(tmp_path)
    write(tmp_path, STARTED, evaluated(500, 20.5), FINISHED)
    assert tail.figures(0, 9)["confirmed"]
    (tmp_path / "log.jsonl").rename(tmp_path / "before")
    write(tmp_path, {**STARTED, "target_return": None})
    assert (tail.figures(0, 9)["curve"], tail.figures(0, 9)["state"], tail.target_return) == ([], "trains", None)


def test_long_curves_of_many_seeds_are_thinned_to_what_a_page_takes(tmp_path):
    folders = {seed: tmp_path / str(seed) for seed in range(70)}
    for folder in folders.values():
        write(folder, STARTED, *(evaluated(step, 1.0) for step in range(1, 200)))
    with SweepPage(Page(0), "dqn", "E-v0", folders) as page:
        figures = page.figures()
        with urllib.request.urlopen(f"{page.url}api/run", timeout=100) as response:
            shown = json.load(response)
    assert (len(figures["seeds"]), figures["target_return"]) == (64, 475.0)
    assert {seed["curve"][-1][0] for seed in figures["seeds"]} == {199}
    assert sum(len(seed["curve"]) for seed in figures["seeds"]) <= 1000
    assert [seed["seed"] for seed in shown["seeds"]] == list(range(64))
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(page.url, timeout=100)


def test_a_sweep_has_one_page_with_a_token_and_its_runs_have_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text("sesame")
    asked, shown = [], []

    def train(runs, request):
        asked.append(request)
        write(request.out, STARTED, evaluated(500, float(request.seed)))
        return 2, None

    def figures(page, real=SweepPage.figures):
        request = urllib.request.Request(f"{page.url}api/info", headers={"Authorization": "Bearer sesame"})
        with urllib.request.urlopen(request, timeout=100) as response:
            shown.append(json.load(response)["tables"])
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{page.url}api/info", timeout=100)
        return real(page)

    monkeypatch.setattr(RunProcesses, "train", train)
    monkeypatch.setattr(SweepPage, "figures", figures)
    arguments = ["train", "dqn", "--env", "CartPole-v1", "--seeds", "3-5", "--http", "0", "--token-file", "token"]
    done = testing.CliRunner().invoke(app, arguments)
    assert "the runs are shown at http://127.0.0.1:" in done.stderr, done.output
    assert sorted(request.seed for request in asked) == [3, 4, 5]
    assert [request.page for request in asked] == [None] * 3
    assert shown[0] == []
