"""The metrics of a server, as Prometheus reads them, and the same figures as JSON."""

import dataclasses
import json
import re
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import yaml

from reverie import Client, DeadlineExceededError, Journal, Server, Table, rate_limiters, selectors

ROOT = Path(__file__).resolve().parents[2]
GUIDE, ALERTS = ROOT / "docs" / "guides" / "watch-a-server.md", ROOT / "deploy" / "alerts.yml"
HERE = "127.0.0.1:0"
#: A wait that ends only where something is broken.
PATIENT = 100
#: The least that a training run publishes, and what its metrics are made from.
RUN = {"agent": "a", "env": "e", "env_steps": 1, "updates": 1, "curve": [[1, 1, 1]], "policy_age_updates": 1}


#: The `Accept` header of Prometheus 2.53.
PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=0.0.4;q=0.4,*/*;q=0.2"
)


def samples_of(exposition):
    """The samples of an exposition: by name, and by labels, the value."""
    found = {}
    for line in exposition.splitlines():
        if line and not line.startswith("#"):
            name, labels, value = re.fullmatch(r'(\w+)(?:\{((?:[^"]|"(?:[^"\\]|\\.)*")*)\})? (\S+)', line).groups()
            pairs = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or "")
            found.setdefault(name, {})[frozenset(pairs)] = float(value)
    return found


def only(found, name, **labels):
    """The value of the one sample of a name that has these labels."""
    (value,) = [value for pairs, value in found[name].items() if set(labels.items()) <= pairs]
    return value


def test_the_metrics_are_those_of_the_guide_and_their_values_those_of_the_table(uniform, network, connect, read):
    with Server([uniform()], http=HERE) as server:
        client = connect(server.address, transport=network)
        for step in range(5):
            client.insert(np.float32(step), {"t": 1.0})
        drawn = client.sample_batch("t", 3)
        client.update_priorities("t", drawn.info.key[:1], [2.0])
        server.publish(RUN)
        status, headers, body = read(server, "/metrics", Accept=PROMETHEUS)
    assert status == 200
    assert headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert body.endswith("# EOF\n")
    found = samples_of(body)
    assert only(found, "reverie_table_items", table="t") == 5
    assert only(found, "reverie_inserts_total", table="t") == 5
    assert only(found, "reverie_samples_total", table="t") == 3
    assert only(found, "reverie_priority_updates_total", table="t") == 1
    assert only(found, "reverie_clients", transport=network) == 1
    assert only(found, "reverie_request_seconds_count", verb="insert", transport=network) == 5
    assert only(found, "reverie_request_seconds_count", verb="sample", transport=network) == 1
    assert 0 < only(found, "reverie_request_seconds_sum", verb="sample", transport=network) < PATIENT
    assert only(found, "reverie_sample_age_seconds_bucket", table="t", le="+Inf") == 3
    assert only(found, "reverie_sample_age_seconds_count", table="t") == 3
    assert 0 < only(found, "reverie_sample_age_seconds_sum", table="t") < 3 * PATIENT
    assert only(found, "reverie_sample_times_count", table="t") == 0
    families = set(re.findall(r"^# TYPE (\w+)", body, re.MULTILINE))
    named = set(re.findall(r"^\| `(reverie_\w+)", GUIDE.read_text(), re.MULTILINE))
    # The journal, the disk tier and the spans have figures only where there are some.
    assert {name.removesuffix("_total").removesuffix("_info") for name in named} - families == {
        "reverie_journal_unsynced_bytes",
        "reverie_journal_sync_seconds",
        "reverie_checkpoint_age_seconds",
        "reverie_disk_bytes",
        "reverie_spans",
    }
    assert families <= {name.removesuffix("_total").removesuffix("_info") for name in named}


def test_the_page_and_the_metrics_of_a_server_with_a_disk_show_it(uniform, tmp_path, read, until):
    with Server([uniform()], http=HERE, disk=tmp_path, memory_bytes=1 << 20) as server:
        client = server.client()
        noise = np.random.default_rng(1)
        for _ in range(40):
            client.insert_batch("t", {"x": noise.integers(0, 256, (1, 100_000), np.uint8)})

        def at_rest():
            """All three, from a time at which no chunk was moved: the mover is a thread of its own."""
            before = client.info().disk
            metrics = samples_of(read(server, "/metrics", Accept=PROMETHEUS)[2])
            page = json.loads(read(server, "/api/info")[2])["disk"]
            return (metrics, page, before) if client.info().disk == before else None

        found, shown, disk = until(at_rest)
    assert shown == dataclasses.asdict(disk)
    assert only(found, "reverie_disk_bytes", kind="chunks") == disk.chunk_bytes > 0
    assert only(found, "reverie_disk_bytes", kind="files") == disk.file_bytes
    assert only(found, "reverie_memory_bytes", kind="tables") == disk.memory_bytes
    assert only(found, "reverie_memory_limit_bytes", kind="tables") == 1 << 20


def test_the_older_format_is_for_readers_that_do_not_ask_for_openmetrics(shown, read):
    for accept in ("*/*", "text/plain;version=0.0.4", "text/plain;q=0.9, application/openmetrics-text;q=0.1"):
        status, headers, plain = read(shown, "/metrics", Accept=accept)
        assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    open_metrics = read(shown, "/metrics", Accept=PROMETHEUS)[2]
    assert "# TYPE reverie_inserts counter\n" in open_metrics
    assert "# TYPE reverie_inserts_total counter\n" in plain
    assert "# EOF" not in plain
    assert samples_of(plain).keys() == samples_of(open_metrics).keys()
    # Each sample belongs to the family before it: what the older format requires, for every type.
    family = kind = None
    for line in plain.splitlines():
        if match := re.fullmatch(r"# TYPE (\w+) (\w+)", line):
            family, kind = match.groups()
        elif not line.startswith("#"):
            name = re.match(r"\w+", line)[0]
            suffixes = ("_sum", "_count", "_bucket") if kind == "histogram" else ("",)
            assert name in [family + suffix for suffix in suffixes]
    assert kind is not None


def test_bytes_are_counted_by_their_transport_also_those_in_shared_memory(
    uniform, network, connect, until, read_json, read
):
    row = np.random.default_rng(3).integers(0, 256, 300_000, np.uint8)  # cannot be packed
    with Server([uniform()], http=HERE) as server:
        client = connect(server.address, transport=network)
        client.insert(row, {"t": 1.0})
        client.sample_batch("t", 2)
        client.close()

        def sent():
            return only(samples_of(read(server, "/metrics")[2]), "reverie_bytes_sent_total", transport=network)

        until(lambda: sent() > 600_000)  # what the kernel has accepted is counted after the client may have read it
        found, info = samples_of(read(server, "/metrics")[2]), read_json(server, "/api/info")[1]
    for direction, least in (("received", 300_000), ("sent", 600_000)):
        name = f"reverie_bytes_{direction}_total"
        assert least < only(found, name, transport=network) < 2 * least
        (other,) = {"grpc", "shared-memory"} - {network}
        # A client finds the shared memory over gRPC.
        assert only(found, name, transport=other) < (20_000 if other == "grpc" else 1)
        for transport in (network, other):
            shown = info[f"{direction}_bytes"][transport.replace("-", "_")]
            assert shown >= only(found, name, transport=transport)


def test_items_that_left_are_counted_by_their_samples(read_json, read):
    table = Table("t", selectors.Fifo(), selectors.Fifo(), 2, rate_limiters.MinSize(1))
    with Server([table], http=HERE, listen=False) as server:
        client = server.client()
        for step, samples in enumerate((3, 0, 1)):
            # Always the oldest item is drawn, and evicted by the third insert.
            client.insert(np.float32(step), {"t": 1.0})
            if samples:
                client.sample_batch("t", samples)
        client.insert(np.float32(3), {"t": 1.0})
        found = samples_of(read(server, "/metrics")[2])
        info = read_json(server, "/api/info")[1]["tables"][0]
    # The first item was drawn three times, the second once; both left.
    assert only(found, "reverie_sample_times_count", table="t") == 2
    assert only(found, "reverie_sample_times_sum", table="t") == 4
    below = {le: only(found, "reverie_sample_times_bucket", table="t", le=le) for le in ("0.0", "1.0", "2.0", "4.0")}
    assert below == {"0.0": 0, "1.0": 1, "2.0": 1, "4.0": 2}
    assert info["sample_times"] == [[1, 1], [4, 1]]


def test_a_checkpoint_has_an_age_once_there_is_one(shown, read_json, read):
    assert "reverie_checkpoint_age_seconds" not in samples_of(read(shown, "/metrics")[2])
    assert read_json(shown, "/api/info")[1]["checkpoint_age_seconds"] is None
    shown.client().checkpoint()
    assert 0 <= only(samples_of(read(shown, "/metrics")[2]), "reverie_checkpoint_age_seconds") < PATIENT


def test_no_label_is_for_a_client_or_a_key(uniform, connect, read):
    with Server([uniform()], http=HERE) as server:
        connect(server.address, transport="grpc").insert(np.float32(1), {"t": 1.0})
        server.publish(RUN)
        found = samples_of(read(server, "/metrics")[2])
    labels = {name for series in found.values() for pairs in series for name, _ in pairs}
    assert labels == {"table", "side", "reason", "verb", "transport", "kind", "le", "version", "agent", "env"}


def test_blocked_seconds_are_counted_by_what_held_the_first_request_back(uniform, read):
    with Server([uniform(), Table.queue("q", 1)], listen=False, http=HERE) as server:
        client = server.client()
        client.insert(np.float32(1), {"q": 1.0})
        client.insert_batch("q", np.ones(1, np.float32), wait=False)
        with pytest.raises(DeadlineExceededError):
            client.sample_batch("t", 1, timeout=0.01)
        family = samples_of(read(server, "/metrics")[2])["reverie_limiter_blocked_seconds_total"]
        client.sample_batch("q", 2)
    seconds = {
        tuple(dict(pairs)[name] for name in ("table", "side", "reason")): value for pairs, value in family.items()
    }
    sides = {"insert": ("limiter", "bytes", "memory", "turn"), "sample": ("limiter", "items", "turn")}
    assert set(seconds) == {(name, side, reason) for name in "tq" for side in sides for reason in sides[side]}
    assert {of for of, value in seconds.items() if value} == {("q", "insert", "limiter"), ("t", "sample", "limiter")}


def test_a_journal_has_figures(uniform, tmp_path, read_json, read):
    with Server([uniform()], journal=Journal(tmp_path, sync="always"), listen=False, http=HERE) as server:
        server.client().insert(np.float32(1), {"t": 1.0})
        found, journal = samples_of(read(server, "/metrics")[2]), read_json(server, "/api/info")[1]["journal"]
    assert only(found, "reverie_journal_unsynced_bytes") == 0
    assert only(found, "reverie_journal_sync_seconds_count") == journal["syncs"] >= 1
    assert only(found, "reverie_journal_sync_seconds_sum") == journal.pop("sync_seconds") > 0
    assert journal.pop("longest_sync_seconds") > 0
    assert journal.pop("rounds") >= 1
    assert journal.pop("log_bytes") > 0
    quiet = {"unsynced_bytes": 0, "waiting": 0, "is_full": False, "error": None}
    assert journal == {"sync": "always", "syncs": journal["syncs"], **quiet}


def test_a_request_that_waits_is_shown_with_its_reason(fifo, network, connect, read_json, read):
    with Server([fifo()], http=HERE) as server:
        client: Client = connect(server.address, transport=network)
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(client.sample_batch, "t", 1)
            while not (side := read_json(server, "/api/why")[1]["tables"][0]["sample"])["waiting"]:
                pass
            found = samples_of(read(server, "/metrics")[2])
            client.insert(np.float32(1), {"t": 1.0})
            waiting.result(PATIENT)
    assert "1 more insert is needed" in side["reason"]
    assert only(found, "reverie_waiting_requests", table="t", side="sample") == 1
    assert only(found, "reverie_waiting_requests", table="t", side="insert") == 0


def test_the_guide_has_the_queries_of_the_alert_rules_and_their_metrics_are_exported(shown, read):
    families = set(re.findall(r"^# TYPE (\w+)", read(shown, "/metrics", Accept=PROMETHEUS)[2], re.MULTILINE))
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    queries = [rule["expr"] for rule in rules]
    assert re.findall(r"^\| `(.*[=<>(].*)` \|", GUIDE.read_text(), re.MULTILINE) == queries
    named = {name for query in queries for name in re.findall(r"reverie_\w+", query)}
    assert {re.sub(r"_(total|bucket|info)$", "", name) for name in named} - families == {"reverie_memory_limit_bytes"}


def test_a_hundred_tables_with_names_of_markup_are_each_shown_under_their_name(items, read_json, read):
    names = [f'<img src=x onerror="alert({n})">\\' for n in range(100)]
    tables = [Table(name, selectors.Fifo(), selectors.Fifo(), 9, rate_limiters.MinSize(1)) for name in names]
    with Server(tables, http=HERE, listen=False) as server:
        server.client().insert(np.float32(1), {names[7]: 1.0})
        found = samples_of(read(server, "/metrics")[2])["reverie_table_items"]
        info = read_json(server, "/api/info")[1]
        quoted = urllib.request.quote(names[7], safe="")
        assert len(items(server, quoted)) == 1
    labels = [dict(pairs)["table"].replace('\\"', '"').replace("\\\\", "\\") for pairs in found]
    assert sorted(labels) == sorted(names)
    assert sum(found.values()) == 1
    assert [table["name"] for table in info["tables"]] == names
