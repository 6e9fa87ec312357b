import pickle
import socket

import pytest

pytest.importorskip("torch")

from reverie import ServerTLS, Token
from reverie.runners import Page
from reverie.runners.planning.page_address import page_address


@pytest.mark.parametrize(
    ("http", "address"),
    [(0, "127.0.0.1:0"), ("0", "127.0.0.1:0"), ("localhost:0", "localhost:0"), ("[::1]:0", "[::1]:0")],
)
def test_the_page_of_a_run_on_loopback_needs_no_token(http, address):
    assert page_address(http, "process") == Page(address)


@pytest.mark.parametrize(
    ("http", "runner", "words"),
    [
        ("0.0.0.0:8080", "local", "other machines can reach: give the page a token"),
        ("[::]:8080", "ray", "other machines can reach: give the page a token"),
        ("example:8080", "local", "other machines can reach"),
        (Page("0.0.0.0:8080", ""), "local", "give the page a token"),
        (Page("0.0.0.0:8080", insecure=True), "process", "give the page a token"),
        (Page("0.0.0.0:8080", "sesame"), "ray", "give the page a certificate"),
        ("here", "local", "a port like 9090, or a host and a port"),
    ],
)
def test_an_address_where_a_run_can_have_no_page_is_refused(http, runner, words):
    with pytest.raises(ValueError, match=words):
        page_address(http, runner)


def test_credentials_are_read_once_so_that_another_machine_can_open_the_page(tmp_path, pem):
    (tmp_path / "token").write_text("sesame\n")
    tls = ServerTLS(pem / "server.pem", pem / "server.key", pem / "ca.pem")
    page = page_address(Page("0.0.0.0:0", Token.from_file(tmp_path / "token"), tls), "process")
    (tmp_path / "token").unlink()
    moved = pickle.loads(pickle.dumps(page))
    files = [(pem / name).read_bytes() for name in ("server.pem", "server.key", "ca.pem")]
    assert (moved.token, [moved.tls.cert, moved.tls.key, moved.tls.client_ca]) == ("sesame", files)
    assert page_address(moved, "ray") == page
    assert "sesame" not in repr(page)
    assert "BEGIN" not in repr(page)
    assert page_address(Page("0.0.0.0:0", "sesame", insecure=True), "local").tls is None


def test_the_address_for_a_browser_has_a_host_that_it_can_reach():
    plain, secure = Page("0.0.0.0:0", "sesame"), Page("0.0.0.0:0", "sesame", ServerTLS(b"", b""))
    assert plain.url("127.0.0.1:7", "10.0.0.3") == "http://127.0.0.1:7/"
    assert secure.url("0.0.0.0:7", "10.0.0.3") == "https://10.0.0.3:7/"
    assert plain.url("[::]:7", "10.0.0.3") == "http://10.0.0.3:7/"
    assert plain.url("0.0.0.0:7", "127.0.0.1") == plain.url("0.0.0.0:7") == "http://0.0.0.0:7/"


def test_a_port_that_is_in_use_is_refused_before_anything_starts():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"http: 127.0.0.1:{port}: address already in use"):
            page_address(port, "local")
        assert page_address(port, "ray").address == f"127.0.0.1:{port}"  # only its node can tell
