"""Clients that are admitted, and requests that others can make."""

import contextlib
import logging
import pickle
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest

import reverie
from reverie import Client, ClientTLS, Server, ServerTLS


def test_every_client_needs_the_token(uniform, network, connect):
    with Server([uniform()], token="open sesame") as server:
        client = connect(server.address, transport=network, token="open sesame")
        client.insert({"n": 1}, {"t": 1.0}, timeout=200)
        for wrong in (None, "open barley"):
            with pytest.raises(reverie.UnauthenticatedError, match="token") as raised:
                connect(server.address, transport=network, token=wrong).can_sample("t")
            assert isinstance(raised.value, PermissionError)
            assert str(raised.value).startswith(f"{server.address}: the ")
        assert client.can_sample("t")


@pytest.fixture(params=["variable", "file"])
def kept(request, monkeypatch, tmp_path):
    """A token's place, and what moves another token there (None: nothing)."""
    if request.param == "file":
        path = tmp_path / "token"
        return reverie.Token.from_file(path), lambda text: path.unlink() if text is None else path.write_text(text)

    def move(text):
        monkeypatch.delenv("TOKEN_OF_THE_TEST", raising=False)
        if text is not None:
            monkeypatch.setenv("TOKEN_OF_THE_TEST", text)

    return reverie.Token.from_env("TOKEN_OF_THE_TEST"), move


def test_a_token_given_by_its_place_is_read_there_and_is_in_no_pickle(uniform, network, connect, kept):
    token, move = kept
    move("open sesame\n")
    with Server([uniform()], token=token) as server:
        client = connect(server.address, transport=network, token=token)
        assert client.can_sample("t") is False
        for one in (client, server.client(), token):
            assert b"sesame" not in pickle.dumps(one)
        assert b"sesame" in pickle.dumps(connect(server.address, transport=network, token="open sesame"))
        with pickle.loads(pickle.dumps(client)) as again:
            assert again.can_sample("t") is False
        # Read again by the process that unpickles it, and only then.
        move("open barley")
        assert client.can_sample("t") is False
        with pickle.loads(pickle.dumps(client)) as again, pytest.raises(reverie.UnauthenticatedError, match="token"):
            again.can_sample("t")
        packed = pickle.dumps(client)
        move(None)
        with pytest.raises((ValueError, FileNotFoundError), match=r"TOKEN_OF_THE_TEST|token"):
            pickle.loads(packed)


def test_a_token_whose_place_is_empty_is_refused_with_the_place_at_both_ends(uniform, kept):
    token, move = kept
    move(" \n")
    for use in (lambda: Server([uniform()], token=token), lambda: Client("localhost:1", token=token)):
        with pytest.raises(ValueError, match=r"(variable 'TOKEN_OF_THE_TEST'|file '.*token') contains no token"):
            use()
    assert pickle.loads(pickle.dumps(token)) == token
    assert repr(token).startswith("Token.from_")
    with pytest.raises(TypeError, match=r"Token\.from_env"):
        reverie.Token("open sesame")
    with pytest.raises(TypeError, match="name of an environment variable"):
        reverie.Token.from_env("")


def test_a_client_of_this_process_shows_the_token_where_it_is_unpickled_elsewhere(uniform, monkeypatch):
    with Server([uniform()], token="open sesame") as server:
        packed = pickle.dumps(server.client(timeout=200))
        # As in another process, whose servers are others.
        monkeypatch.setattr("reverie.client.client._LISTENING", {})
        with pickle.loads(packed) as elsewhere:
            assert elsewhere.info(timeout=200).transport != "in-process"
            assert elsewhere.can_sample("t") is False


def test_tls_authenticates_the_server_and_rejects_others(uniform, connect, pem):
    tls = ServerTLS(cert=pem / "server.pem", key=pem / "server.key")
    with Server([uniform()], tls=tls) as server:
        client = connect(server.address, transport="grpc", tls=ClientTLS(ca=pem / "ca.pem"))
        client.insert({"n": 1}, {"t": 1.0}, timeout=200)
        named = ClientTLS(ca=(pem / "ca.pem").read_bytes(), server_name="server.test")
        assert connect(server.address, transport="grpc", tls=named).can_sample("t")
        with pytest.raises(
            reverie.UnauthenticatedError, match=rf"{server.address}: TLS .*; ClientTLS\(ca=\) must name"
        ):
            connect(server.address, transport="grpc", tls=ClientTLS(ca=pem / "other.pem")).can_sample("t")
        with pytest.raises(reverie.UnauthenticatedError, match=r"localhost.*ClientTLS\(server_name=\)"):
            connect(
                server.address,
                transport="grpc",
                patience=1.0,
                tls=ClientTLS(ca=pem / "ca.pem", server_name="elsewhere.test"),
            ).can_sample("t")


def test_a_client_without_tls_gets_an_error_at_once_from_a_server_with_tls(uniform, connect, pem, caplog, until):
    tls = ServerTLS(cert=pem / "server.pem", key=pem / "server.key")
    with Server([uniform()], tls=tls, token="open sesame") as server:
        for transport in ("grpc", "shared-memory"):
            # A client that waits for it gets an error that it is missing.
            with pytest.raises(reverie.UnauthenticatedError, match=f"{server.address}: the server asks for TLS.*tls="):
                connect(server.address, transport=transport, patience=120, token="open sesame").can_sample("t")
        until(lambda: not server.wait(timeout=0) and "was refused: the server asks for TLS" in caplog.text)


def test_a_client_with_tls_gets_an_error_at_once_from_a_server_without_tls(uniform, connect, pem):
    with Server([uniform()]) as server, pytest.raises(reverie.UnauthenticatedError, match="leave out tls="):
        connect(server.address, transport="grpc", patience=120, tls=ClientTLS(ca=pem / "ca.pem")).can_sample("t")


def test_a_client_without_tls_detects_any_peer_with_tls(connect):
    alert = bytes([21, 3, 3, 0, 2, 2, 70])  # A TLS record: fatal, protocol_version.
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse():
            # Repeated: on a busy machine an attempt may time out before it arrives.
            with contextlib.suppress(OSError):
                while True:
                    stream, _ = listener.accept()
                    with stream, contextlib.suppress(OSError):
                        stream.sendall(alert)
                        stream.shutdown(socket.SHUT_WR)
                        while stream.recv(1 << 16):
                            pass

        refusing = threading.Thread(target=refuse)
        refusing.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        try:
            with pytest.raises(reverie.UnauthenticatedError, match=f"{address}: the server asks for TLS; pass tls="):
                connect(address, transport="grpc", patience=120).can_sample("t")
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            refusing.join(200)


@pytest.mark.parametrize(
    ("token", "words"),
    [("", "empty"), ("open\n", "line break.*strip"), ("sésame", "printable ASCII"), ("a\tb", "ASCII")],
)
def test_a_token_that_no_client_could_send_is_refused_at_both_ends(uniform, token, words):
    with pytest.raises(ValueError, match=words):
        Server([uniform()], token=token)
    with pytest.raises(ValueError, match=words):
        Client("localhost:1", token=token)


def test_an_address_with_a_scheme_is_refused_where_it_is_given():
    with pytest.raises(ValueError, match="'http://localhost:1' is not HOST:PORT"):
        Client("http://localhost:1")


def test_a_server_logs_refused_clients(uniform, network, connect, caplog, until):
    with Server([uniform()], token="open sesame") as server:
        with pytest.raises(reverie.UnauthenticatedError):
            connect(server.address, transport=network, token="open barley").can_sample("t")
        until(lambda: not server.wait(timeout=0) and "was refused: the token" in caplog.text)


def test_a_server_may_ask_its_clients_for_certificates(uniform, connect, pem):
    tls = ServerTLS(cert=pem / "server.pem", key=pem / "server.key", client_ca=pem / "ca.pem")
    with Server([uniform()], tls=tls) as server:
        shown = ClientTLS(ca=pem / "ca.pem", cert=pem / "client.pem", key=pem / "client.key")
        assert not connect(server.address, transport="grpc", tls=shown).can_sample("t")
        unknown = ClientTLS(ca=pem / "ca.pem")
        stranger = ClientTLS(ca=pem / "ca.pem", cert=pem / "other.pem", key=pem / "other.key")
        for shows, words in (
            (unknown, r"does the server ask for a certificate of the client.*ClientTLS\(cert=, key=\)"),
            (stranger, r"TLS was refused .*and trust it\? ClientTLS\(cert=, key=\)"),
        ):
            with pytest.raises(reverie.UnauthenticatedError, match=words):
                connect(server.address, transport="grpc", tls=shows, patience=120).can_sample("t")


def test_off_loopback_a_server_needs_a_token_and_tls(uniform):
    with pytest.raises(ValueError, match="token"):
        Server([uniform()], host="0.0.0.0")
    with pytest.raises(ValueError, match="insecure"):
        Server([uniform()], host="0.0.0.0", token="open sesame")
    with Server([uniform()], host="0.0.0.0", token="open sesame", insecure=True) as server:
        assert server.port


def test_invalid_certificates_are_refused_when_they_are_given(uniform, tmp_path):
    with pytest.raises(ValueError, match="key"):
        ClientTLS(cert=b"x")
    with pytest.raises(ValueError, match="PEM"):
        Server([uniform()], tls=ServerTLS(cert=b"no", key=b"no"))
    with pytest.raises(FileNotFoundError):
        Client("localhost:1", tls=ClientTLS(ca=tmp_path / "missing.pem"))


def test_a_port_that_is_taken_is_named(uniform):
    with Server([uniform()]) as server, pytest.raises(ValueError, match=str(server.port)):
        Server([uniform()], port=server.port)


def test_random_bytes_at_the_port_disturb_no_client(uniform, own_host, connect):
    rng = np.random.default_rng(0)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    with own_host.serve([uniform()]) as address:
        client = connect(address, transport="grpc")
        client.insert({"n": 1}, {"t": 1.0}, timeout=200)
        host, port = address.rsplit(":", 1)
        for number in range(60):
            with socket.create_connection((host, int(port)), timeout=200) as stranger:
                garbage = rng.bytes(int(rng.integers(1, 5000)))
                try:
                    stranger.sendall(preface + garbage if number % 2 else garbage)
                    stranger.shutdown(socket.SHUT_WR)
                    while stranger.recv(1 << 16):
                        pass
                except OSError:
                    pass
        assert client.sample_batch("t", 1, timeout=200).data["n"].tolist() == [1]
        assert connect(address, transport="grpc").info().reconnects == 0
        assert own_host.alive


STRANGER = """
import sys, reverie
try:
    reverie.Client(sys.argv[1], transport=sys.argv[2], token="not-the-one-at-all").info(timeout=200)
except reverie.UnauthenticatedError:
    print("refused")
"""


@pytest.mark.long
def test_the_last_log_lines_of_a_server_are_written_when_it_has_stopped(uniform, network, caplog):
    with caplog.at_level(logging.WARNING, "reverie"):
        server = Server([uniform()], token="the-one-that-it-asks-for")
        command = [sys.executable, "-c", STRANGER, server.address, network]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "refused\n"
        assert "was refused" not in caplog.text, "no call has taken it along yet"
        server.stop()
        assert "was refused" in caplog.text


def test_the_http_port_has_the_servers_tls(uniform, pem):
    tls = ServerTLS(cert=pem / "server.pem", key=pem / "server.key")
    with Server([uniform()], tls=tls, http="127.0.0.1:0") as server:
        page = f"https://{server.http_address}/livez"
        context = ssl.create_default_context(cafile=pem / "ca.pem")
        with urllib.request.urlopen(page, timeout=100, context=context) as response:
            assert response.read() == b"alive\n"
        other = ssl.create_default_context(cafile=pem / "other.pem")
        with pytest.raises(urllib.error.URLError, match="certificate verify failed"):
            urllib.request.urlopen(page, timeout=100, context=other)
