import socket

import pytest

pytest.importorskip("torch")

from reverie.runners.planning.page_address import page_address


@pytest.mark.parametrize(
    ("http", "address"),
    [(0, "127.0.0.1:0"), ("0", "127.0.0.1:0"), ("localhost:0", "localhost:0"), ("[::1]:0", "[::1]:0")],
)
def test_the_page_of_a_run_is_on_loopback(http, address):
    assert page_address(http, "process") == address


@pytest.mark.parametrize(
    ("http", "runner", "words"),
    [
        ("0.0.0.0:8080", "local", "other machines can reach, and the page of a run asks for no token: use 127.0.0.1"),
        ("[::]:8080", "process", "other machines can reach"),
        ("example:8080", "local", "other machines can reach"),
        (8080, "ray", "http is for the runners 'local' and 'process'"),
        ("here", "local", "a port like 9090, or a host and a port"),
    ],
)
def test_an_address_where_a_run_can_have_no_page_is_refused(http, runner, words):
    with pytest.raises(ValueError, match=words):
        page_address(http, runner)


def test_a_port_that_is_in_use_is_refused_before_anything_starts():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"http: 127.0.0.1:{port}: address already in use"):
            page_address(port, "local")
