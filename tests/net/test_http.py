"""The HTTP port of a server: metrics, health, JSON, events and the page."""

import base64
import contextlib
import dataclasses
import hashlib
import http.client
import json
import re
import resource
import socket
import urllib.error
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
#: Connections and streams of events that a server has at a time.
MOST_CONNECTIONS, MOST_STREAMS = 128, 16
#: The `Accept` header of Prometheus 2.53.
PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=0.0.4;q=0.4,*/*;q=0.2"
)
#: A wait that ends only where something is broken.
PATIENT = 100
#: The least that a training run publishes, and what its metrics are made from.
RUN = {"agent": "a", "env": "e", "env_steps": 1, "updates": 1, "curve": [[1, 1, 1]], "policy_age_updates": 1}


def read(server, path, **headers):
    """The status, the headers and the body of a path."""
    request = urllib.request.Request(f"http://{server.http_address}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENT) as response:
            return response.status, response.headers, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read().decode()


def read_json(server, path, **headers):
    status, _, body = read(server, path, **headers)
    return status, json.loads(body)


def items(server, table, query=""):
    status, answer = read_json(server, f"/api/tables/{table}/items{query}")
    assert status == 200, answer
    return answer["items"]


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


class Stream:
    """An open stream of events."""

    def __init__(self, server):
        self.connection = http.client.HTTPConnection(server.http_address, timeout=PATIENT)
        self.connection.request("GET", "/api/events")
        self.response = self.connection.getresponse()
        self.status = self.response.status

    def next(self):
        """The data of the next event."""
        while not (line := self.response.readline()).startswith(b"data: "):
            assert line, "the stream ended"
        return json.loads(line[6:])

    def close(self):
        self.response.close()
        self.connection.close()


@pytest.fixture
def shown(uniform):
    """A server of one table in this process, with an HTTP port."""
    with Server([uniform()], http=HERE, listen=False) as server:
        yield server


def test_the_metrics_are_those_of_the_guide_and_their_values_those_of_the_table(uniform, network, connect):
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


def test_the_page_and_the_metrics_of_a_server_with_a_disk_show_it(uniform, tmp_path):
    with Server([uniform()], http=HERE, disk=tmp_path, memory_bytes=1 << 20) as server:
        client = server.client()
        noise = np.random.default_rng(1)
        for _ in range(40):
            client.insert_batch("t", {"x": noise.integers(0, 256, (1, 100_000), np.uint8)})
        found = samples_of(read(server, "/metrics", Accept=PROMETHEUS)[2])
        shown = json.loads(read(server, "/api/info")[2])["disk"]
        disk = client.info().disk
    assert shown == dataclasses.asdict(disk)
    assert only(found, "reverie_disk_bytes", kind="chunks") == disk.chunk_bytes > 0
    assert only(found, "reverie_disk_bytes", kind="files") == disk.file_bytes
    assert only(found, "reverie_memory_bytes", kind="tables") == disk.memory_bytes
    assert only(found, "reverie_memory_limit_bytes", kind="tables") == 1 << 20


def test_the_older_format_is_for_readers_that_do_not_ask_for_openmetrics(shown):
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


def test_bytes_are_counted_by_their_transport_also_those_in_shared_memory(uniform, network, connect, until):
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


def test_items_that_left_are_counted_by_their_samples():
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


def test_a_checkpoint_has_an_age_once_there_is_one(shown):
    assert "reverie_checkpoint_age_seconds" not in samples_of(read(shown, "/metrics")[2])
    assert read_json(shown, "/api/info")[1]["checkpoint_age_seconds"] is None
    shown.client().checkpoint()
    assert 0 <= only(samples_of(read(shown, "/metrics")[2]), "reverie_checkpoint_age_seconds") < PATIENT


def test_no_label_is_for_a_client_or_a_key(uniform, connect):
    with Server([uniform()], http=HERE) as server:
        connect(server.address, transport="grpc").insert(np.float32(1), {"t": 1.0})
        server.publish(RUN)
        found = samples_of(read(server, "/metrics")[2])
    labels = {name for series in found.values() for pairs in series for name, _ in pairs}
    assert labels == {"table", "side", "reason", "verb", "transport", "kind", "le", "version", "agent", "env"}


def test_blocked_seconds_are_counted_by_what_held_the_first_request_back(uniform):
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


def test_a_journal_has_figures(uniform, tmp_path):
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


def test_health_is_plain_text(shown):
    assert read(shown, "/livez")[::2] == (200, "alive\n")
    assert read(shown, "/readyz")[::2] == (200, "ready\n")


def test_info_and_why_have_the_figures_of_each_table():
    table = Table("t", selectors.Uniform(), selectors.Fifo(), 10, rate_limiters.SampleToInsertRatio(2.0, 3, 4.0))
    with Server([table], http=HERE, listen=False) as server:
        server.client().insert(np.float32(1), {"t": 1.0})
        info, why = (read_json(server, path)[1] for path in ("/api/info", "/api/why"))
    assert info["ready"]
    assert info["trouble"] is None
    assert info["clients"] is None
    (t,) = info["tables"]
    assert (t["name"], t["size"], t["max_size"], t["sampler"], t["remover"]) == ("t", 1, 10, "uniform", "fifo")
    limiter = {"samples_per_insert": 2.0, "min_size_to_sample": 3, "min_diff": 2.0, "max_diff": 10.0, "diff": 2.0}
    assert t["limiter"] == limiter
    (waits,) = why["tables"]
    assert waits["table"] == "t"
    assert not waits["stuck"]
    assert waits["insert"] == {"waiting": 0, "first_seconds": None, "reason": None}
    assert "min_size_to_sample" in waits["sample"]["reason"]
    assert waits["sample"]["reason"] in waits["text"]


def test_items_come_in_an_order_or_by_their_key(shown):
    client = shown.client()
    for step, priority in enumerate([1.0, 9.0, 4.0]):
        client.insert({"step": np.int32(step), "obs": np.array([0.5, np.inf], np.float32)}, {"t": priority})

    def steps(query):
        return [item["columns"][1]["numbers"][0] for item in items(shown, "t", query)]

    assert steps("") == steps("?order=newest") == [2, 1, 0]
    assert steps("?order=oldest&limit=2") == [0, 1]
    assert steps("?order=priority") == [1, 2, 0]
    first = items(shown, "t", "?order=oldest&limit=1")[0]
    assert items(shown, "t", f"?key={first['key']}")[0]["key"] == first["key"]
    assert (first["priority"], first["times_sampled"], first["num_columns"]) == (1.0, 0, 2)
    obs = first["columns"][0]
    assert (obs["path"], obs["dtype"], obs["numbers"]) == ("obs", "float32", [0.5, "inf"])
    assert (obs["min"], obs["max"], obs["mean"]) == (0.5, 0.5, 0.5)


@pytest.mark.long
def test_pixels_are_sent_as_a_picture_and_a_large_column_is_not_sent(shown):
    pixels = np.arange(12 * 10 * 3, dtype=np.uint8).reshape(12, 10, 3)
    step = {"pixels": pixels, "large": np.zeros((10_000, 10_000), np.uint8), "text": np.str_("<b>left</b>")}
    shown.client().insert(step, {"t": 1.0})
    status, _, body = read(shown, "/api/tables/t/items")
    assert status == 200
    assert len(body) < 5000
    large, picture, text = json.loads(body)["items"][0]["columns"]
    assert large["left_out"] == "the column is large"
    assert large["bytes"] == 100_000_000
    assert "picture" not in large
    assert text["text"] == "<b>left</b>"
    sent = picture["picture"]
    assert (sent["height"], sent["width"], sent["channels"], sent["frames"]) == (12, 10, 3, 1)
    assert base64.b64decode(sent["base64"]) == pixels.tobytes()


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/api/tables/none/items", 404, "none"),
        ("/api/tables/t/items?key=12", 404, "12"),
        ("/api/tables/t/items?order=best", 400, "newest, oldest or priority"),
        ("/api/tables/t/items?limit=1000", 400, "between 1 and 50"),
        ("/metrics/more", 404, "nothing at this path"),
    ],
)
def test_a_wrong_request_gets_the_reason(shown, path, status, words):
    got, answer = read_json(shown, path)
    assert got == status
    assert words in answer["error"]


def test_a_token_is_required_of_all_but_health_and_the_empty_page(uniform):
    with Server([uniform()], http=HERE, listen=False, token="open sesame") as server:
        for path in ("/metrics", "/api/info", "/api/why", "/api/events", "/api/tables/t/items"):
            for headers in ({}, {"Authorization": "Bearer open"}, {"Authorization": "open sesame"}):
                status, answer = read_json(server, path, **headers)
                assert status == 401
                assert "token" in answer["error"]
        assert read(server, "/metrics", Authorization="Bearer open sesame")[0] == 200
        assert [read(server, path)[0] for path in ("/", "/livez", "/readyz")] == [200] * 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "needs token="),
        ({"token": "open sesame"}, "needs tls="),
        ({"insecure": True}, "needs token="),
    ],
)
def test_an_address_that_other_machines_reach_needs_a_token_and_tls(uniform, options, words):
    with pytest.raises(ValueError, match=f"0.0.0.0:0 can be reached from other machines and {words}"):
        Server([uniform()], http="0.0.0.0:0", **options)


@pytest.mark.parametrize("address", ["", ":", "localhost:", "localhost", "localhost:http", "localhost:65536", 65536, -1,
                                     "\N{SUPERSCRIPT TWO}", "::1:0"])  # fmt: skip
def test_an_address_without_a_port_is_refused(uniform, address):
    with pytest.raises(
        ValueError, match=r'http must be a port like 9090, or a host and a port like "127.0.0.1:9090", got'
    ):
        Server([uniform()], http=address, listen=False)


@pytest.mark.parametrize("address", [9090.0, True, ("127.0.0.1", 9090)])
def test_an_address_of_another_type_is_refused(uniform, address):
    with pytest.raises(TypeError, match="http must be a port like 9090"):
        Server([uniform()], http=address, listen=False)


@pytest.mark.parametrize("address", [0, "0", ":0", "127.0.0.1:0"])
def test_a_port_alone_is_one_of_this_host(uniform, address):
    with Server([uniform()], http=address, listen=False) as server:
        assert server.http_address.startswith("127.0.0.1:")
        assert read(server, "/livez")[0] == 200


def test_a_server_without_an_http_port_says_how_to_get_one(uniform):
    with Server([uniform()], listen=False) as server:
        with pytest.raises(ValueError, match="pass http="):
            _ = server.http_address
        with pytest.raises(ValueError, match="pass http="):
            server.publish(RUN)


def test_a_page_of_another_site_reads_nothing_through_a_name_of_its_own(shown):
    status, answer = read_json(shown, "/api/info", Host="evil.example")
    assert status == 421
    assert "evil.example" in answer["error"]
    assert read(shown, "/api/info", Host="localhost:1")[0] == 200


def test_a_hundred_tables_with_names_of_markup_are_each_shown_under_their_name():
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


def test_the_page_has_no_other_source_and_writes_no_markup(shown):
    _, headers, page = read(shown, "/")
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert len(page) < 300_000
    assert "run.js" not in page
    assert "clients.js" not in page
    assert "function clientList" in page
    assert "function learningCurve" in page
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert word not in page
    assert set(re.findall(r"https?://[^\s\"'<>]+", page)) == {"http://www.w3.org/2000/svg"}
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    for tag in ("script", "style"):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_events_have_the_newest_figures(shown):
    stream = Stream(shown)
    try:
        assert stream.next()["info"]["tables"][0]["size"] == 0
        shown.client().insert(np.float32(1), {"t": 1.0})
        # One that was made before the insert may come first.
        while (event := stream.next())["info"]["tables"][0]["size"] == 0:
            pass
        assert event["info"]["tables"][0]["size"] == 1
        assert event["why"]["tables"][0]["table"] == "t"
    finally:
        stream.close()


def test_the_number_of_streams_is_bounded_and_a_closed_one_makes_room(shown):
    with contextlib.ExitStack() as open_ones:
        streams = [Stream(shown) for _ in range(MOST_STREAMS)]
        for stream in streams:
            open_ones.callback(stream.close)
        assert {stream.status for stream in streams} == {200}
        status, answer = read_json(shown, "/api/events")
        assert status == 503
        assert f"{MOST_STREAMS} pages" in answer["error"]
        streams[0].close()
        # The server notices it when it writes the next event.
        while (stream := Stream(shown)).status != 200:
            stream.close()
        open_ones.callback(stream.close)
    assert read(shown, "/livez")[0] == 200


def opened(server):
    host, port = server.http_address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), PATIENT)


def is_closed(connection):
    with contextlib.suppress(ConnectionError):
        return connection.recv(1) == b""
    return True


def test_a_connection_beyond_the_bound_is_closed_and_one_that_ends_makes_room(shown):
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(opened(shown)) for _ in range(MOST_CONNECTIONS)]
        assert is_closed(stack.enter_context(opened(shown)))
        connections[0].close()
        while True:  # until the server has noticed it
            with contextlib.suppress(OSError, http.client.HTTPException):
                assert read(shown, "/livez")[0] == 200
                break
        connections[1].sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connections[1].recv(12) == b"HTTP/1.1 200"


def test_a_thousand_pages_that_open_at_once_are_bounded_and_the_others_get_the_reason(shown):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2500:
        pytest.skip(f"1000 connections have 2000 ends, and this process may have {hard} files open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2500), hard))
    statuses = []
    try:
        with contextlib.ExitStack() as stack:
            pages = [stack.enter_context(opened(shown)) for _ in range(1000)]
            for page in pages:
                with contextlib.suppress(ConnectionError):
                    page.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            for page in pages:
                with contextlib.suppress(ConnectionError):
                    statuses.append(page.recv(12))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    answered = [status for status in statuses if status]
    assert answered.count(b"HTTP/1.1 200") == MOST_STREAMS
    assert set(answered) == {b"HTTP/1.1 200", b"HTTP/1.1 503"}
    assert len(answered) == MOST_CONNECTIONS
    while True:  # until the server has noticed that they are closed
        with contextlib.suppress(OSError, http.client.HTTPException):
            assert read(shown, "/livez")[0] == 200
            break


def test_a_stopped_server_closes_its_streams_and_its_port(uniform):
    server = Server([uniform()], http=HERE, listen=False)
    stream = Stream(server)
    stream.next()
    server.stop()
    with contextlib.suppress(OSError, http.client.HTTPException):
        while stream.response.readline():
            pass
    stream.close()
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://{server.http_address}/livez", timeout=PATIENT)


def test_a_request_that_waits_is_shown_with_its_reason(fifo, network, connect):
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


def test_the_guide_has_the_queries_of_the_alert_rules_and_their_metrics_are_exported(shown):
    families = set(re.findall(r"^# TYPE (\w+)", read(shown, "/metrics", Accept=PROMETHEUS)[2], re.MULTILINE))
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    queries = [rule["expr"] for rule in rules]
    assert re.findall(r"^\| `(.*[=<>(].*)` \|", GUIDE.read_text(), re.MULTILINE) == queries
    named = {name for query in queries for name in re.findall(r"reverie_\w+", query)}
    assert {re.sub(r"_(total|bucket|info)$", "", name) for name in named} - families == {"reverie_memory_limit_bytes"}
