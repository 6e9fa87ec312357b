"""Connections of `info` and `top`."""

import pytest

testing = pytest.importorskip("typer.testing")

import reverie  # noqa: E402
from reverie.cli.app import app  # noqa: E402


def run(*arguments):
    return testing.CliRunner().invoke(app, [str(one) for one in arguments])


@pytest.mark.parametrize("command", ["info", "top"])
def test_every_flag_of_tls_reaches_the_client(tmp_path, monkeypatch, command):
    given = {}

    def client(address, **options):
        given.update(options, address=address)
        raise ValueError("enough was seen")

    monkeypatch.setattr(reverie, "Client", client)
    files = {name: tmp_path / name for name in ("ca", "cert", "key")}
    flags = [word for name, path in files.items() for word in (f"--tls-{name}", path)]
    done = run(command, "far:8000", *flags, "--tls-server-name", "replay.example")
    assert (done.exit_code, "enough was seen" in done.stderr) == (2, True), done.output
    assert given["address"] == "far:8000"
    assert given["tls"] == reverie.ClientTLS(**files, server_name="replay.example")


@pytest.mark.parametrize("command", ["info", "top"])
def test_a_server_name_without_tls_is_refused(command):
    done = run(command, "far:8000", "--tls-server-name", "replay.example")
    assert done.exit_code == 2
    assert "--tls-server-name is replay.example, and the connection has no TLS" in done.stderr
