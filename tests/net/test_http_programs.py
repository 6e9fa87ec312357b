"""The metrics of a server as Prometheus reads them, where it is installed."""

import contextlib
import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import yaml

from reverie import Journal, Server, Table

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="Debian's package prometheus is not installed"),
]
ALERTS = Path(__file__).resolve().parents[2] / "deploy" / "alerts.yml"
#: A wait that ends only where something is broken, in seconds.
PATIENT = 100
#: A table's name that is an element of HTML and holds all that OpenMetrics escapes.
ODD = '<b id="planted">x</b>\\n "'


@pytest.fixture
def shown(tmp_path):
    """A server that has every metric: it listens, and has a journal, a checkpoint, limits and an insert that waits."""
    tables = [Table.queue("replay", 1), Table.queue(ODD, 10)]
    journal = Journal(tmp_path / "journal", sync="always")
    with Server(tables, http=0, journal=journal, max_memory=1 << 30) as server:
        client = server.client()
        client.insert({"reward": np.float32(1)}, {"replay": 1.0})
        client.checkpoint()
        with client.trajectory_writer(num_keep_alive_refs=1) as writer:
            writer.append({"reward": np.float32(1)})
            writer.create_item("replay", 1.0, {"reward": writer.history["reward"][-1]})
            yield server
            client.reset("replay")  # the insert that waits goes in


def test_prometheus_scrapes_the_metrics_with_every_label_as_it_is(shown, tmp_path, new_port):
    config = {"scrape_configs": [
        {"job_name": "reverie", "scrape_interval": "1s", "static_configs": [{"targets": [shown.http_address]}]}
    ]}  # fmt: skip
    (tmp_path / "config.yml").write_text(json.dumps(config))  # JSON is YAML
    address = f"127.0.0.1:{new_port()}"
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


def test_promtool_accepts_the_alert_rules():
    run = subprocess.run(["promtool", "check", "rules", ALERTS], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("accept", ["text/plain;version=0.0.4", "*/*"])
def test_promtool_accepts_the_metrics(shown, accept):
    request = urllib.request.Request(f"http://{shown.http_address}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=PATIENT) as response:
        metrics = response.read()
    run = subprocess.run(["promtool", "check", "metrics"], input=metrics, capture_output=True, check=False)
    assert (run.returncode, run.stdout + run.stderr) == (0, b"")
    assert metrics.count(b"# TYPE") > 20


def queried(address, query):
    """The result of a query of Prometheus."""
    url = f"http://{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(url, timeout=PATIENT) as response:
        answer = json.load(response)
    assert answer["status"] == "success"
    return answer["data"]["result"]
