"""The files under deploy/: what they name exists, and programs that check such files accept them."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import yaml

from reverie import Journal, Server, Table

pytest.importorskip("typer")
import typer

from reverie.cli import table_files
from reverie.cli.app import app

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
BOARD = json.loads((DEPLOY / "grafana.json").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
#: Labels that Prometheus adds to every series that it scrapes.
SCRAPED = {"instance", "job"}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The labels of each series that an exporter with everything has, by its name; and the names of histograms."""
    folder = tmp_path_factory.mktemp("journal")
    everything = {"max_bytes": 10**9, "journal": Journal(folder / "journal"), "disk": folder / "disk"}
    with Server([Table.queue("t", 9)], http=0, tracing=True, **everything) as server:
        server.client().insert(np.float32(1), {"t": 1.0})
        server.publish(
            {"agent": "a", "env": "e", "env_steps": 1, "updates": 1, "curve": [[1, 1, 1]], "policy_age_updates": 1}
        )
        with urllib.request.urlopen(f"http://{server.http_address}/metrics", timeout=100) as response:
            text = response.read().decode()
    labels = {}
    for name, inside in re.findall(r"^(reverie_\w+)(?:\{(.*)\})? ", text, re.MULTILINE):
        labels.setdefault(name, set()).update(re.findall(r'(\w+)="', inside))
    return labels


def misfits(query, exported):
    """Names of a query that the exporter does not have, and labels that the series of the query do not have."""
    names = set(re.findall(r"\breverie_\w+", query))
    known = SCRAPED.union(*(exported.get(name, set()) for name in names))
    used = {label for inside in re.findall(r"\{(.*?)\}", query) for label in re.findall(r"(\w+)\s*=~?", inside)}
    used |= {label for inside in re.findall(r"\b(?:by|on) \((.*?)\)", query) for label in re.findall(r"\w+", inside)}
    return {name for name in names if name not in exported} | (used - known)


def test_every_query_of_the_board_names_what_is_exported(exported):
    assert len(QUERIES) > 20
    assert {query: wrong for query in QUERIES if (wrong := misfits(query, exported))} == {}
    assert misfits("rate(reverie_inserts{table=~'t'}[5m])", exported) == {"reverie_inserts", "table"}
    assert misfits('sum by (key) (reverie_ready{verb="x"})', exported) == {"key", "verb"}


def test_the_board_shows_each_metric_and_its_variables_are_labels(exported):
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in exported} - {"reverie_build_info"}
    shown = {
        re.sub(r"_(bucket|count|sum)$", "", name) for query in QUERIES for name in re.findall(r"reverie_\w+", query)
    }
    assert families - shown == set()
    for variable in BOARD["templating"]["list"]:
        if variable["type"] == "query":
            series, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()
            assert misfits(series, exported) == set()
            assert label in SCRAPED | exported[re.match(r"\w+", series)[0]]
    names = {variable["name"] for variable in BOARD["templating"]["list"]}
    assert {name for query in QUERIES for name in re.findall(r"\$(\w+)", query)} <= names | {"__rate_interval"}


def test_the_panels_of_the_board_have_legends_of_labels_and_do_not_overlap(exported):
    for panel in PANELS:
        for target in panel["targets"]:
            known = SCRAPED.union(*(exported[name] for name in re.findall(r"reverie_\w+", target["expr"])))
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= known
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in BOARD["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24


@pytest.mark.skipif(shutil.which("promtool") is None, reason="Debian's package prometheus is not installed")
def test_promtool_accepts_every_query_of_the_board(tmp_path):
    ready = [re.sub(r"\$__rate_interval", "5m", query).replace("$", "") for query in QUERIES]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(ready)]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))  # JSON is YAML
    run = subprocess.run(
        ["promtool", "check", "rules", tmp_path / "rules.yml"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


def parsed(arguments):
    """The values of a command line of `reverie`, as the command would get them; fails for unknown or invalid flags."""
    name, *rest = arguments
    command = typer.main.get_command(app).commands[name]
    return command.make_context(name, list(rest)).params


def unit():
    """The settings of the unit: by section and name, all values."""
    text = (DEPLOY / "reverie.service").read_text().replace("\\\n", " ")
    settings, section = {}, ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            name, _, value = line.partition("=")
            settings.setdefault((section, name), []).append(value)
    return settings


def test_the_unit_starts_a_server_that_reports_to_its_watchdog():
    settings = unit()
    (start,) = settings["Service", "ExecStart"]
    program, *arguments = shlex.split(start)
    assert Path(program).name == "reverie"
    given = parsed(arguments)
    assert settings["Service", "Type"] == ["notify"]
    assert settings["Service", "WatchdogSec"] == ["60s"]
    # It writes into the one folder that it may write to.
    assert settings["Service", "StateDirectory"] == ["reverie"]
    assert given["journal"].is_relative_to("/var/lib/reverie")
    assert given["log_format"] == "json"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="Debian's package systemd is not installed")
def test_systemd_accepts_the_unit(tmp_path):
    def verified(text):
        # The program is not installed where the unit expects it.
        (tmp_path / "reverie.service").write_text(text.replace("/opt/reverie/bin/reverie", sys.executable))
        run = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", tmp_path / "reverie.service"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return run.returncode, run.stdout + run.stderr

    text = (DEPLOY / "reverie.service").read_text()
    assert verified(text) == (0, "")
    assert "WatchdogSecs" in verified(text.replace("WatchdogSec=", "WatchdogSecs="))[1]


def manifests():
    """The objects of the Kubernetes manifests, by their kind."""
    return {one["kind"]: one for one in yaml.safe_load_all((DEPLOY / "kubernetes.yml").read_text())}


def test_the_manifests_fit_each_other():
    objects = manifests()
    assert set(objects) == {"ConfigMap", "Service", "StatefulSet", "NetworkPolicy"}
    assert {kind: one["apiVersion"] for kind, one in objects.items()} == {
        "ConfigMap": "v1",
        "Service": "v1",
        "StatefulSet": "apps/v1",
        "NetworkPolicy": "networking.k8s.io/v1",
    }
    running = objects["StatefulSet"]["spec"]
    pod = running["template"]
    labels = pod["metadata"]["labels"]
    assert running["selector"]["matchLabels"] == objects["Service"]["spec"]["selector"] == labels
    assert objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    assert running["serviceName"] == objects["Service"]["metadata"]["name"]
    (container,) = pod["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {port["targetPort"] for port in objects["Service"]["spec"]["ports"]} == set(ports)
    rules = objects["NetworkPolicy"]["spec"]["ingress"]
    assert [port["port"] for rule in rules for port in rule["ports"]] == ["replay", "http"]
    volumes = {one["name"] for one in pod["spec"]["volumes"]}
    claims = {one["metadata"]["name"] for one in running["volumeClaimTemplates"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes | claims
    assert not volumes & claims
    by_name = {one["name"]: one for one in pod["spec"]["volumes"]}
    assert by_name["tables"]["configMap"]["name"] == objects["ConfigMap"]["metadata"]["name"]
    assert by_name["secrets"]["secret"]["defaultMode"] == 0o440
    given = parsed(container["args"])
    assert (given["port"], given["http"]) == (ports["replay"], f"0.0.0.0:{ports['http']}")


def test_the_pods_files_are_where_its_volumes_are_and_it_is_probed_where_no_token_is_needed():
    objects = manifests()
    (container,) = objects["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    given = parsed(container["args"])
    assert given["journal"].is_relative_to(mounts["data"])
    for name in ("token_file", "tls_cert", "tls_key"):
        assert str(given[name].parent) == mounts["secrets"]
    assert given["tables"] == f"{mounts['tables']}/tables.toml"
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startup": "/livez",
        "liveness": "/livez",
        "readiness": "/readyz",
    }
    assert {(probe["port"], probe["scheme"]) for probe in probes.values()} == {("http", "HTTPS")}
    # Nothing but its volumes can be written.
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert objects["StatefulSet"]["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"]


def test_kubernetes_schemas_accept_the_manifests():
    validate = pytest.importorskip("kubernetes_validate")
    for one in manifests().values():
        validate.validate(one, "1.37", strict=True)
    misspelt = manifests()["StatefulSet"]
    (container,) = misspelt["spec"]["template"]["spec"]["containers"]
    container["readynessProbe"] = container.pop("readinessProbe")
    with pytest.raises(validate.ValidationError, match="readynessProbe"):
        validate.validate(misspelt, "1.37", strict=True)


def test_the_tables_of_the_manifests_can_be_made(tmp_path):
    (tmp_path / "tables.toml").write_text(manifests()["ConfigMap"]["data"]["tables.toml"])
    (table,) = table_files.load(str(tmp_path / "tables.toml"))
    assert table.name == "replay"


def test_the_containerfile_starts_the_server_of_the_manifests_and_not_as_root():
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    instructions = {}
    for line in lines:
        name, _, rest = line.partition(" ")
        instructions.setdefault(name, []).append(rest)
    assert json.loads(instructions["ENTRYPOINT"][0]) == ["reverie"]
    given = parsed(json.loads(instructions["CMD"][0]))
    pod = manifests()["StatefulSet"]["spec"]["template"]["spec"]
    wanted = parsed(pod["containers"][0]["args"])
    alike = ("host", "port", "http", "token_file", "tls_cert", "tls_key", "journal", "log_format")
    assert {name: given[name] for name in alike} == {name: wanted[name] for name in alike}
    user = pod["securityContext"]
    assert instructions["USER"] == [f"{user['runAsUser']}:{user['runAsGroup']}"]
    assert instructions["EXPOSE"] == [f"{given['port']} {given['http'].rpartition(':')[2]}"]
    assert instructions["VOLUME"] == ["/data"]
