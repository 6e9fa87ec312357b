"""The HTTP port of a server: metrics, health, JSON, events and the page."""

import base64
import contextlib
import hashlib
import http.client
import json
import re
import resource
import socket
import urllib.error
import urllib.request

import numpy as np
import pytest

from reverie import Server, Table, rate_limiters, selectors

HERE = "127.0.0.1:0"
#: Connections and streams of events that a server has at a time.
MOST_CONNECTIONS, MOST_STREAMS = 128, 16
#: A wait that ends only where something is broken.
PATIENT = 100
#: The least that a training run publishes, and what its metrics are made from.
RUN = {"agent": "a", "env": "e", "env_steps": 1, "updates": 1, "curve": [[1, 1, 1]], "policy_age_updates": 1}


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


def test_health_is_plain_text(shown, read):
    assert read(shown, "/livez")[::2] == (200, "alive\n")
    assert read(shown, "/readyz")[::2] == (200, "ready\n")


def test_info_and_why_have_the_figures_of_each_table(read_json):
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


def test_items_come_in_an_order_or_by_their_key(shown, items):
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
def test_pixels_are_sent_as_a_picture_and_a_large_column_is_not_sent(shown, read):
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
def test_a_wrong_request_gets_the_reason(shown, path, status, words, read_json):
    got, answer = read_json(shown, path)
    assert got == status
    assert words in answer["error"]


def test_a_token_is_required_of_all_but_health_and_the_empty_page(uniform, read_json, read):
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
def test_a_port_alone_is_one_of_this_host(uniform, address, read):
    with Server([uniform()], http=address, listen=False) as server:
        assert server.http_address.startswith("127.0.0.1:")
        assert read(server, "/livez")[0] == 200


def test_the_error_of_a_server_without_an_http_port_explains_how_to_get_one(uniform):
    with Server([uniform()], listen=False) as server:
        with pytest.raises(ValueError, match="pass http="):
            _ = server.http_address
        with pytest.raises(ValueError, match="pass http="):
            server.publish(RUN)


def test_a_page_of_another_site_reads_nothing_through_a_name_of_its_own(shown, read_json, read):
    status, answer = read_json(shown, "/api/info", Host="evil.example")
    assert status == 421
    assert "evil.example" in answer["error"]
    assert read(shown, "/api/info", Host="localhost:1")[0] == 200


def test_the_page_has_no_other_source_and_writes_no_markup(shown, read):
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


def test_the_number_of_streams_is_bounded_and_a_closed_one_makes_room(shown, read_json, read):
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


def test_a_connection_beyond_the_bound_takes_the_place_of_the_longest_silent_one(shown, read):
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(opened(shown)) for _ in range(2 * MOST_CONNECTIONS)]
        assert read(shown, "/livez")[0] == 200
        assert is_closed(connections[0])
        connections[-1].sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connections[-1].recv(12) == b"HTTP/1.1 200"


def test_a_thousand_pages_that_open_at_once_are_bounded_and_the_others_get_the_reason(shown, read):
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
    assert len(answered) >= MOST_CONNECTIONS
    while True:  # until the server has noticed that they are closed
        with contextlib.suppress(OSError, http.client.HTTPException):
            assert read(shown, "/livez")[0] == 200
            break


def test_a_stopped_server_closes_its_streams_and_its_port(uniform):
    server = Server([uniform()], http=HERE, listen=False)
    stream = Stream(server)
    stream.next()
    server.stop()
    with contextlib.suppress(ConnectionError, http.client.HTTPException):  # and no timeout of a read
        while stream.response.readline():
            pass
    stream.close()
    with pytest.raises(urllib.error.URLError) as refused:
        urllib.request.urlopen(f"http://{server.http_address}/livez", timeout=PATIENT)
    assert isinstance(refused.value.reason, ConnectionRefusedError)
