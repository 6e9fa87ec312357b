"""The HTTP port of a server as programs of others read it: a browser and Prometheus, where they are installed."""

import contextlib
import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import yaml

from reverie import Server, Table

pytestmark = pytest.mark.long
ALERTS = Path(__file__).resolve().parents[2] / "deploy" / "alerts.yml"
HERE = "127.0.0.1:0"
#: A wait that ends only where something is broken, in seconds.
PATIENT = 100
#: A table's name that is an element of HTML and holds all that OpenMetrics escapes.
ODD = '<b id="planted">x</b>\\n "'

chromium = pytest.mark.skipif(shutil.which("chromium") is None, reason="Debian's package chromium is not installed")
prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="Debian's package prometheus is not installed"
)


@pytest.fixture
def shown():
    """A server with an HTTP port; one of its tables has an item with a picture, and an insert that waits."""
    with Server([Table.queue("replay", 1), Table.queue(ODD, 10)], http=HERE, listen=False) as server:
        client = server.client()
        row = {"obs": np.full((8, 8), 7, np.uint8), "reward": np.float32(2.5)}
        client.insert(row, {"replay": 1.0})
        with client.trajectory_writer(num_keep_alive_refs=1) as writer:
            writer.append(row)
            writer.create_item("replay", 1.0, {name: column[-1] for name, column in writer.history.items()})
            yield server
            client.reset("replay")  # the insert that waits goes in


def page_with(server, tmp_path, place, *words):
    """The page's elements, without its script, when a browser has shown all of `words`."""
    end = time.monotonic() + PATIENT
    for milliseconds in (1_000, 4_000, 16_000, 32_000):
        run = subprocess.run(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
             f"--virtual-time-budget={milliseconds}", "--dump-dom", f"http://{server.http_address}/{place}"],
            capture_output=True, text=True, timeout=max(1, end - time.monotonic()), check=True,
        )  # fmt: skip
        page = re.sub(r"<script.*?</script>", "", run.stdout, flags=re.DOTALL)
        if all(word in page for word in words):
            return page
    raise AssertionError(f"not all of {words} in the page:\n{page}")


@chromium
def test_a_browser_shows_each_table_and_who_waits(shown, tmp_path):
    page = page_with(shown, tmp_path, "", "1 of 1 items", "1 more sample is needed")
    assert "0 of 10 items" in page
    assert "planted" in page
    assert '<b id="planted">' not in page


@chromium
def test_a_browser_shows_the_items_of_a_table_with_their_pictures(shown, tmp_path):
    page = page_with(shown, tmp_path, "#replay", "uint8 [8, 8]", "2.5")
    assert re.search(r'<canvas[^>]*width="8"', page)


@chromium
def test_a_browser_shows_a_training_run_with_its_curve_and_whether_its_target_is_reached(shown, tmp_path):
    figures = {
        "agent": "dqn", "env": ODD, "seed": 3, "env_steps": 2500, "updates": 600, "seconds": 9.0, "max_env_steps": 5000,
        "target_return": 475.0, "curve": [[1000, 2.0, 20.0], [2000, 5.0, 312.5]], "runner": "local",
        "activities": {"learn": 4.5, "act": 1.5},
    }  # fmt: skip
    shown.publish(figures)
    page = page_with(shown, tmp_path, "", "Greedy return 312.5 of 475", "seed 3")
    assert re.search(r'<polyline[^>]*class="insert"[^>]*points="150,[0-9.]+ 300,[0-9.]+"', page)
    assert re.search(r'<line[^>]*class="aim"', page)
    assert "4.500 s, 50 %" in page
    assert "3 s, 33 %" in page, "the rest is other work"
    assert '<b id="planted">' not in page
    shown.publish({**figures, "confirmed": True})
    page_with(shown, tmp_path, "", "Target reached and confirmed: 312.5 of 475")


@prometheus
def test_prometheus_scrapes_the_metrics_with_every_label_as_it_is(shown, tmp_path):
    config = {"scrape_configs": [
        {"job_name": "reverie", "scrape_interval": "1s", "static_configs": [{"targets": [shown.http_address]}]}
    ]}  # fmt: skip
    (tmp_path / "config.yml").write_text(json.dumps(config))  # JSON is YAML
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = ["prometheus", f"--config.file={tmp_path / 'config.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}",
               f"--web.listen-address={address}"]  # fmt: skip
    log = tmp_path / "log"
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            found, end = [], time.monotonic() + PATIENT
            while not found:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                with contextlib.suppress(OSError):
                    found = queried(address, "reverie_inserts_total")
                time.sleep(0.05)  # between two questions
            assert [one["value"][1] for one in queried(address, "up")] == ["1"]
            inserts = {one["metric"]["table"]: float(one["value"][1]) for one in found}
            assert inserts == {"replay": 1, ODD: 0}
            rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
            assert {rule["alert"] for rule in rules if queried(address, rule["expr"])} <= {"ReverieInsertsWait"}
        finally:
            process.terminate()


@prometheus
def test_promtool_accepts_the_alert_rules():
    run = subprocess.run(["promtool", "check", "rules", ALERTS], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def queried(address, query):
    """The result of a query of Prometheus."""
    url = f"http://{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(url, timeout=PATIENT) as response:
        answer = json.load(response)
    assert answer["status"] == "success"
    return answer["data"]["result"]
