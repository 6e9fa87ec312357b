import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from unittest.mock import MagicMock, Mock

import numpy as np
import pytest

pytest.importorskip("typer")
import typer

import reverie
from reverie import spans
from reverie.cli import connecting

COMMAND = [sys.executable, "-c", "import reverie.cli; reverie.cli.main()"]
PATIENT = ["--timeout", "100"]


@pytest.fixture
def served(start):
    """Starts `reverie serve`, gives the process and what it printed as JSON; ends what a test left running."""

    def served(*arguments):
        process = start("serve", "--json", *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        line = process.stdout.readline()
        assert line, process.stderr.read()
        return process, json.loads(line)

    return served


def reach(hello):
    """A client that bears with a busy machine."""
    return reverie.Client(hello["address"], patience=100.0, grace=100.0)


def run(*arguments, **options):
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=200, check=False, **options)


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    """Runs a command in this process, in the test's folder, for what its process adds nothing to."""
    from typer.testing import CliRunner

    from reverie.cli.app import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    return lambda *arguments, **options: CliRunner().invoke(app, arguments, **options)


def test_a_server_with_an_http_port_prints_the_address_of_its_page(served):
    _, hello = served("--table", "t", "--http", "0")
    with urllib.request.urlopen(f"{hello['page']}readyz", timeout=200) as response:
        assert response.read() == b"ready\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_server_cleanly_with_exit_code_0(served, number):
    process, hello = served("--table", "t", "--max-size", "9")
    assert hello["tables"] == ["t"]
    with reach(hello) as client:
        client.insert(np.arange(3), {"t": 1.0})
        assert client.info().tables["t"].max_size == 9
    process.send_signal(number)
    assert process.wait(timeout=200) == 0


def test_the_flags_describe_one_table(served):
    _, hello = served(
        "--sampler", "prioritized", "--priority-exponent", "0.9", "--remover", "lifo", "--min-size", "3",
        "--samples-per-insert", "2", "--error-buffer", "8", "--max-times-sampled", "5",
    )  # fmt: skip
    with reach(hello) as client:
        table = client.info().tables["replay"]
    assert table.sampler_options.prioritized.priority_exponent == 0.9
    assert table.remover_options.lifo
    assert table.max_times_sampled == 5
    limiter = table.rate_limiter_info
    assert (limiter.samples_per_insert, limiter.min_size_to_sample) == (2.0, 3)
    assert (limiter.min_diff, limiter.max_diff) == (-2.0, 14.0)


def test_servers_with_numbers_are_the_shards_of_one_replay(served):
    addresses = [served("--sampler", "prioritized", "--shard", str(shard))[1]["address"] for shard in range(2)]
    limiter = reverie.rate_limiters.SampleToInsertRatio(2.0, 1, 20.0)
    with reverie.Client(addresses, rate_limiter=limiter, timeout=100.0, patience=100.0) as client:
        keys = [client.insert_batch("replay", {"x": np.full(2, shard)}, shard=shard) for shard in range(2)]
        batch = client.sample_batch("replay", 20)
        assert set(batch.info.key) <= set(np.concatenate(keys))
        assert set(batch.data["x"]) == {0, 1}


def test_a_file_of_tables_is_served(served, tmp_path):
    (tmp_path / "tables.toml").write_text(
        '[[tables]]\nname = "a"\nmax_size = 4\n[[tables]]\nname = "b"\nmax_size = 5\n'
    )
    _, hello = served("tables.toml")
    assert hello["tables"] == ["a", "b"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.toml"], "missing.toml: no such file or directory"),
        (["--samples-per-insert", "2"], "must be given together"),
        (["--tls-cert", "x"], "--tls-cert and --tls-key must be given together"),
        (["--host", "0.0.0.0"], "0.0.0.0 can be reached from other machines: name a token with --token-file FILE"),
        (["--host", "::", "--token-file", "x"], "name a certificate with --tls-cert and --tls-key"),
        (["--http", "0.0.0.0:9090"], "0.0.0.0 can be reached from other machines: name a token with --token-file FILE"),
        (["--http", "localhost"], '--http must be a port like 9090, or a host and a port like "127.0.0.1:9090"'),
        (["--http", "::1:9090"], "got '::1:9090'"),
        (["--checkpoint-every", "3"], "--checkpoint-every needs --checkpoints FOLDER"),
        (["--token-file", os.devnull], "is empty"),
        (["--checkpoints", os.devnull], f"--checkpoints {os.devnull} cannot be written to: file exists"),
        (["--checkpoints", "/proc/kept"], "--checkpoints /proc/kept cannot be written to"),
        (["t.toml", "--max-size", "5", "--table", "x"], "--table, --max-size: the tables come from t.toml"),
        (
            ["--priority-exponent", "0.6"],
            "--priority-exponent is for --sampler prioritized, and --sampler is 'uniform'",
        ),
        (["--journal", "/proc/kept"], "--journal /proc/kept cannot be written to"),
        (["--sync", "always"], "--sync needs --journal FOLDER"),
        (["--sync-interval", "2"], "--sync-interval needs --journal FOLDER"),
        (["--journal", "kept", "--sync", "often"], "sync must be"),
        (["--sampler", "best"], "unknown kind 'best'; known are fifo"),
        (["--shard", "64"], "--shard"),
        (["--shard", "1", "--samples-per-insert", "2", "--error-buffer", "8"], "--shard"),
    ],
)
def test_invalid_servers_are_refused_with_exit_code_2_and_one_line(invoke, arguments, words):
    done = invoke("serve", *arguments)
    assert done.exit_code == 2, done.output
    assert words in done.stderr
    assert isinstance(done.exception, SystemExit), "no other exception reaches the shell"


def test_every_flag_of_the_server_reaches_it(invoke, tmp_path, monkeypatch):
    given = {}

    def server(tables, **options):
        given.update(options, tables=[table.name for table in tables])
        raise ValueError("enough was seen")

    monkeypatch.setattr(reverie, "Server", server)
    monkeypatch.setattr(spans, "provide", lambda: given.update(provided=True))
    (tmp_path / "token").write_text("open sesame\n")
    files = {name: tmp_path / name for name in ("cert", "key", "ca")}
    done = invoke(
        *["serve", "--table", "t", "--host", "0.0.0.0", "--port", "4321", "--token-file", str(tmp_path / "token"),
         "--tls-cert", str(files["cert"]), "--tls-key", str(files["key"]), "--client-ca", str(files["ca"]),
         "--insecure", "--max-bytes", "12345", "--max-memory", "1.5GiB",
         "--disk", str(tmp_path / "disk"), "--memory", "8MB", "--disk-size", "2 gib", "--grace", "7.5", "--shard", "3",
         "--max-connections", "17", "--session-timeout", "2.5", "--http", "0.0.0.0:9090", "--tracing",
         "--checkpoints", str(tmp_path / "kept"), "--checkpoint-every", "60",
         "--journal", str(tmp_path / "kept"), "--sync", "always", "--sync-interval", "0.25"],
    )  # fmt: skip
    assert (done.exit_code, "enough was seen" in done.stderr) == (2, True), done.output
    checkpointer, tls = given.pop("checkpointer"), given.pop("tls")
    journal = given.pop("journal")
    assert (journal.path, journal.sync, journal.interval) == (str(tmp_path / "kept"), "always", 0.25)
    assert (checkpointer.path, checkpointer.period) == (str(tmp_path / "kept"), 60.0)
    assert (tls.cert, tls.key, tls.client_ca) == tuple(files.values())
    assert given == {
        "tables": ["t"],
        "host": "0.0.0.0",
        "port": 4321,
        "token": "open sesame",
        "insecure": True,
        "max_bytes": 12345,
        "max_memory": 3 * 2**29,
        "disk": tmp_path / "disk",
        "memory_bytes": 8_000_000,
        "disk_bytes": 2**31,
        "max_connections": 17,
        "grace": 7.5,
        "session_timeout": 2.5,
        "http": "0.0.0.0:9090",
        "shard": 3,
        "tracing": True,
        "provided": True,
    }


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--memory", "1GiB"], "--memory needs --disk FOLDER"),
        (["--disk-size", "1GiB"], "--disk-size needs --disk FOLDER"),
        (["--disk", "d", "--memory", "much"], "'much' is not a size"),
        (["--disk", "d", "--memory", "0"], "'0' is not a size"),
        (["--max-bytes", "3 QB"], "'3 QB' is not a size"),
    ],
)
def test_sizes_that_have_no_effect_or_are_none_are_refused(invoke, flags, words):
    done = invoke("serve", *flags)
    assert done.exit_code == 2
    assert words in done.stderr


def test_every_flag_of_the_table_is_refused_with_a_file(invoke):
    flags = {"--sampler": "fifo", "--remover": "lifo", "--min-size": "1", "--samples-per-insert": "1",
             "--error-buffer": "4", "--max-times-sampled": "0", "--priority-exponent": "0.6"}  # fmt: skip
    # Also a warning that names what the server is without.
    reported = invoke("serve", "t.toml", *(word for flag in flags.items() for word in flag)).stderr
    assert [flag for flag in flags if flag not in reported] == []


@pytest.mark.long
def test_a_server_without_tls_off_loopback_warns_and_prints_how_to_connect(tmp_path):
    (tmp_path / "secret").write_text("of-the-test")
    process = subprocess.Popen(
        [*COMMAND, "serve", "--host", "0.0.0.0", "--insecure", "--token-file", "secret"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
    )  # fmt: skip
    try:
        said = iter(process.stderr.readline, "")
        warning = next(line for line in said if "no TLS: anybody on the network path can read and change" in line)
        serving, call = process.stdout.readline(), process.stdout.readline()
        port = serving.split(";")[0].rpartition(":")[2]
        assert f"0.0.0.0:{port}" in warning
        assert f':{port}", token=pathlib.Path(' in call
        assert "0.0.0.0" not in call
    finally:
        process.kill()
        process.communicate(timeout=200)


@pytest.mark.long
def test_the_package_is_run_as_the_command_is():
    done = subprocess.run(
        [sys.executable, "-m", "reverie", "info", "nowhere"], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 2
    assert "'nowhere' is not HOST:PORT" in done.stderr


@pytest.mark.long
def test_a_shell_completes_commands_and_flags():
    for words, found in (("reverie ser", ["serve"]), ("reverie serve --checkpoints", ["--checkpoints"])):
        asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_REVERIE_COMPLETE": "complete_bash"}
        done = subprocess.run(
            [sys.executable, "-c", "import sys, reverie.cli; sys.argv = ['reverie']; reverie.cli.main()"],
            capture_output=True, text=True, timeout=200, check=False, env={**os.environ, **asked},
        )  # fmt: skip
        assert done.stdout.split() == found


@pytest.mark.long
def test_a_server_with_checkpoints_restores_the_items_of_the_stopped_server(served, tmp_path):
    held = 0
    for added in (3, 2):
        process, hello = served("--checkpoints", "kept")
        with reach(hello) as client:
            assert client.info().tables["replay"].current_size == held
            client.insert_batch("replay", {"x": np.zeros((added, 2))})
            held += added
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=200) == 0
        assert "saved as" in process.stderr.read()
    newest = max((tmp_path / "kept").glob("*.checkpoint"))
    newest.write_bytes(newest.read_bytes()[:-3])
    refused = run("serve", "--checkpoints", "kept", cwd=tmp_path)
    assert refused.returncode == 2
    assert newest.name in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_server_with_a_journal_comes_back_after_a_kill(served):
    held = 0
    for added in (3, 2, 4):
        process, hello = served("--journal", "kept")
        with reach(hello) as client:
            assert client.info().tables["replay"].current_size == held
            client.insert_batch("replay", {"x": np.zeros((added, 2))})
            held += added
            process.send_signal(signal.SIGKILL)
            assert process.wait(timeout=200) == -signal.SIGKILL


def test_checkpoints_are_taken_at_the_given_period(served, tmp_path):
    process, hello = served("--checkpoints", "kept", "--checkpoint-every", "0.05")
    with reach(hello) as client:
        client.insert_batch("replay", {"x": np.zeros((3, 2))})
    while not list((tmp_path / "kept").glob("*.checkpoint")):
        assert process.poll() is None


@pytest.mark.long
def test_top_ends_with_1_and_a_line_when_its_server_dies(served):
    process, hello = served()
    command = [*COMMAND, "top", hello["address"], "--json", "--interval", "0.1", "--timeout"]
    for seconds in ("5", "100"):  # the first look may take its time on a busy machine
        top = subprocess.Popen([*command, seconds], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            look = top.stdout.readline()
            if not look:
                continue
            assert json.loads(look)["address"] == hello["address"]
            process.send_signal(signal.SIGKILL)
            _, reported = top.communicate(timeout=200)
            break
        finally:
            top.kill()
    assert top.returncode == 1
    lost, line = reported.splitlines()
    assert f"the connection to {hello['address']} was lost" in lost
    assert line.startswith(f"reverie: info: the timeout passed; {hello['address']} could not be reached for ")


def test_a_malformed_address_is_refused_with_exit_code_2(invoke):
    done = invoke("info", "nowhere")
    assert done.exit_code == 2
    assert "'nowhere' is not HOST:PORT" in done.stderr


def test_info_prints_sizes_rates_and_waiting_requests_as_json_and_as_text(served, invoke):
    _, hello = served("--min-size", "5")
    with reach(hello) as client:
        client.insert_batch("replay", {"x": np.zeros((3, 2))})
        done = run("info", hello["address"], "--json", "--rate-seconds", "0.05", *PATIENT)
        assert done.returncode == 0, done.stderr
        reported = json.loads(done.stdout)
        table = reported["tables"]["replay"]
        assert (table["size"], table["inserts"], table["inserts_per_second"]) == (3, 3, 0.0)
        assert "5" in table["sample_reason"]
    text = invoke("info", hello["address"], "--rate-seconds", "0.05", *PATIENT)
    assert text.exit_code == 0, text.stderr
    assert "replay" in text.stdout
    memory = r"memory limit [\d.]+ GB; connections use [\d.]+ [kM]?B of [\d.]+ GB"
    assert re.search(memory, text.stdout), text.stdout


@pytest.mark.long
def test_top_prints_one_json_object_per_update(served):
    _, hello = served()
    done = run("top", hello["address"], "--json", "--count", "2", "--interval", "0.1", *PATIENT)
    assert done.returncode == 0, done.stderr
    looks = [json.loads(line) for line in done.stdout.splitlines()]
    assert [list(look["tables"]) for look in looks] == [["replay"], ["replay"]]


@pytest.mark.parametrize("command", ["info", "top"])
def test_a_port_that_refuses_is_reported_at_once_in_a_line_with_exit_code_1(invoke, command):
    done = invoke(command, "127.0.0.1:1", *PATIENT)
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert line == "reverie: 127.0.0.1:1 cannot be reached: Connection refused; is a server running there?"


@pytest.mark.parametrize(
    ("address", "error", "reason"),
    [
        ("[::1]:7", ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        ("no-such-host:7", socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
    ],
)
def test_a_refused_port_and_an_unknown_host_are_reported_without_retries(monkeypatch, capsys, address, error, reason):
    asked = Mock(side_effect=error)
    monkeypatch.setattr(connecting.socket, "create_connection", asked)
    monkeypatch.setattr(connecting.reverie, "Client", Mock())
    with pytest.raises(typer.Exit) as ended, connecting.connected(address, 3.0, connecting.Credentials()):
        raise AssertionError("it went on")
    assert ended.value.exit_code == 1
    assert capsys.readouterr().err == f"reverie: {address} cannot be reached: {reason}; is a server running there?\n"
    asked.assert_called_once_with((address.removesuffix(":7").strip("[]"), 7), timeout=3.0)


def test_a_host_that_does_not_respond_is_reported_by_the_client(monkeypatch):
    monkeypatch.setattr(connecting.socket, "create_connection", Mock(side_effect=TimeoutError()))
    made = MagicMock()
    made.__enter__.return_value = made
    monkeypatch.setattr(connecting.reverie, "Client", Mock(return_value=made))
    with connecting.connected("192.0.2.1:7", 3.0, connecting.Credentials()) as client:
        assert client is made
    made.__enter__.assert_called_once()


def test_a_server_with_a_token_admits_info_only_with_the_token(served, invoke, tmp_path):
    (tmp_path / "token").write_text("secret-of-the-test\n")
    _, hello = served("--token-file", "token")
    info = ["info", hello["address"], "--rate-seconds", "0.05", *PATIENT]
    refused = invoke(*info, env={"REVERIE_TOKEN": "wrong"})
    assert refused.exit_code == 1
    assert "token" in refused.stderr
    assert "--token-file" in refused.stderr
    admitted = invoke(*info, "--token-file", str(tmp_path / "token"))
    assert admitted.exit_code == 0, admitted.stderr
