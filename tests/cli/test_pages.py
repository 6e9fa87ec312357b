"""`info` and `top` of a page, and that they show the same as those of the data port."""

import dataclasses
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest

testing = pytest.importorskip("typer.testing")

import reverie  # noqa: E402
from reverie.cli.app import app  # noqa: E402
from reverie.cli.figures import storage_lines  # noqa: E402
from reverie.cli.info import add_rates  # noqa: E402

QUICK = ["--rate-seconds", "0.05", "--timeout", "100"]


def run(*arguments, **options):
    return testing.CliRunner().invoke(app, [str(one) for one in arguments], **options)


def looked(address, *arguments):
    done = run("info", address, "--json", *QUICK, *arguments)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture
def server(tmp_path):
    uniform = reverie.Table("t", reverie.selectors.Uniform(), reverie.selectors.Fifo(), 10)
    # So that nothing is written between two looks.
    journal = reverie.Journal(tmp_path / "journal", interval=3600.0)
    with reverie.Server([uniform, reverie.Table.queue("q", 1)], http=0, journal=journal) as server:
        yield server


def test_a_page_and_the_data_port_show_the_same_figures(server):
    client = server.client()
    client.insert_batch("t", {"x": np.zeros((3, 2))})
    client.sample_batch("t", 2)
    client.insert(1, {"q": 1.0})
    page, port = looked(f"http://{server.http_address}/"), looked(server.address)
    assert page["tables"] == port["tables"]
    assert page["tables"]["q"]["insert_reason"]
    for name in ("size_bytes", "max_bytes", "journal"):
        assert page[name] == port[name], name
    assert page.keys() == port.keys()
    with reverie.Client(server.address, transport="grpc") as far:
        info = far.info()
    for name in ("max_network_bytes", "max_memory", "max_connections"):
        assert page[name] == getattr(info, name), name
    assert (page["transport"], page["ready"], page["clients"]["max"]) == ("http", True, info.max_connections)


def test_info_and_top_show_the_journal_and_the_disk_with_their_errors(tmp_path):
    table = reverie.Table("t", reverie.selectors.Uniform(), reverie.selectors.Fifo(), 200)
    options = {"journal": reverie.Journal(tmp_path / "journal"), "disk": tmp_path / "disk", "memory_bytes": 1 << 20}
    with reverie.Server([table], **options) as server:
        for first in range(0, 200, 10):
            server.client().insert_batch("t", {"x": np.random.default_rng(first).random((10, 4096))})
        disk = server.client().info().disk
        for command in (("info", *QUICK), ("top", "--count", "1", "--interval", "0.1", "--timeout", "100")):
            done = run(command[0], server.address, *command[1:])
            assert done.exit_code == 0, done.output
            assert "journal: sync=interval, " in done.stdout
            assert f"disk {disk.folder}: " in done.stdout.replace("\n", "")
            assert "1.0 MB in memory" in done.stdout.replace("\n", " ")
    states = {"journal": {"error": "no space left", "is_full": True}, "disk": None}
    assert list(storage_lines(states)) == [("journal: waits for room on the disk: no space left", True)]
    states["journal"].update(is_full=False, error="an error of the disk")
    states["disk"] = {**dataclasses.asdict(disk), "error": "disk_bytes are used up"}
    stopped, full = storage_lines(states)
    assert stopped == ("journal: has stopped, inserts are refused: an error of the disk", True)
    assert full[0].endswith("no chunk can move: disk_bytes are used up")


def test_all_requests_that_wait_are_counted_and_the_first_thousand_listed(server):
    client = server.client()
    client.insert_batch("q", np.ones(1))
    for _ in range(1003):
        client.insert_batch("q", np.ones(1), wait=False)
    page, port = looked(f"http://{server.http_address}/"), looked(server.address)
    assert page["tables"]["q"]["waiting_inserts"] == port["tables"]["q"]["waiting_inserts"] == 1003
    why = client.why("q")
    assert (why.num_waiting_inserts, len(why.inserts), why.num_waiting_samples) == (1003, 1000, 0)
    client.reset("q")


def test_a_page_shows_its_run_clients_and_trouble(server):
    server.publish({"agent": "dqn", "env": "E-v0", "env_steps": 1200, "updates": 7, "curve": [[500, 1.0, 21.5]]})
    with reverie.Client(server.address, transport="shared-memory") as client:
        client.info()
        done = run("top", f"http://{server.http_address}", "--count", "1", "--interval", "0.1", "--timeout", "100")
    assert done.exit_code == 0, done.output
    assert "dqn on E-v0: 1,200 steps, 7 updates, greedy return 21.5" in done.stdout
    assert "clients: 0 over gRPC, 1 over shared memory" in done.stdout


def test_rates_of_a_page_are_those_of_the_servers_own_clock():
    now = {"tables": {"t": {"inserts": 30, "samples": 0, "updates": 4}}}
    before = {"tables": {"t": {"inserts": 10, "samples": 5, "updates": 4}}}
    add_rates(before, now, 2.0)
    assert now["tables"]["t"]["inserts_per_second"] == 10.0
    assert now["tables"]["t"]["samples_per_second"] is None  # it was reset
    add_rates(before, now, -3.0)  # another server, which has just started
    assert now["tables"]["t"]["inserts_per_second"] is None


def test_a_page_with_a_token_is_shown_with_the_token_only(tmp_path):
    (tmp_path / "token").write_text("open sesame\n")
    table = reverie.Table.queue("q", 1)
    with reverie.Server([table], http=0, listen=False, token="open sesame") as server:
        info = ["info", f"http://{server.http_address}/", *QUICK]
        refused = run(*info, env={"REVERIE_TOKEN": "open"})
        assert refused.exit_code == 1
        assert "token" in refused.stderr
        assert "--token-file" in refused.stderr
        assert run(*info, "--token-file", tmp_path / "token").exit_code == 0


@pytest.mark.long
def test_a_page_with_tls_is_shown_where_its_certificate_is_trusted(pem):
    table = reverie.Table.queue("q", 1)
    tls = reverie.ServerTLS(pem / "server.pem", pem / "server.key")
    with reverie.Server([table], http=0, listen=False, token="t", tls=tls) as server:
        info = ["info", f"https://{server.http_address}/", *QUICK]
        trusted = run(*info, "--tls-ca", pem / "ca.pem", env={"REVERIE_TOKEN": "t"})
        assert trusted.exit_code == 0, trusted.output
        other = run(*info, "--tls-ca", pem / "ca.pem", "--tls-server-name", "other", env={"REVERIE_TOKEN": "t"})
        assert (other.exit_code, "other" in other.stderr) == (1, True), other.output
        unknown = run(*info, env={"REVERIE_TOKEN": "t"})
        assert (unknown.exit_code, "certificate" in unknown.stderr) == (1, True), unknown.output


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://here:port/", "is not the address of a page: write http://HOST:PORT/"),
        ("http://127.0.0.1:1/api/info", "is not the address of a page"),
        ("http:///", "is not the address of a page"),
    ],
)
def test_a_malformed_address_of_a_page_is_refused_with_exit_code_2(address, words):
    done = run("info", address)
    assert (done.exit_code, words in done.stderr) == (2, True), done.output


def test_flags_of_tls_are_refused_for_a_page_without_it(tmp_path):
    done = run("top", "http://127.0.0.1:1/", "--tls-ca", tmp_path / "ca.pem")
    assert (done.exit_code, "has no TLS: write https://" in done.stderr) == (2, True), done.output


def test_a_page_that_nothing_serves_is_reported_at_once_with_exit_code_1():
    done = run("top", "http://127.0.0.1:1/", "--timeout", "100")
    (line,) = done.stderr.splitlines()
    assert done.exit_code == 1
    assert line == "reverie: http://127.0.0.1:1/ cannot be reached: Connection refused; is a server running there?"


def test_another_page_is_not_taken_for_one_of_a_server():
    class Other(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>")

        def log_message(self, *arguments):
            pass

    with HTTPServer(("127.0.0.1", 0), Other) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        try:
            done = run("info", f"http://127.0.0.1:{other.server_port}/", *QUICK)
        finally:
            other.shutdown()
            thread.join()
    assert (done.exit_code, "is not the page of a server" in done.stderr) == (1, True), done.output
