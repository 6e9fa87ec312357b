"""A training run on the HTTP port of its server: the figures that it publishes."""

import json
import re
import urllib.request
from pathlib import Path

import pytest

from reverie import Server

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "watch-a-server.md"
#: A wait that ends only where something is broken.
PATIENT = 100
#: Figures that a training run publishes.
FIGURES = {
    "agent": "dqn",
    "env": "CartPole-v1",
    "env_steps": 1200,
    "updates": 300,
    "seed": 7,
    "target_return": 475.0,
    "policy_age_updates": 1.5,
    "curve": [[500, 1.5, 20.0], [1000, 3.0, -12.5]],
    "activities": {"act": 2.0, "learn": 1.0},
}


@pytest.fixture
def shown(uniform):
    """A server of one table in this process, with an HTTP port."""
    with Server([uniform()], http=0, listen=False) as server:
        yield server


def read(server, path):
    with urllib.request.urlopen(f"http://{server.http_address}{path}", timeout=PATIENT) as response:
        return response.read().decode()


def test_a_run_is_shown_by_the_newest_figures_that_it_published(shown):
    assert json.loads(read(shown, "/api/run")) is None
    shown.publish({**FIGURES, "env_steps": 1})
    shown.publish({**FIGURES, "env": 'a "quoted"\nname'})
    run = json.loads(read(shown, "/api/run"))
    assert {name: run[name] for name in FIGURES} == {**FIGURES, "env": 'a "quoted"\nname'}
    assert {name for name, value in run.items() if value is None} == set(run) - set(FIGURES)
    labels = r'{agent="dqn",env="a \"quoted\"\nname"}'
    series = ("reverie_env_steps_total", "reverie_updates_total", "reverie_greedy_return", "reverie_policy_age_updates")
    values = (1200, 300, -12.5, 1.5)
    metrics = read(shown, "/metrics").splitlines()
    found = {line.removesuffix(".0") for line in metrics}
    assert {f"{name}{labels} {value}" for name, value in zip(series, values, strict=True)} <= found
    with urllib.request.urlopen(f"http://{shown.http_address}/api/events", timeout=PATIENT) as events:
        while not (line := events.readline()).startswith(b"data: "):
            assert line, "the stream ended"
        assert json.loads(line[6:])["run"] == run


def test_a_run_without_an_evaluation_has_no_series_of_returns(shown):
    shown.publish({name: FIGURES[name] for name in ("agent", "env", "env_steps", "updates")})
    metrics = read(shown, "/metrics")
    assert "reverie_updates_total{" in metrics
    assert "reverie_greedy_return" not in metrics
    assert "reverie_policy_age_updates" not in metrics


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"agent": None}, "'agent' as text"),
        ({"env_steps": 1.5}, "'env_steps' as a whole number"),
        ({"curve": [[1, 2]]}, "'curve' as at most 1000 points"),
        ({"loss": 1.0}, "no 'loss'"),
        ({"seconds": float("nan")}, "Out of range float"),
        ({"waits_for": "x" * 1001}, "at most 1000 bytes"),
    ],
)
def test_figures_that_the_page_cannot_show_are_refused_and_change_nothing(shown, changes, words):
    shown.publish(FIGURES)
    with pytest.raises(ValueError, match=words):
        shown.publish({**FIGURES, **changes})
    assert json.loads(read(shown, "/api/run"))["agent"] == "dqn"


def test_the_guide_names_the_fields_of_a_run(shown):
    shown.publish(FIGURES)
    (text,) = re.findall(r"^`/api/run`:.*?\n\n", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert set(json.loads(read(shown, "/api/run"))) <= set(re.findall(r"`(\w+)`", text))
